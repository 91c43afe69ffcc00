"""What stands on top of the stacks: from the last hidden state to logits; and which of it measures read."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from regard.blocks import Linear, activation_named
from regard.core import Mask, padding_of
from regard.core.errors import InputError
from regard.models._config import DecoderConfig


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """output = sum over heads of context_h W_O^h, plus the bias.

    Args:
        weight: float64 (heads, v_dim, d_model), W_O^h of each head.
        bias: float64 (d_model,), or None where there is none.
    """

    weight: Tensor
    bias: Tensor | None

    def of_contexts(self, context: Tensor) -> Tensor:
        """(.., heads, positions, v_dim) -> (.., positions, d_model), in float64."""
        # In float64: what is measured is the model's rounding, and this sum must not add its own.
        output = context.double().transpose(-3, -2).flatten(-2) @ self.weight.flatten(0, 1)
        return output if self.bias is None else output + self.bias

    def error(self, context: Tensor, output: Tensor) -> float:
        """How far the heads are from summing to a recorded output: see `relative_error`.

        Args:
            context: (.., heads, queries, v_dim).
            output: (.., queries, d_model).
        """
        return relative_error(self.of_contexts(context.detach()), output.detach().double())

    def of_values(self, v: Tensor, head: int) -> Tensor:
        """What a head makes of values, f_h(x) = v W_O^h: (kv_heads, keys, v_dim) -> (keys, d_model)."""
        # Where heads are grouped, several query heads in a row read the values of one.
        # (keys, v_dim) @ (v_dim, d_model)
        return v[head // (len(self.weight) // len(v))].double() @ self.weight[head]


@dataclass(frozen=True, kw_only=True, eq=False)
class Unembedding:
    """logits = W (scale h) + b: a head that is linear in the last hidden state, before any soft cap.

    Args:
        weight: (vocab_size, d_model).
        bias: (vocab_size,), or None where there is none.
        scale: of the hidden state.
    """

    weight: Tensor
    bias: Tensor | None
    scale: float = 1.0

    def rows(self, ids: list[int]) -> tuple[Tensor, Tensor]:
        """The directions of some tokens, float64 (ids, d_model), and their biases, (ids,)."""
        # A head without a bias adds 0.
        bias = self.weight.new_zeros(len(ids)) if self.bias is None else self.bias[ids]
        return self.scale * self.weight[ids].double(), bias.double()

    def logits(self, state: Tensor) -> Tensor:
        """(.., d_model) -> (.., vocab_size), in the head's own type."""
        # Hidden states may come in float64; the head computes in its own type.
        state = state.to(self.weight.dtype)
        return nn.functional.linear(
            state * self.scale if self.scale != 1.0 else state, self.weight, self.bias
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Reader:
    """q_h = W_h norm(x) + b_h: how each head's queries, or keys, read its layer's input, before any turn.

    Args:
        weight: float64 (heads, head_dim, d_model).
        bias: float64 (heads, head_dim), 0 where there is none.
        norm: what stands before; None for nothing.
    """

    weight: Tensor
    bias: Tensor
    norm: nn.Module | None


def read_readers(
    modules: Sequence[nn.Module], norm: nn.Module | None, heads: Sequence[int], head_dim: int
) -> tuple[Reader, ...]:
    """What linear layers on one input hold, one after the other: a reader for each number of heads."""
    matrices = [matrix.detach().double() for each in modules if (matrix := _matrix(each)) is not None]
    biases = [getattr(each, "bias", None) for each in modules]
    rows = torch.cat(matrices)
    added = torch.cat(
        [
            rows.new_zeros(len(matrix)) if bias is None else bias.detach().double()
            for matrix, bias in zip(matrices, biases, strict=True)
        ]
    )
    readers, start = [], 0
    for count in heads:
        own = slice(start, start := start + count * head_dim)
        weight, bias = (each[own].reshape(count, head_dim, *each.shape[1:]) for each in (rows, added))
        readers.append(Reader(weight=weight, bias=bias, norm=norm))
    return tuple(readers)


def read_projection(module: nn.Module, num_heads: int) -> Projection | None:
    """The projection that a module on the joined heads is; None where it is no plain linear layer."""
    matrix = _matrix(module)
    # Columns are the heads side by side.
    if matrix is None or matrix.shape[1] % num_heads:
        return None
    bias = getattr(module, "bias", None)
    return Projection(
        # (d_model, heads * v_dim) -> (heads, v_dim, d_model)
        weight=matrix.detach().double().reshape(len(matrix), num_heads, -1).permute(1, 2, 0),
        bias=bias.detach().double() if isinstance(bias, Tensor) else None,
    )


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a plain linear layer: a matrix, perhaps with a bias, and nothing else."""
    return _matrix(module) is not None


def _matrix(module: nn.Module) -> Tensor | None:
    """W of y = W x + b: (d_out, d_in)."""
    weight, kind = getattr(module, "weight", None), type(module)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    # By exact type, or ours: a subclass elsewhere may do more than multiply.
    if kind is nn.Linear or (issubclass(kind, nn.Linear) and kind.__module__.startswith("regard.")):
        return weight
    # transformers' own, for GPT-2: y = x W + b. Other classes may do more than multiply (quantised, adapted).
    if kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers."):
        return weight.mT
    return None


def relative_error(actual: Tensor, wanted: Tensor) -> float:
    """The largest difference relative to the largest entry wanted; infinite where one is not finite."""
    # One number for the tensor: entries near 0 have no relative error of their own.
    apart, largest = float((actual - wanted).abs().max()), float(wanted.abs().max())
    if not (math.isfinite(apart) and math.isfinite(largest)):
        return math.inf
    return apart / largest if largest else apart


@dataclass(frozen=True, kw_only=True, eq=False)
class LastState:
    """What a head reads.

    state and pooled are (batch, N, d_model) and (batch, d_model); token_ids (batch, N) are the encoder's,
    where there are two stacks.
    """

    state: Tensor
    token_ids: Tensor
    mask: Mask | None = None
    pooled: Tensor | None = None


Reading = Callable[[LastState], Tensor]
"""From the last hidden state to the vectors that are labelled: (batch, N, d_model) by `every_position`, else
(batch, d_model), one for a whole row, which must then hold one text."""


def every_position(read: LastState) -> Tensor:
    """Each one, for a label a token: (batch, N, d_model)."""
    return read.state


def first_position(read: LastState) -> Tensor:
    """That of the first position, the [CLS] token: (batch, d_model)."""
    return read.state[:, 0]


def pooled(read: LastState) -> Tensor:
    """The pooler's output: (batch, d_model)."""
    assert read.pooled is not None, "a head that reads the pooler is built with one"
    return read.pooled


def mean_of_tokens(read: LastState) -> Tensor:
    """The mean over the positions that are not padding: (batch, d_model); zero where there is none."""
    # Without padding the plain mean.
    real = padding_of(read.mask)
    if real is None:
        return read.state.mean(dim=1)
    # Not multiplied by 0: what stands at padding may be no number.
    total = torch.where(real[:, :, None], read.state, 0.0).sum(dim=1)
    return total / real.sum(dim=1, keepdim=True).clamp(min=1)


def last_token(read: LastState, *, pad_id: int | None) -> Tensor:
    """The last token that is not padding: (batch, d_model).

    With `pad_id`, padding is told by its id alone, as in `transformers`. Without one, it is what the mask
    says is padding, and without a mask there is none; `transformers` refuses several texts then, and reads
    the last position of a single one, padding or not. The first position is read where nothing but padding
    stands.
    """
    # By the id where there is one, as transformers does; else by the mask.
    real = padding_of(read.mask) if pad_id is None else read.token_ids != pad_id
    # No padding anywhere: the last position.
    if real is None:
        return read.state[:, -1]
    return _at(read.state, last_of(real.expand(read.token_ids.shape)))


def last_end(read: LastState, *, end_id: int) -> Tensor:
    """The last token that ends a text: (batch, d_model)."""
    state, token_ids = read.state, read.token_ids
    # The end's place in the source is read in the decoder's states.
    if state.shape[:2] != token_ids.shape:
        raise InputError(
            "decoder_token_ids must have the shape of token_ids, whose end the classifier reads: "
            f"{tuple(token_ids.shape)}; got {tuple(state.shape[:2])}."
        )
    is_end = token_ids == end_id
    if not bool(is_end.any(dim=1).all()):
        raise InputError(
            f"token_ids must hold the end of text, id {end_id}, in every row: the classifier reads its label "
            "there."
        )
    return _at(state, last_of(is_end))


def last_of(chosen: Tensor) -> Tensor:
    """int64 (batch,), where the last True of every row of a bool (batch, N) stands; 0 where there is none."""
    # Positions where it is True, 0 elsewhere: the largest is the last, and argmax takes the first of equals.
    return (torch.arange(chosen.shape[1], device=chosen.device) * chosen).argmax(dim=1)


def _at(state: Tensor, places: Tensor) -> Tensor:
    return state[torch.arange(len(state), device=state.device), places]


class Head(nn.Module, ABC):
    """From the last hidden state to logits."""

    of_text = False
    """Whether a row gets one answer, so that it must hold one text."""

    @abstractmethod
    def forward(self, read: LastState) -> Tensor:
        """Work out the logits."""

    def target_of(self, token_ids: Tensor) -> Tensor | None:
        """What the decoder beside an encoder reads where the caller gives nothing; None if he must."""
        return None


class LanguageModelHead(Head):
    """logits = softcap(W (scale * h) + b): the next token.

    Args:
        output: (d_model -> vocab_size); its weight may be the table of learned embeddings itself.
        scale: of the hidden state: T5 with tied weights has 1 / sqrt(d_model).
        softcap: bound c of the logits, c tanh(logit / c) (Gemma 2).
        bias: (1, vocab_size), added last, a constant of the checkpoint (BART's, Marian's); None for none.

    Example:
        >>> import torch
        >>> head = LanguageModelHead(nn.Linear(6, 13, bias=False))
        >>> head(LastState(state=torch.randn(1, 5, 6), token_ids=torch.zeros(1, 5))).shape
        torch.Size([1, 5, 13])
    """

    def __init__(
        self,
        output: nn.Linear,
        *,
        scale: float = 1.0,
        softcap: float | None = None,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.output = output
        self.scale, self.softcap = scale, softcap
        self.bias: Tensor | None
        # A buffer: published checkpoints store it, and do not train it.
        self.register_buffer("bias", bias)

    def forward(self, read: LastState) -> Tensor:
        """(batch, N, d_model) -> (batch, N, vocab_size)."""
        # Scaled before the product, which is cheaper than the logits after it.
        state = read.state if self.scale == 1.0 else read.state * self.scale
        logits: Tensor = self.output(state)
        if self.softcap is not None:
            # softcap * tanh(logits / softcap)
            logits = torch.tanh(logits / self.softcap) * self.softcap
        if self.bias is None:
            return logits
        # In place: they are as long as the vocabulary, and memory for them again costs more than the sum.
        return logits.add_(self.bias) if logits.dtype == self.bias.dtype else logits + self.bias


class MaskedLMHead(Head):
    """logits = W norm(activation(W_d h + b_d)) + b: the token behind a [MASK]; W may be the table itself.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 3.1; the dense layer and the norm are in their code.
    """

    def __init__(self, dense: nn.Linear, activation: str, norm: nn.Module, output: nn.Linear) -> None:
        super().__init__()
        self.dense, self.norm, self.output = dense, norm, output
        self.activation = activation_named(activation)

    def forward(self, read: LastState) -> Tensor:
        """(batch, N, d_model) -> (batch, N, vocab_size)."""
        logits: Tensor = self.output(self.norm(self.activation(self.dense(read.state))))
        return logits


class Activation(nn.Module):
    """One of `regard.blocks.ACTIVATIONS`, as a layer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.function = activation_named(name)

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> the same shape."""
        return self.function(x)


class Classifier(Head):
    """logits = layers(x): labels for the text or for every token, by which vectors x are read.

    The layers go by their names in the network's state, in this order.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 4.1; of the last token: Radford et al. 2018,
    "Improving Language Understanding by Generative Pre-Training", section 3.2.
    """

    def __init__(self, reads: Reading, **layers: nn.Module) -> None:
        super().__init__()
        self.reads = reads
        # A row then gets one label.
        self.of_text = reads is not every_position
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, read: LastState) -> Tensor:
        """(batch, N, d_model) -> (batch, num_labels), or (batch, N, num_labels)."""
        x = self.reads(read)
        # In the order in which they were given.
        for layer in self.children():
            x = layer(x)
        return x


class ReplacedHead(Classifier):
    """logit = w . activation(W h + b) + c: how much a token seems to stand in the place of the true one.

    Source: Clark et al. 2020 (ELECTRA), arXiv 2003.10555, section 2; the dense layer is in their code.
    """

    def __init__(self, d_model: int, activation: str) -> None:
        inner, function = nn.Linear(d_model, d_model), Activation(activation)
        super().__init__(every_position, inner=inner, activation=function, replaced=nn.Linear(d_model, 1))

    def forward(self, read: LastState) -> Tensor:
        """(batch, N, d_model) -> (batch, N), positive for "replaced"."""
        return super().forward(read).squeeze(-1)


class EndClassifier(Classifier):
    """logits = W tanh(W_h x_end + b_h) + b: a label for the text, read off its last end-of-text token.

    The decoder reads the text that the encoder reads, one position later, behind `start_id`; None is the
    text's last token (mBART: its language).

    Source: Lewis et al. 2020 (BART), arXiv 1910.13461, section 3.1.
    """

    def __init__(
        self,
        d_model: int,
        num_labels: int,
        *,
        end_id: int,
        start_id: int | None,
        pad_id: int | None,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__(
            partial(last_end, end_id=end_id),
            input_dropout=nn.Dropout(dropout_p),
            hidden=nn.Linear(d_model, d_model),
            activation=Activation("tanh"),
            dropout=nn.Dropout(dropout_p),
            score=nn.Linear(d_model, num_labels),
        )
        self.start_id, self.pad_id = start_id, pad_id

    def target_of(self, token_ids: Tensor) -> Tensor:
        """The token ids, one position later."""
        # The decoder reads the text itself, moved on by one, behind a start token.
        if self.start_id is not None:
            start = torch.full_like(token_ids[:, :1], self.start_id)
        elif self.pad_id is None:  # the text's last token, whatever it is
            start = token_ids[:, -1:]
        else:
            # The last token that is not padding, as mBART has it.
            start = token_ids.gather(1, last_of(token_ids != self.pad_id)[:, None])
        return torch.cat((start, token_ids[:, :-1]), dim=1)


def token_classifier(d_model: int, num_labels: int, *, dropout_p: float, layer: str = "labels") -> Classifier:
    """logits = W h + b, a label for every token; `layer` is the name of W and b."""
    layers = {"dropout": nn.Dropout(dropout_p), layer: nn.Linear(d_model, num_labels)}
    return Classifier(every_position, **layers)


def decoder_head(
    config: DecoderConfig, tokens: nn.Embedding, *, softcap: float | None = None, of_tokens: str = "score"
) -> Head | None:
    """The head of a decoder: the next token, a label read off the last token, or one for every token."""
    # One head at most; None is the stack alone.
    match config.head:
        case "language-model":
            return LanguageModelHead(
                output_layer(tokens, is_tied=config.tie_word_embeddings), softcap=softcap
            )
        case "sequence":
            score = nn.Linear(config.d_model, config.num_labels, bias=False)  # none in transformers either
            return Classifier(partial(last_token, pad_id=config.pad_token_id), score=score)
        case "token":
            dropout_p = config.classifier_dropout_p
            return token_classifier(config.d_model, config.num_labels, dropout_p=dropout_p, layer=of_tokens)
    return None


def output_layer(tokens: nn.Embedding, *, is_tied: bool, use_bias: bool = False) -> nn.Linear:
    """A linear layer to the vocabulary; tied, its weight is the table of learned embeddings itself.

    Source: Press and Wolf 2017, arXiv 1608.05859.
    """
    output = Linear(tokens.embedding_dim, tokens.num_embeddings, bias=use_bias, device=tokens.weight.device)
    if is_tied:
        # One parameter under two names: trained and stored once.
        output.weight = tokens.weight
    return output
