"""A network that reads texts token by token, with what it read kept or read again; and its stored weights."""

import copy
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from regard.blocks import Linear
from regard.core.arguments import one_of
from regard.core.errors import InputError
from regard.core.extras import missing
from regard.decoding._rules import Rules
from regard.models import Loaded, Network, Transformer

Precision = Literal["float32", "bfloat16", "int8"]
"""What a decoder's weights are stored in; it sums in float32."""

_STORED: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
}

ModelT = TypeVar("ModelT", Network, Loaded)
ModuleT = TypeVar("ModuleT", bound=nn.Module)


def prepared(model: ModelT, precision: Precision = "float32") -> ModelT:
    """The model, made to write texts: its decoder and head read weights as fast as memory gives them.

    The time of a token is that of reading all weights once, so that half the bytes take half of it. All sums
    stay in float32. In bfloat16 weights and what they are multiplied with are rounded to 8 bits of
    significand, so that a processor with AVX512-BF16 multiplies twice as many at a time; in int8 only weights
    are, to codes of 8 bits with a scale for each output. Linear maps of other sizes than the kernels know
    stay as they are.

    Args:
        model: it stays as it is; in float32 the weights are shared with it.
        precision: what the weights of the decoder's linear maps are stored in.

    Raises:
        InputError: a network of another kind than regard's own, on a GPU, without a decoder, or on a
            processor without AVX2; one whose weights are rounded otherwise.
        MissingExtraError: llvmlite is not installed.

    Example:
        >>> from regard.decoding import prepared
        >>> from regard.decoding import Rules, greedy
        >>> from regard.models.families.gpt2 import Gpt2Config, build
        >>> network = build(Gpt2Config(vocab_size=13, d_model=64, num_layers=1, num_heads=2, d_ff=128)).eval()
        >>> small = prepared(network, "int8")
        >>> [len(written.token_ids) for written in greedy(small, [[3, 1]], rules=Rules(max_length=5))]
        [5]
    """
    # The checks: a model of ours, a processor that fits, the kernels installed.
    one_of("precision", precision, get_args(Precision))
    if isinstance(model, Loaded):
        return replace(model, network=prepared(model.network, precision))
    if not isinstance(model, Transformer) or model.decoder is None:
        raise InputError("model must have a decoder of regard's own, to be prepared for writing.")
    if not _on_fit_processor(model):
        raise InputError(
            f"precision must not be {precision!r} here: what reads the weights needs a processor with AVX2, "
            "and the model on it. Use the model as it is."
        )
    try:
        from regard.kernels import FewRowsLinear  # only here: it is not always installed, and takes its time
    except ImportError as error:
        raise missing(f"precision={precision!r} needs", error, "llvmlite") from error

    wanted = _STORED[precision]

    def exchanged(linear: nn.Module) -> nn.Module | None:
        if type(linear) not in (Linear, nn.Linear, FewRowsLinear):
            return None
        assert isinstance(linear, nn.Linear | FewRowsLinear)
        # What its weights are stored in now.
        now = linear.stored if isinstance(linear, FewRowsLinear) else linear.weight.dtype
        # Rounded twice, weights would be worse than the precision says.
        if isinstance(linear, FewRowsLinear) and now not in (torch.float32, wanted):
            raise InputError(
                f"precision must not be {precision!r} of a model whose weights are in "
                f"{str(now).removeprefix('torch.')}; prepare the model that this was made of."
            )
        # As wanted already, or of a size that the kernel does not take.
        done = isinstance(linear, FewRowsLinear) and now == wanted
        return linear if done or not FewRowsLinear.takes(linear) else FewRowsLinear(linear, wanted)

    # Rounding starts from float32; the caller's model stays as it is.
    if any(each.dtype != torch.float32 for each in model.parameters()):
        model = copy.deepcopy(model).float()
    parts = {"decoder": model.decoder, "head": model.head}
    # By the old module: tied parts stay tied. The encoder reads many rows at once, and is left alone.
    copies: dict[nn.Module, nn.Module] = {}
    return _with(model, {name: _exchanged(part, exchanged, copies) for name, part in parts.items() if part})


def at_best(network: Network) -> Network:
    """The network `prepared` in float32 where that can be, and is in it; else as it is."""
    # Whatever stands in the way, the network is used as it is.
    if not isinstance(network, Transformer) or network.decoder is None or not _on_fit_processor(network):
        return network
    if not all(each.dtype == torch.float32 for each in network.parameters()):
        return network
    if importlib.util.find_spec("llvmlite") is None:
        return network
    from regard.kernels import FewRowsLinear

    is_prepared = any(isinstance(each, FewRowsLinear) for each in network.modules())
    return network if is_prepared else prepared(network)


def _on_fit_processor(network: nn.Module) -> bool:
    # "AVX2" and "AVX512" both begin so.
    has_kernels = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    return has_kernels and all(each.device.type == "cpu" for each in network.parameters())


