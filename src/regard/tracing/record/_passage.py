"""What a trace keeps of one stack: an encoder's or a decoder's way from tokens to contextual embeddings."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from regard.core import AttentionInputs
from regard.core.errors import InputError
from regard.text import Encoding
from regard.tracing.record._keep import EVERYTHING, Keeping, ScoreInputs


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionTrace:
    """One attention layer: what it is a function of, and what the model made of it.

    Args:
        inputs: of batch size 1; the weights are computed from them when somebody asks.
        context: (heads, queries, v_dim), the weighted values, as the model computed them.
        output: (queries, d_model), what the layer makes of the joined contexts; None where it cannot be seen.
        written_heads: the heads whose contexts an edit wrote, so that they are not weights x values. Weights
            that an edit wrote are in `inputs`, and whatever needs these heads' scores refuses them.
        output_written: whether an edit wrote the output, so that it is not the heads joined.
    """

    inputs: AttentionInputs
    context: Tensor
    output: Tensor | None = None
    written_heads: tuple[int, ...] = ()
    output_written: bool = False


class ScoreTrace(AttentionTrace):
    """An attention layer of a trace that keeps queries and keys, and no values or contexts."""

    def __init__(self, inputs: ScoreInputs) -> None:
        self.__dict__.update(inputs=inputs, output=None)

    @property
    def context(self) -> Tensor:
        """Not kept: always an InputError."""
        raise InputError(
            'contexts are not in this trace, which was kept with keep="qk": that is enough for weights and '
            'scores. Trace again with keep="qkv" or keep="all".'
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Passage:
    """One sequence's way through one stack.

    Args:
        encoding: the tokens and words, with their spans in the text.
        attention: for each layer its self-attention; reading a layer that was not kept raises.
        cross_attention: the attention to the encoder of each layer that has it; () where there is none.
        cross_layers: the numbers of these layers, where some layer has none; None where all have it.
        hidden: L + 1 tensors (tokens, d_model): the input of layer 0, then what each layer hands on, the last
            one after the stack's last norm; () where they cannot be seen. One that was not kept raises.
        learned: (tokens, d), the rows of the table of learned embeddings; None where they cannot be seen, or
            were not kept.
        scaled: (tokens, d), these rows times the model's factor, or None where it has none.
        positions: (tokens, d), what was added for the position, or None.
        token_types: the same for the token type, or None.
        keeping: what was asked to be kept.
    """

    encoding: Encoding
    attention: Sequence[AttentionTrace]
    cross_attention: Sequence[AttentionTrace] = ()
    cross_layers: tuple[int, ...] | None = None
    hidden: Sequence[Tensor] = ()
    learned: Tensor | None = None
    scaled: Tensor | None = None
    positions: Tensor | None = None
    token_types: Tensor | None = None
    keeping: Keeping = EVERYTHING

    @property
    def depth(self) -> int:
        """Layers with attention, of whatever kind: a recurrent stack has none to itself."""
        return len(self.attention) or len(self.cross_attention)

    @property
    def tokens(self) -> list[str]:
        """The tokens, as the vocabulary writes them."""
        return [token.text for token in self.encoding.tokens]

    def embeddings(self, layer: int | str = -1) -> Tensor:
        """Every token's vector at an embedding layer: (tokens, d_model); see `Trace.embedding`."""
        if not self.keeping.hidden:
            raise InputError(
                f'embeddings are not in this trace, which was kept with keep="{self.keeping.keep}". Trace '
                'again with keep="residual" or keep="all".'
            )
        if not self.hidden or self.learned is None:
            raise InputError(
                "this model's hidden states cannot be seen through the lens, and so no embeddings; ask for "
                "weights, scores or context."
            )
        if layer == "input":
            return self.hidden[0]
        last = len(self.hidden) - 1
        index = counted(layer, last + 1)
        if index is None:
            raise InputError(
                f'layer must be from 0 (learned) to {last} (contextual), or "input", or negative to count '
                f"from the end; got {layer!r}."
            )
        return self.learned if index == 0 else self.hidden[index]


def counted(value: object, count: int) -> int | None:
    """The number from 0 to count - 1 that is meant, negative ones from the end, or None."""
    try:
        # operator.index lets numpy's integers pass; a bool is an integer to it, and never meant as one.
        index = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    return index % count if -count <= index < count and not isinstance(value, bool) else None
