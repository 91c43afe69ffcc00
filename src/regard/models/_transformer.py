"""The one network that regard builds: stacks, and what stands on top of them."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.blocks import LatentStack, MultiHeadAttention, Stack
from regard.core import Mask, Padding, Segments, Taps, padding_of
from regard.core.errors import InputError
from regard.models._config import check_sizes
from regard.models._heads import (
    Head,
    LanguageModelHead,
    LastState,
    MaskedLMHead,
    Projection,
    Unembedding,
    read_projection,
)
from regard.models._network import (
    Input,
    Kind,
    Network,
    NetworkConfig,
    Output,
    StackKind,
    as_mask,
    attention_name,
    check_beside,
    check_ids,
    for_cross_attention,
    stack_of,
)
from regard.models._state import DecoderState, Encoded
from regard.positions import FourierPositions, LearnedPositions, SinusoidalPositions


class Transformer(Network):
    """An encoder, a decoder or both, with the pooler and the head of the checkpoint.

    Families differ in the parts they hand in, which their `build` puts together.

    Args:
        config: its sizes.
        encoder, decoder: the stacks, at least one. With both, the decoder's layers attend to the encoder.
        pooler: from the last hidden state to one vector a text.
        head: from the last hidden state to logits.
        start_id: the token that the decoder of two stacks reads first.

    Raises:
        InputError: a size that no network can have, or no stack.

    Example:
        >>> import torch
        >>> from regard.models.families.bert import BertConfig, build
        >>> bert = build(BertConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11))
        >>> bert(torch.tensor([[3, 1, 4]])).last_hidden_state.shape
        torch.Size([1, 3, 6])

    Source: Vaswani et al. 2017, arXiv 1706.03762, figure 1.
    """

    def __init__(
        self,
        config: NetworkConfig,
        *,
        encoder: Stack | None = None,
        decoder: Stack | None = None,
        pooler: nn.Module | None = None,
        head: Head | None = None,
        start_id: int | None = None,
    ) -> None:
        super().__init__()
        # Before anything is used: sizes below 1 give strange errors later.
        check_sizes(config)
        if encoder is None and decoder is None:
            raise InputError("encoder or decoder must be given; got neither.")
        self.config = config
        self.encoder = encoder
        self.decoder = decoder
        self.pooler = pooler
        self.head = head
        # What the names of taps begin with, for each stack.
        self.prefixes = _prefixes(encoder, decoder)
        self.start_id = start_id

    def stack(self, kind: StackKind) -> Stack:
        """One of the stacks.

        Raises:
            InputError: the network has no such stack.
        """
        stack = self.encoder if kind == "encoder" else self.decoder
        if stack is None:
            raise InputError(f"kind must be {' or '.join(self.prefixes)}, what this model has; got {kind!r}.")
        return stack

    def depth(self, kind: StackKind) -> int:
        """Attention layers of a stack."""
        return len(self.stack(kind).layers)

    def limit(self, kind: StackKind) -> int | None:
        """The most positions that a stack can take; None for no limit."""
        stack = self.stack(kind)
        # None without a table: rotary positions, biases, recurrences.
        rows = _rows(stack)
        # Some tables have rows before the first position's: BART two, RoBERTa up to its padding's.
        return None if rows is None else rows - stack.numbering.first

    @property
    def untraced(self) -> str | None:
        """Why no trace can be made of it, in words; None where one can."""
        # A trace is of tokens.
        if not any(isinstance(self.stack(kind), LatentStack) for kind in self.prefixes):
            return None
        return (
            "its queries and keys are latent vectors, which stand for no tokens; "
            "network(ids, taps=...) shows what each layer reads"
        )

    def shares_a_pass(self, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        """Where no rotation depends on the length of the pass, or the lengths are the same."""
        # DynamicNTK and LongRoPE turn by the length of the pass.
        patterns = (each for kind in self.prefixes for each in self.stack(kind).patterns)
        return one == other or not any(each.rotary and each.rotary.scaling.by_length for each in patterns)

    def tap_names(self) -> list[str]:
        """Every point, in the order of the forward pass."""
        names = [
            f"{prefix}{name}"
            for kind, prefix in self.prefixes.items()
            for name in self.stack(kind).tap_names()
        ]
        return names if self.head is None else [*names, "logits"]

    def projection(self, kind: Kind, layer: int) -> Projection | None:
        """From the heads of an attention layer to its output."""
        # "cross" stands in the decoder's layers.
        attention = getattr(self.stack(stack_of(kind)).layers[layer], attention_name(kind))
        if not isinstance(attention, MultiHeadAttention):
            return None
        return read_projection(attention.output, attention.num_heads)

    def final_norm(self, kind: StackKind) -> nn.Module | None:
        """The norm after a stack's last layer; None where there is none."""
        return self.stack(kind).norm

    @property
    def has_vocabulary_head(self) -> bool:
        """Whether its head gives every position a logit for each token of the vocabulary."""
        return isinstance(self.head, LanguageModelHead | MaskedLMHead)

    def unembedding(self) -> Unembedding | None:
        """The head over the vocabulary, where that is linear in the last hidden state."""
        # A masked-LM head has an activation before its matrix: not linear.
        head = self.head
        if not isinstance(head, LanguageModelHead):
            return None
        # The layer's own and BART's separate one: their sum.
        biases = [each.reshape(-1) for each in (head.output.bias, head.bias) if each is not None]
        return Unembedding(
            weight=head.output.weight.detach(),
            bias=sum(biases[1:], biases[0]).detach() if biases else None,
            scale=head.scale,
        )

    def readout(self, state: Tensor, *, normed: bool) -> Tensor | None:
        """The head's logits of hidden states, which pass the last norm unless they are `normed`."""
        # The last stack's: the head reads its output.
        norm = self.final_norm(list(self.prefixes)[-1])
        if self.head is None:
            return None
        if norm is not None and not normed:
            state = norm(state)
        # A head over the vocabulary, which alone is asked for logits of states, reads no ids.
        ids = torch.zeros(state.shape[:2], dtype=torch.int64, device=state.device)
        logits: Tensor = self.head(LastState(state=state, token_ids=ids))
        return logits

    def encode(
        self,
        token_ids: Tensor,
        *,
        mask: Tensor | Mask | None = None,
        positions: Tensor | None = None,
        taps: Taps | None = None,
    ) -> Encoded:
        """Run the encoder alone: once for a text, however many tokens a decoder then gives.

        Args:
            token_ids, mask, positions: as in `forward`.
            taps: listeners at the encoder's points, or None.

        Returns:
            Its contextual embeddings (batch, N, d_model), with the mask, for `begin`.

        Raises:
            InputError: no encoder, or what `forward` refuses.
        """
        encoder = self.stack("encoder")
        self._check("token_ids", "encoder", token_ids, positions)
        # The mask as it is kept for cross-attention.
        padding = self._mask("", "encoder", Input(token_ids, mask, positions))
        inner = _of_stack(taps, self.prefixes["encoder"])
        return Encoded(encoder(token_ids, mask=padding, positions=positions, taps=inner), padding)

    def begin(self, encoded: Encoded | None = None, *, back: int = 0) -> DecoderState:
        """The state of a decoder that has read nothing, for `decode`.

        Args:
            encoded: from `encode`, where there is an encoder beside it.
            back: how many positions can be taken back at any time, by `DecoderState.cut`.

        Raises:
            InputError: a network that cannot be run token by token, with its name and the reason.

        Example:
            >>> import torch
            >>> from regard.models.families.gpt2 import Gpt2Config, build
            >>> config = Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
            >>> network, ids = build(config).eval(), torch.tensor([[3, 1, 4]])
            >>> with torch.no_grad():
            ...     state = network.begin()
            ...     pieces = [network.decode(ids[:, :2], state), network.decode(ids[:, 2:], state)]
            ...     whole = network(ids).logits
            >>> torch.allclose(torch.cat([piece.logits for piece in pieces], dim=1), whole, atol=1e-6)
            True
        """
        name = getattr(self.config, "model_type", type(self).__name__)
        if self.decoder is None:
            raise InputError(f"model must have a decoder to be run token by token; {name} has none here.")
        if not isinstance(encoded, type(None) if self.encoder is None else Encoded):
            wanted = "None: this model has no encoder" if self.encoder is None else "given, from encode(...)"
            raise InputError(f"encoded must be {wanted}; got {type(encoded).__name__}.")
        # Only the padding of the encoder's mask matters to single steps.
        state, mask = (None, None) if encoded is None else encoded
        real = padding_of(for_cross_attention(mask, None))
        if state is not None and real is not None:
            real = real.expand(state.shape[:2])
        try:
            layers = self.decoder.new_states(back=back)
        except InputError as error:
            raise InputError(f"model must be one that can be run token by token; in {name} {error}") from None
        return DecoderState(layers, encoded=state, encoded_mask=real)

    def decode(
        self,
        token_ids: Tensor,
        state: DecoderState,
        *,
        mask: Tensor | None = None,
        logits: bool = True,
        last: bool = False,
        taps: Taps | None = None,
    ) -> Output:
        """Run the decoder over the next tokens: one, some, or all at once give the same numbers.

        Positions are counted from the mask: a text is what it is alone, however much padding stands around
        it. (`forward` refuses padding in front where positions are vectors, unless it is given `positions`.)

        Args:
            token_ids: int64 (batch, new), what follows that which was read before.
            state: what was read before, from `begin`; it grows.
            mask: bool (batch, new), True = a token, False = padding; None where all are tokens.
            logits: whether the head's logits are worked out.
            last: whether of the last position only, (batch, 1, vocab_size).
            taps: listeners at the decoder's points, who see the new positions; or None.

        Returns:
            As `forward`, of the new positions.

        Raises:
            InputError: ids out of range, more positions than there are, shapes that do not fit, gradients.
        """
        # Checks first, then the pass over the new tokens, then the head.
        decoder = self.stack("decoder")
        rows = state.length + token_ids.shape[-1]
        check_ids("token_ids", token_ids, decoder.embeddings.tokens.num_embeddings, None)
        as_mask("mask", mask, token_ids)
        # Numbers of the new positions, or None where nothing is padding.
        count = state.add(token_ids, mask)
        limit = self.limit("decoder")
        # Padding takes up rows, but no positions: with some, the largest number counts, not the rows.
        if limit is not None and rows > limit and (count is None or int(count.max()) >= limit):
            raise InputError(
                f"token_ids must go on to at most {limit} positions, the model's limit; got {rows}."
            )
        hidden = decoder(
            token_ids,
            # The padding of all that was read, new tokens included.
            mask=None if state.real is None else Padding(state.real),
            positions=None if count is None else count + decoder.numbering.first,
            encoded=state.encoded,
            encoded_mask=None if state.encoded_mask is None else Padding(state.encoded_mask),
            states=state.layers,
            taps=_of_stack(taps, self.prefixes["decoder"]),
        )
        scores = None
        if logits and self.head is not None:
            # A label needs the whole text, which is not there yet.
            if self.head.of_text:
                raise InputError("logits must be False: this model's head labels whole texts.")
            # Logits are as wide as the vocabulary: only those asked for.
            read = hidden[:, -1:] if last else hidden
            scores = self.head(LastState(state=read, token_ids=token_ids[:, -read.shape[1] :]))
            if taps is not None:
                scores = taps.offer("logits", scores)
        return Output(
            last_hidden_state=hidden, logits=scores, encoder_state=state.encoded, decoder_state=hidden
        )

    def _run(
        self, first: Input, second: Input | None, token_types: Tensor | None, logits: bool, taps: Taps | None
    ) -> Output:
        # The stack that reads token_ids.
        entry = self.decoder if self.encoder is None else self.encoder
        assert entry is not None
        if token_types is not None:
            table = entry.embeddings.token_types
            if table is None:
                raise InputError("token_types must be None: this model has no token types.")
            check_beside("token_types", token_types, first.ids, table.num_embeddings, one_row=False)
        # Masks as objects, checked against the ids.
        padding = self._mask("", next(iter(self.prefixes)), first)
        if second is not None:
            decoder_mask = self._mask("decoder_", "decoder", second)
            # What the decoder may read of the encoder.
            encoded_mask = for_cross_attention(padding, decoder_mask)
        if logits and self.head is not None and self.head.of_text:
            _refuse_segments(padding)
        # The taps of a model with one stack have no prefix.
        outer = taps if taps is None or second is None else taps.at("encoder")
        # (batch, N, d_model)
        state = entry(first.ids, mask=padding, positions=first.positions, token_types=token_types, taps=outer)
        encoder_state = state if self.encoder is not None else None
        if second is not None:
            assert self.decoder is not None
            state = self.decoder(
                second.ids,
                mask=decoder_mask,
                positions=second.positions,
                encoded=state,
                encoded_mask=encoded_mask,
                taps=None if taps is None else taps.at("decoder"),
            )
        # On top of the stacks: pooler, then head.
        pooled = None
        if self.pooler is not None:
            if torch.is_grad_enabled():
                state = _Beside.apply(state, *self.pooler.parameters())  # type: ignore[no-untyped-call]
            pooled = self.pooler(state)
        scores = None
        if logits and self.head is not None:
            scores = self.head(LastState(state=state, pooled=pooled, token_ids=first.ids, mask=padding))
            if taps is not None:
                scores = taps.offer("logits", scores)
        return Output(
            last_hidden_state=state,
            logits=scores,
            pooled=pooled,
            encoder_state=encoder_state,
            decoder_state=None if self.decoder is None else state,
        )

    def _mask(self, side: str, kind: StackKind, read: Input) -> Mask | None:
        """The mask as an object; refused where it makes a text begin at another position than the first."""
        mask, stack = as_mask(f"{side}mask", read.mask, read.ids), self.stack(kind)
        # Only padding in front moves the first position.
        real = padding_of(mask)
        counted = read.positions is None and stack.embeddings.positions is not None
        if real is None or not counted or torch.compiler.is_compiling():  # a look would break the graph
            return mask
        shape = read.ids.shape
        if real.shape not in (shape, (1, shape[1])):
            return mask  # for the attention to refuse
        real = real.expand(shape)
        # The first token of each row.
        start = real.int().argmax(dim=1, keepdim=True)
        # Whether numbering gives it another number than a text's first.
        wrong = stack.numbering(read.ids).expand(shape).gather(1, start) != stack.numbering.first
        # Rows that begin in padding, and hold a token at all.
        if bool((wrong[:, 0] & ~real[:, 0] & real.any(dim=1)).any()):
            from_first = f" + {stack.numbering.first}" if stack.numbering.first else ""
            raise InputError(
                f"{side}positions must be given where {side}mask begins with padding: this model would count "
                f"it. Give ({side}mask.cumsum(1) - 1).clamp(min=0){from_first}, or pad behind."
            )
        return mask

    def _target_of(self, token_ids: Tensor) -> Tensor | None:
        return None if self.head is None else self.head.target_of(token_ids)

    def _check(self, name: str, kind: StackKind, token_ids: Tensor, positions: Tensor | None) -> None:
        stack = self.stack(kind)
        # Where positions are given they count, however long the row: several texts may share it.
        limit = self.limit(kind) if positions is None else None
        check_ids(name, token_ids, stack.embeddings.tokens.num_embeddings, limit)
        if positions is not None:
            check_beside(
                name.replace("token_ids", "positions"), positions, token_ids, _rows(stack), one_row=True
            )


