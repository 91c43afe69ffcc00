"""How alike a changed model's contextual embeddings are to those before: a metric that needs no labels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Loaded, Output
from regard.tracing.record import KeepPolicy, Trace
from regard.tracing.run import TraceOfRun, rerun


class Likeness:
    """The mean cosine between contextual embeddings of a full model and of a changed one, on some texts.

        likeness = mean over texts of  mean over tokens of  cos(h_token, h_token of the full model)

    1 for the model itself. What is compared is the last hidden state, special tokens included; a head on top
    is not.

    Args:
        loaded: the full model, with one stack.
        texts: at least one.

    Attributes:
        traces: of the texts by the full model, which are the examples for `head_importance`.

    Raises:
        InputError: no texts, a text that the model cannot take, or an encoder and a decoder.

    Example:
        >>> from regard.models import load_checkpoint
        >>> from regard.pruning import prune
        >>> full = load_checkpoint()
        >>> likeness = Likeness(full, ["a river bank", "a bank loan"])
        >>> round(likeness(full), 4), likeness(prune(full, {0: [3]})) < 1
        (1.0, True)
    """

    def __init__(self, loaded: Loaded, texts: Sequence[str]) -> None:
        if not isinstance(texts, Sequence) or isinstance(texts, str) or not texts:
            raise InputError(f"texts must be a list of at least one text; got {texts!r}.")
        if len(loaded.network.prefixes) > 1:
            raise InputError(
                f"model must have one stack; {loaded.source.name} has an encoder and a decoder, whose output "
                "depends on what the decoder reads. Give model.pruning_curve a metric of your own."
            )
        keeping = KeepPolicy(keep="residual", layers=-1)
        self.traces: tuple[Trace, ...] = tuple(
            TraceOfRun.of_text(loaded, text, keeping=keeping) for text in texts
        )
        self._full = [self._state(loaded, trace) for trace in self.traces]

    def __call__(self, loaded: Loaded) -> float:
        """The likeness of a changed model, which must read texts as the full one does."""
        states = (self._state(loaded, trace) for trace in self.traces)
        found = [float(self._cosine(state, index)) for index, state in enumerate(states)]
        return sum(found) / len(found)

    def loss(self, output: Output, index: int) -> Tensor:
        """1 - the likeness of what a model gives for one text: a metric for `head_importance`.

        It is least for the full model, so its gradient there is zero: take `method="zero"` or `"mean"`.
        """
        return 1 - self._cosine(output.last_hidden_state[0], index)

    def _cosine(self, state: Tensor, index: int) -> Tensor:
        full = self._full[index]
        alike = torch.cosine_similarity(state.double(), full.to(state.device).double(), dim=-1)
        return alike.clamp(-1.0, 1.0).mean()  # rounding may step over the ends

    def _state(self, loaded: Loaded, trace: Trace) -> Tensor:
        with torch.no_grad():
            return rerun(trace, loaded.network).last_hidden_state[0]
