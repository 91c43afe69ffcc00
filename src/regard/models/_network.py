"""What every network offers to the floors above, whoever wrote it; and what it is called with, checked."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.blocks import Stack
from regard.core import Conjunction, Mask, Padding, Segments, Taps
from regard.core.errors import InputError
from regard.models._heads import Projection, Reader, Unembedding
from regard.text import Encoding

StackKind = Literal["encoder", "decoder"]
"""The two kinds of stack."""

Kind = Literal["encoder", "decoder", "cross"]
"""Which attention: the encoder's, the decoder's own, or from the decoder to the encoder."""


def stack_of(kind: Kind) -> StackKind:
    """The stack whose layers hold the attention of a kind, and whose tokens are its queries."""
    return "decoder" if kind == "cross" else kind


def keys_of(kind: Kind) -> StackKind:
    """The stack whose tokens are the keys of a kind of attention."""
    return "encoder" if kind == "cross" else kind


def attention_name(kind: Kind) -> str:
    """What the attention of a kind is called within its layer, as a module and in the names of taps."""
    return "cross_attention" if kind == "cross" else "attention"


class NetworkConfig(Protocol):
    """The sizes that every config has, under these names."""

    @property
    def vocab_size(self) -> int:
        """Rows of the table of learned embeddings."""
        ...

    @property
    def d_model(self) -> int:
        """Size of the residual stream."""
        ...

    @property
    def num_layers(self) -> int:
        """Attention layers; of the encoder, where there are two stacks."""
        ...

    @property
    def num_heads(self) -> int:
        """Query heads a layer."""
        ...

    @property
    def max_seq_len(self) -> int | None:
        """The tokens it was made for; None where the checkpoint names no number."""
        ...

    @property
    def num_token_types(self) -> int:
        """Rows of the table of token types; 0 where there is none."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Output:
    """What a network returns.

    Args:
        last_hidden_state: (batch, positions, d_model), the contextual embeddings: the decoder's where there
            is one, else the encoder's.
        logits: what the head gives: (batch, positions, vocab_size) of a language model,
            (batch, num_labels) of a sequence classifier, (batch, positions, num_labels) of a token
            classifier, (batch, positions) of ELECTRA's discriminator. None without a head, or where they were
            not asked for.
        pooled: (batch, d_model), from the pooler where the checkpoint has one, else None.
        encoder_state: (batch, positions, d_model), the encoder's contextual embeddings, or None.
        decoder_state: the decoder's, or None.

    Example:
        >>> import torch
        >>> from regard.models import Output
        >>> Output(last_hidden_state=torch.zeros(1, 3, 6), logits=torch.zeros(1, 3, 31))
        Output(last_hidden_state (1, 3, 6), logits (1, 3, 31))
    """

    last_hidden_state: Tensor
    logits: Tensor | None = None
    pooled: Tensor | None = None
    encoder_state: Tensor | None = None
    decoder_state: Tensor | None = None

    def __repr__(self) -> str:
        given = ((each.name, getattr(self, each.name)) for each in fields(self))
        shapes = [f"{name} {tuple(value.shape)}" for name, value in given if value is not None]
        return f"Output({', '.join(shapes)})"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Change:
    """What one edit did at one tap, in one pass.

    Args:
        edit: as it was given, in short.
        tap: where it wrote.
        found: float (2,): `changed` and `moved`, on the device of the pass until somebody reads them.

    Attributes:
        changed: the share of the numbers there that it made others, 0 to 1.
        moved: by how much at most; infinite where a score was removed.

    Example:
        >>> import torch
        >>> Change(edit="Scale('q', layer=1)", tap="layers.1.attention.q", found=torch.tensor([0.5, 2.0]))
        Change(Scale('q', layer=1) at layers.1.attention.q: changed 50 %, by at most 2)
    """

    edit: str
    tap: str
    found: Tensor

    @property
    def changed(self) -> float:
        """The share of the numbers there that are others now."""
        return float(self.found[0])

    @property
    def moved(self) -> float:
        """The largest difference."""
        return float(self.found[1])

    def __repr__(self) -> str:
        return (
            f"Change({self.edit} at {self.tap}: changed {100 * self.changed:.3g} %, "
            f"by at most {self.moved:.4g})"
        )