def _exchanged(
    module: nn.Module, exchanged: Callable[[nn.Module], nn.Module | None], made: dict[nn.Module, nn.Module]
) -> nn.Module:
    """A copy of a module with other linear maps, on the same tensors; the module itself where it has none."""
    # A module that stands in two places is made once.
    if module not in made:
        own = exchanged(module)
        if own is None:
            children = {name: _exchanged(each, exchanged, made) for name, each in module.named_children()}
            own = _with(module, children)
        made[module] = own
    return made[module]


def _with(module: ModuleT, children: Mapping[str, nn.Module]) -> ModuleT:
    """A module with these in the places of its own; itself where they are the same."""
    if all(getattr(module, name) is each for name, each in children.items()):
        return module
    # Shallow: parameters are shared with the old module.
    copied = copy.copy(module)
    copied._modules = {**module._modules, **children}
    return copied


AFTER_PROMPT = 256
"""New tokens after a prompt where nobody says how many."""

# A translation may have twice as many tokens as its source, and so many more.
_BEYOND_SOURCE = 50


class Reader:
    """A network that has read some texts, and gives the logits of the next token of each.

    Args:
        network: a decoder, or an encoder-decoder, with a language-model head.
        texts: token ids, a list a text: prompts of a decoder, sources of an encoder-decoder.
        rules: what it begins with, and how long texts may become.
        prefixes: for each text of an encoder-decoder what its decoder reads after its start.
        cached: whether keys and values are kept; otherwise all is read again for every token.
        back: how many tokens can be taken back at any time.

    Attributes:
        rules: those given, as far as they are of tokens that the network has; a first token that must come
            does so only where there are no prefixes.
        limits: for each text how many new tokens there may be.
        read: int64 (rows, N), what the decoder begins with: its start, and the prompt; -1 in front of shorter
            ones.

    Raises:
        InputError: no texts, an empty one, one without room for a token, or a network that cannot write.
    """

    def __init__(
        self,
        network: Network,
        texts: Sequence[Sequence[int]],
        rules: Rules,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        cached: bool = True,
        back: int = 0,
    ) -> None:
        # From here: the arguments, what each row begins with, the limits, the tensors.
        check_network(network, cached=cached)
        self._network = network = at_best(network) if cached else network
        # An encoder-decoder: texts are sources, and the decoder begins by itself.
        self._two = len(network.prefixes) == 2
        self.rules = rules.within(rows_of(network))
        rows = [list(text) for text in texts]
        if not rows:
            raise InputError("texts must hold at least one text; got none.")
        if self._two and not rules.start_ids:
            raise InputError("start_ids must be given: this model does not say what its decoder reads first.")
        start = list(rules.start_ids)
        # What the decoder reads first, of each row.
        begun = [start if self._two else start + row for row in rows]
        if prefixes is not None:
            if not self._two or len(prefixes) != len(rows):
                wanted = f"one for each of {len(rows)} texts" if self._two else "None without an encoder"
                raise InputError(f"prefixes must be {wanted}; got {len(prefixes)}.")
            begun = [[*start, *prefix] for prefix in prefixes]
            # A prefix takes the place of what would be forced.
            self.rules = replace(self.rules, first_id=None)
        # Nothing to read, nothing to go on from.
        for place, row in enumerate(rows if self._two else begun):
            if not row:
                raise InputError(f"texts[{place}] must hold at least one token; got none.")
        longest = network.limit("encoder") if self._two else None
        for place, row in enumerate(rows):
            if longest is not None and len(row) > longest:
                raise InputError(
                    f"texts[{place}] must have at most {longest} tokens, the model's limit; got {len(row)}."
                )
        # New tokens at most, of each text.
        self.limits = [
            limit_of(network, place, len(row), len(read), rules, two=self._two)
            for place, (row, read) in enumerate(zip(rows, begun, strict=True))
        ]
        device = next(network.parameters()).device
        # Padding in front: each row then goes on from its last position.
        # (rows, N) of what is to be read next, and where it is not padding.
        self._next, self._real = _side_by_side(begun, device, left=True)
        self.read = self._next if self._real is None else self._next.where(self._real, -1)
        self._source: Tensor | None = None
        self._source_real: Tensor | None = None
        if self._two:
            # Behind, since an encoder counts positions from the first of a row.
            self._source, self._source_real = _side_by_side(rows, device, left=False)
        # With a state each pass reads new tokens only; without, all of them again.
        self._state = None
        if cached:
            assert isinstance(network, Transformer), "checked"
            encoded = None
            if self._source is not None:
                # The source is read once.
                encoded = network.encode(self._source, mask=self._source_real)
            self._state = network.begin(encoded, back=back)

    def logits(self) -> Tensor:
        """(rows, vocab_size), of the token after all that was added: in float32 or wider."""
        logits = self._read_again() if self._state is None else self._read_on()
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def add(self, ids: Tensor) -> None:
        """Hand in the next token of every row, int64 (rows,)."""
        if self._state is not None:
            # The state knows of padding that was read, and a token is none.
            self._next, self._real = ids[:, None], None
            return
        # Without a state everything is kept, to be read again.
        self._next = torch.cat((self._next, ids[:, None]), dim=1)
        if self._real is not None:
            self._real = torch.cat((self._real, self._real.new_ones(len(ids), 1)), dim=1)

    def pick(self, rows: Tensor, *, sources: Tensor | None = None) -> None:
        """As `DecoderState.pick`, before `add`."""
        if self._state is not None:
            self._state.pick(rows, sources=sources)
            return
        self._next = self._next[rows]
        self._real = None if self._real is None else self._real[rows]
        if self._source is not None:
            self._source = self._source[rows]
            self._source_real = None if self._source_real is None else self._source_real[rows]

    def logits_of(self, ids: Sequence[int], kept: int, count: int) -> Tensor:
        """The logits after the last `count` ids of one text, (count, vocab_size).

        What was read stays up to `kept` tokens, the beginning included: behind them were wrong guesses. Then
        the ids are read.
        """
        assert isinstance(self._network, Transformer)
        assert self._state is not None
        # Guesses that were wrong are forgotten.
        if kept < self._state.length:
            self._state.cut(kept)
        row = torch.tensor([list(ids)], device=self.read.device)
        # Only the last where only that is asked for.
        logits = self._network.decode(row, self._state, last=count == 1).logits
        assert logits is not None, "checked"
        return logits[0, -count:].to(torch.promote_types(logits.dtype, torch.float32))

    def _read_on(self) -> Tensor:
        assert isinstance(self._network, Transformer)
        assert self._state is not None
        # Nobody asks for the logits of a prompt's other positions, each as long as the vocabulary.
        logits = self._network.decode(self._next, self._state, mask=self._real, last=True).logits
        assert logits is not None, "checked"
        return logits[:, -1]

    def _read_again(self) -> Tensor:
        network = self._network
        # The arguments of an encoder-decoder have two sets of names.
        side = "decoder_" if self._two else ""
        read = {"token_ids": self._source, "mask": self._source_real} if self._two else {}
        read[f"{side}token_ids"] = self._next
        if self._real is not None:
            # Padding stands in front: a text's own tokens are counted, so that it is read as if alone.
            stack = network.stack("decoder")
            first = 0 if stack is None else stack.numbering.first
            positions = (self._real.cumsum(dim=1) - 1).clamp_(min=0) + first
            read |= {f"{side}mask": self._real, f"{side}positions": positions}
        logits: Tensor = network(**read).logits[:, -1]
        return logits