class _Beside(torch.autograd.Function):
    """The same state, with parameters in its graph that get no gradient.

    DDP waits in each step for every parameter. Those of a pooler that the loss does not read are put into
    the graph here, so that it does not wait in vain.
    """

    @staticmethod
    def forward(state: Tensor, *parameters: Tensor) -> Tensor:
        return state.clone()  # FSDP warns of a view

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.others = len(inputs) - 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, *[None] * ctx.others


def _of_stack(taps: Taps | None, prefix: str) -> Taps | None:
    return taps if taps is None or not prefix else taps.at(prefix.removesuffix("."))


def _rows(stack: Stack) -> int | None:
    positions = stack.embeddings.positions
    if isinstance(positions, LearnedPositions):
        return len(positions.weight)
    if isinstance(positions, SinusoidalPositions | FourierPositions):
        return positions.max_seq_len
    return None


def _refuse_segments(mask: Mask | None) -> None:
    if mask is not None and any(isinstance(part, Segments) for part in mask.parts()):
        raise InputError(
            "mask must not hold Segments: this model's head gives a row one label, read off one of its texts "
            "or all of them together. Give the texts as rows of their own, or ask for logits=False."
        )


def _prefixes(encoder: Stack | None, decoder: Stack | None) -> dict[StackKind, str]:
    if decoder is None:
        return {"encoder": ""}
    if encoder is None:
        return {"decoder": ""}
    # Two stacks: names say which.
    return {"encoder": "encoder.", "decoder": "decoder."}