class Input(NamedTuple):
    """What one stack reads, as `Network.forward` is given it."""

    ids: Tensor
    mask: Tensor | Mask | None
    positions: Tensor | None


class Network(nn.Module, ABC):
    """A transformer: an encoder, a decoder, or both.

    Attributes:
        config: its sizes.
        prefixes: for each of its stacks, what stands before the names of its taps: "" where it is the only
            one, else "encoder." and "decoder.".
        start_id: the token that a decoder beside an encoder reads first; None where there is none.
        written: the taps where it writes, as a network with edits does.
        foreign: the class of another library's model that runs; None where the modules are regard's own.
        spares_logits: whether a pass without logits does not compute them; else they are dropped.
    """

    config: NetworkConfig
    prefixes: Mapping[StackKind, str]
    start_id: int | None = None
    written: frozenset[str] = frozenset()
    foreign: str | None = None
    spares_logits: bool = True

    @property
    def changes(self) -> tuple[Change, ...]:
        """What the edits of a network `for_texts` did in its pass, in order; () without edits."""
        return ()

    @property
    def edits(self) -> tuple[str, ...]:
        """What is written at which tap, as the edits write themselves; () without edits."""
        return ()

    @property
    def bound(self) -> str | None:
        """The first edit that means certain positions or words of a text; None where all fit any text."""
        return None

    @property
    def untraced(self) -> str | None:
        """Why no trace can be made of it, in words; None where one can."""
        return None

    def written_heads(self, tap: str, count: int) -> tuple[int, ...]:
        """Which of the `count` heads at a tap are written, in order; () without edits."""
        # An edited network overrides these: no edits here.
        del tap, count
        return ()

    @property
    def plain(self) -> "Network":
        """The network without edits: itself, but for one that has edits around another."""
        return self

    def for_texts(self, encodings: Mapping[StackKind, Encoding]) -> "Network":
        """The network for one pass over these texts: itself, but for one that looks words up in them."""
        del encodings
        return self

    @abstractmethod
    def depth(self, kind: StackKind) -> int:
        """Attention layers of a stack."""

    @abstractmethod
    def limit(self, kind: StackKind) -> int | None:
        """The most positions that a stack can take, the rows of its table of positions; None for no limit."""

    @abstractmethod
    def tap_names(self) -> list[str]:
        """Every point at which this network offers a value, in the order of the forward pass."""

    @abstractmethod
    def stack(self, kind: StackKind) -> Stack | None:
        """One of regard's own stacks; None where the network is another library's."""

    def layer(self, kind: StackKind, index: int) -> nn.Module | None:
        """One of regard's own layers; None likewise."""
        stack = self.stack(kind)
        return None if stack is None else stack.layers[index]

    def shares_a_pass(self, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        """Whether texts of these lengths can run side by side, each as if it were alone."""
        del one, other
        return True

    @abstractmethod
    def projection(self, kind: Kind, layer: int) -> Projection | None:
        """The way from the heads of an attention layer to its output; None where that is no linear layer."""

    def readers(self, kind: Kind, layer: int) -> tuple[Reader, ...] | None:
        """How queries and keys read a layer of transformers' own; None where that cannot be seen."""
        return None

    @abstractmethod
    def final_norm(self, kind: StackKind) -> nn.Module | None:
        """The norm between a stack's last layer and its output; None where there is none to be seen."""

    @property
    @abstractmethod
    def has_vocabulary_head(self) -> bool:
        """Whether its head gives every position a logit for each token of the vocabulary."""

    @abstractmethod
    def unembedding(self) -> Unembedding | None:
        """The head over the vocabulary, where that is linear in the last hidden state."""

    @abstractmethod
    def readout(self, state: Tensor, *, normed: bool) -> Tensor | None:
        """The logits of hidden states, (batch, positions, d_model) -> (batch, positions, vocab_size).

        Args:
            state: of the stack that the head reads.
            normed: whether they are after the last norm.

        Returns:
            The head's own; None where nothing but a whole pass gives them.
        """

    def forward(
        self,
        token_ids: Tensor,
        *,
        mask: Tensor | Mask | None = None,
        token_types: Tensor | None = None,
        positions: Tensor | None = None,
        decoder_token_ids: Tensor | None = None,
        decoder_mask: Tensor | Mask | None = None,
        decoder_positions: Tensor | None = None,
        logits: bool = True,
        taps: Taps | None = None,
    ) -> Output:
        """Run the network.

        Args:
            token_ids: int64 (batch, N): the encoder's where there are two stacks.
            mask: which positions may be attended to: bool (batch, N), True = a token, False = padding; or a
                `regard.core.Mask`, conjoined with the network's own; None where there is no padding. The
                decoder obeys the padding of the encoder's mask too, and `Segments` that both masks have.
            token_types: int64 (batch, N), which sentence of a pair; by default all 0.
            positions: int64 (batch or 1, N), the numbers of the positions, as for texts packed into one row,
                which may then be longer than `limit`; by default the network's own numbering.
            decoder_token_ids: int64 (batch, M), what the decoder of an encoder-decoder reads.
            decoder_mask, decoder_positions: like `mask` and `positions`, for the decoder.
            logits: whether a head's logits are worked out: those of a vocabulary are large.
            taps: listeners, or None.

        Raises:
            InputError: ids or lengths out of range, shapes that do not fit, an unknown tap.
        """
        # The first of the stacks reads token_ids: the encoder, where there are two.
        self._check("token_ids", next(iter(self.prefixes)), token_ids, positions)
        # What the second stack reads, where there is one.
        second = None
        if len(self.prefixes) == 2:
            if decoder_token_ids is None:
                # Some heads read the source again, moved by one.
                decoder_token_ids = self._target_of(token_ids)
            if decoder_token_ids is None:
                raise InputError(
                    "decoder_token_ids must be given: this model has an encoder and a decoder, which reads "
                    "them."
                )
            self._check("decoder_token_ids", "decoder", decoder_token_ids, decoder_positions)
            if len(decoder_token_ids) != len(token_ids):
                raise InputError(
                    f"decoder_token_ids must have the batch of token_ids, {len(token_ids)}; "
                    f"got {len(decoder_token_ids)}."
                )
            second = Input(decoder_token_ids, decoder_mask, decoder_positions)
        # One stack: arguments of a second would be passed over in silence.
        elif any(each is not None for each in (decoder_token_ids, decoder_mask, decoder_positions)):
            raise InputError(
                "decoder_token_ids, decoder_mask and decoder_positions must be None: "
                "this model has one stack."
            )
        if taps is not None:
            # A misspelled point would never be called.
            taps.check(self.tap_names())
        return self._run(Input(token_ids, mask, positions), second, token_types, logits, taps)

    def _check(self, name: str, kind: StackKind, token_ids: Tensor, positions: Tensor | None) -> None:
        """Refuse ids and positions that a stack has no rows for."""
        del kind, positions
        check_ids(name, token_ids, self.config.vocab_size, None)

    def _target_of(self, token_ids: Tensor) -> Tensor | None:
        """What the decoder reads where nothing was given; None where it must be given."""
        del token_ids
        return None

    def _run(
        self, first: Input, second: Input | None, token_types: Tensor | None, logits: bool, taps: Taps | None
    ) -> Output:
        """The pass itself, once `forward` has checked what it reads: of one stack, or of two."""
        raise NotImplementedError


_WHOLE = (torch.int64, torch.int32)


def check_ids(name: str, ids: Tensor, size: int, limit: int | None) -> None:
    """Raise InputError unless ids are whole numbers (batch, N) below `size`, N within the limit."""
    if not isinstance(ids, Tensor):
        raise InputError(
            f"{name} must be a tensor; got {type(ids).__name__}. Make one: torch.tensor([ids]), where "
            "model.trace(text).token_ids are the ids of a text."
        )
    # From the shape to the values, so that a message is about the first fault.
    if ids.ndim != 2 or not ids.shape[0] or ids.dtype not in _WHOLE:
        raise InputError(
            f"{name} must be int64 of shape (batch, positions), with at least one row; "
            f"got {ids.dtype} of shape {tuple(ids.shape)}."
        )
    if not ids.shape[1] or (limit is not None and ids.shape[1] > limit):
        wanted = "at least 1 position" if limit is None else f"from 1 to {limit} positions, the model's limit"
        raise InputError(f"{name} must hold {wanted}; got {ids.shape[1]}.")
    _check_range(name, ids, size)


def check_beside(name: str, values: Tensor, token_ids: Tensor, size: int | None, *, one_row: bool) -> None:
    """Raise InputError unless whole numbers of the shape of token_ids, or of one row, lie below `size`."""
    if not isinstance(values, Tensor):
        raise InputError(
            f"{name} must be a tensor; got {type(values).__name__}. Make one: torch.tensor(...)."
        )
    # Positions may be one row for all.
    shapes = [tuple(token_ids.shape), *([(1, token_ids.shape[1])] if one_row else [])]
    if tuple(values.shape) not in shapes:
        raise InputError(
            f"{name} must have the shape of token_ids, {tuple(token_ids.shape)}; got {tuple(values.shape)}."
        )
    if values.dtype not in _WHOLE:
        raise InputError(f"{name} must be int64; got {values.dtype}.")
    _check_range(name, values, size)


def _check_range(name: str, values: Tensor, size: int | None) -> None:
    """Raise InputError where whole numbers are below 0, or not below `size`."""
    if torch.compiler.is_compiling():  # a look would break the graph; the lookup itself refuses there
        return
    low, high = torch.stack(torch.aminmax(values)).tolist()  # one wait for a device
    if low < 0 or (size is not None and high >= size):
        wanted = "at least 0" if size is None else f"from 0 to {size - 1}"
        raise InputError(f"{name} must be {wanted}; got {low if low < 0 else high}.")


def as_mask(name: str, mask: Tensor | Mask | None, token_ids: Tensor) -> Mask | None:
    """The mask as an object; a tensor, of bool or of 0 and 1, says where there is a token."""
    if mask is None or isinstance(mask, Mask):
        return mask
    # 0 and 1 as tokenizers give them; a 2 is no mask.
    if isinstance(mask, Tensor) and mask.dtype in _WHOLE:
        _check_range(name, mask, 2)
        mask = mask.bool()
    if not isinstance(mask, Tensor) or mask.shape != token_ids.shape or mask.dtype != torch.bool:
        got = (
            f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        )
        raise InputError(
            f"{name} must be bool of the shape of {name.replace('mask', 'token_ids')}, "
            f"{tuple(token_ids.shape)}, True for a token, or a regard.core.Mask; got {got}. "
            "Convert 0/1 with .bool()."
        )
    return Padding(mask)


def for_cross_attention(mask: Mask | None, decoder_mask: Mask | None) -> Mask | None:
    """Who may attend to whom between a decoder and its encoder: no padding, and each segment to its own.

    Everything else that the two masks say is about pairs of positions of one text.
    """
    # Only the padding and the segments of the encoder's mask matter to who may be read.
    sources, targets = (() if each is None else each.parts() for each in (mask, decoder_mask))
    keys = [part for part in sources if isinstance(part, Segments)]
    queries = [part for part in targets if isinstance(part, Segments)]
    if len(keys) != len(queries):
        raise InputError(
            "mask and decoder_mask must both hold Segments, or neither: a decoder reads the segment of the "
            f"same number; got {len(keys)} in mask and {len(queries)} in decoder_mask."
        )
    parts: list[Mask] = [part for part in sources if isinstance(part, Padding)]
    parts += [
        # Queries are the decoder's positions, keys the encoder's.
        Segments(query.queries, key.queries if key.keys is None else key.keys)
        for query, key in zip(queries, keys, strict=True)
    ]
    return Conjunction(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None