def check_network(network: Network, *, cached: bool) -> None:
    """Raise InputError unless a network writes texts."""
    if "decoder" not in network.prefixes or not network.has_vocabulary_head:
        name = getattr(network.config, "model_type", type(network).__name__)
        # The more basic lack is named.
        lacks = "no decoder" if "decoder" not in network.prefixes else "no such head"
        fills = network.has_vocabulary_head and "decoder" not in network.prefixes
        raise InputError(
            f"model must have a decoder and a language-model head, to write texts; this {name} has {lacks}"
            + (": it fills gaps, which `regard fill` and model.fill do." if fills else ".")
        )
    if cached and not isinstance(network, Transformer):
        raise InputError(
            "cached must be False: what is kept of a text needs regard's own modules, and the model is "
            f"{network.foreign or type(network).__name__}."
        )


def rows_of(network: Network) -> int:
    """How many tokens a network can write."""
    stack = network.stack("decoder")
    # The table's rows, which may be more than the vocabulary.
    return network.config.vocab_size if stack is None else stack.embeddings.tokens.num_embeddings


def limit_of(network: Network, place: int, given: int, read: int, rules: Rules, *, two: bool) -> int:
    """How many new tokens a text may get: each must be read, but for the last."""
    limit = network.limit("decoder")
    # The last token is written but never read: hence one more.
    room = None if limit is None else limit - read + 1
    if room is not None and room < 1:
        raise InputError(
            f"texts[{place}] must leave room for a token: it has {read}, and the model's limit is {limit}."
        )
    most = rules.max_length
    # Nobody says: twice the source and some, or a fixed number after a prompt.
    if most is None:
        most = 2 * given + _BEYOND_SOURCE if two else AFTER_PROMPT
        return most if room is None else min(most, room)
    if room is not None and most > room:
        raise InputError(
            f"max_length must be at most {room} for texts[{place}], whose decoder begins with {read} tokens "
            f"of the model's {limit}; got {most}."
        )
    return most


def _side_by_side(
    rows: Sequence[Sequence[int]], device: torch.device, *, left: bool
) -> tuple[Tensor, Tensor | None]:
    """Texts as one tensor, and where they stand in it; None where there is no padding."""
    longest = max(map(len, rows))
    # Any id will do for padding, since it is masked.
    padded = [
        [0] * (longest - len(row)) + [*row] if left else [*row] + [0] * (longest - len(row)) for row in rows
    ]
    ids = torch.tensor(padded, device=device)
    # All of one length.
    if min(map(len, rows)) == longest:
        return ids, None
    at = torch.arange(longest, device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)[:, None]
    # (rows, N) bool
    return ids, at >= longest - lengths if left else at < lengths
