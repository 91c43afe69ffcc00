"""How differently two traces attend, head by head: the Jensen-Shannon divergence of their rows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.core import AttentionInputs, attention_weights
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.wording import excerpt
from regard.models import Kind, removed_heads
from regard.text import Token
from regard.tracing.record import Trace, check_trace

if TYPE_CHECKING:
    from rich.console import RenderableType

# Columns of heads that fit 80 characters beside the layer.
_HEADS_A_TABLE = 12
_MAX_TEXT = 200


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Divergence(Displayable):
    """How differently two traces attend, in bits: 0 for the same rows, 1 for rows that share no key.

    Args:
        shared: what they have in common: the text, or the model's name; both names where nothing is.
        names: what the two are: two texts, or two models.
        kind: "encoder", "decoder" or "cross".
        layers: the numbers of the layers, in the order of the first axes below.
        heads: float64 (layers, heads), the mean over the rows; NaN where a layer lacks the head, or one of
            the two does: heads that were pruned keep their numbers.
        rows: float64 (layers, heads, rows), row by row.
        queries: for each row the query's place in the one and in the other.
        keys: the places of the keys that have partners.
        coverage: the share of tokens with a partner, where it is smallest: 1 where the tokens are the same.
        compared: float64 (layers, heads), the mean share of attention that lies on keys with partners; the
            rest is compared as one.
        most: float64 (layers, heads), the largest difference of two weights between partners.
    """

    shared: str
    names: tuple[str, str]
    kind: Kind
    layers: tuple[int, ...]
    heads: Tensor
    rows: Tensor
    queries: tuple[tuple[int, int], ...]
    keys: tuple[tuple[int, int], ...]
    coverage: float
    compared: Tensor
    most: Tensor

    def __repr__(self) -> str:
        layers, heads = self.heads.shape
        mean = float(self.heads.nanmean())
        return (
            f"Divergence({self.kind}, {layers} layers x {heads} heads, {len(self.queries)} rows, "
            f"mean {mean:.3f} bits, coverage {self.coverage:.0%})"
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a head that both have: layer, head, bits, and the share of attention that was compared."""
        return [
            {"layer": layer, "head": head, "bits": float(bits), "compared": float(self.compared[place, head])}
            for place, layer in enumerate(self.layers)
            for head, bits in enumerate(self.heads[place].tolist())
            if not math.isnan(bits)
        ]

    def to_json(self) -> dict[str, Any]:
        """What is shown, by name; `bits` as nested lists, NaN as None."""
        return {
            "shared": self.shared,
            "names": list(self.names),
            "kind": self.kind,
            "layers": list(self.layers),
            "bits": [[None if math.isnan(bits) else bits for bits in row] for row in self.heads.tolist()],
            "rows": len(self.queries),
            "coverage": self.coverage,
        }

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        yield Text(f"{excerpt(self.shared, _MAX_TEXT)}: how differently each head attends", style="dim")
        for number, name in enumerate(self.names, start=1):
            yield Text.assemble((f"{number} ", "bold"), excerpt(name, _MAX_TEXT))
        caption = (
            f"Jensen-Shannon divergence in bits, {self.kind} attention, {len(self.queries):,} rows, "
            f"{self.coverage:.0%} of tokens"
        )
        yield Text(caption, style="dim")
        heads = self.heads.shape[1]
        for start in range(0, heads, _HEADS_A_TABLE):
            shown = range(start, min(heads, start + _HEADS_A_TABLE))
            cells = [
                [str(layer), *("-" if math.isnan(row[head]) else f"{row[head]:.3f}" for head in shown)]
                for layer, row in zip(self.layers, self.heads.tolist(), strict=True)
            ]
            yield ""
            yield plain_table(["layer", *map(str, shown)], cells, gap=1)
        # The head that differs most; NaN counts as least.
        place, head = divmod(int(self.heads.nan_to_num(-1.0).argmax()), heads)
        most = f"most in layer {self.layers[place]}, head {head}: {self.heads[place, head]:.3f}"
        yield ""
        yield Text(f"mean {float(self.heads.nanmean()):.3f}, {most}")


def divergence(one: Trace, other: Trace, kind: Kind | None = None) -> Divergence:
    """The Jensen-Shannon divergence of each head's rows between two traces.

    With p and q the two rows of a query, and m = (p + q) / 2,

        JS(p, q) = 1/2 sum p log2(p / m) + 1/2 sum q log2(q / m)                  0 <= JS <= 1

    Two checkpoints on the same tokens are compared row by row and key by key. Of two texts the tokens that
    are the same in both, in order (a longest match, as in a diff), are partners: rows of partners are
    compared, and keys without a partner are put together, as one key, on either side. That can only lower the
    divergence (no function of an outcome tells two distributions further apart), so what is reported is at
    least there; `compared` says how much of the attention lies on partners. A sink is a key of its own. A
    block of rows at a time, in O(N) memory.

    Args:
        one, other: two traces of models with as many layers and heads: of two checkpoints, or of two texts.
        kind: "encoder", "decoder" or "cross"; needed only where there are several.

    Returns:
        The divergences, in bits.

    Raises:
        InputError: a kind that is not said, models whose layers or heads differ in number, or texts that have
            no token in common but special ones.

    Example:
        >>> from regard.tracing import divergence
        >>> import regard
        >>> model = regard.load()
        >>> river, money = model.trace("He sat by the river bank."), model.trace("He sat by the money bank.")
        >>> divergence(river, money).heads.shape, divergence(river, river).heads.max().item()
        (torch.Size([6, 12]), 0.0)

    Source: Lin 1991, "Divergence measures based on the Shannon entropy", section IV; between heads:
        Clark et al. 2019, arXiv 1906.04341, section 6.
    """
    kind = check_trace("one", one).kind(kind)
    if kind not in check_trace("other", other).kinds:
        raise InputError(
            f"both traces must have one kind of attention; {one.model} has {kind} attention, {other.model} "
            f"{' and '.join(other.kinds)}."
        )
    layers = _same_layers(one, other, kind)
    queries, keys, coverage = partners_of(one, other, kind)
    measured = []
    for layer in layers:
        numbers = _shared_heads(one, other, kind, layer)
        ours, theirs = (trace.attention_of(layer, kind).inputs for trace in (one, other))
        # A bias may be learned.
        with torch.no_grad():
            measured.append(_of_layer(ours, theirs, queries, keys, numbers))
    heads = max(each.shape[1] for each in measured)
    # Rows of NaN for the heads that a pruned layer lacks.
    filled = [nn.functional.pad(each, (0, 0, 0, heads - each.shape[1]), value=torch.nan) for each in measured]
    rows, compared, most = torch.stack(filled, dim=1)
    texts = told_texts(one), told_texts(other)
    models = one.model, other.model
    return Divergence(
        # What both share is the title, what differs are the names.
        shared=" and ".join(dict.fromkeys(models)) if texts[0] != texts[1] else texts[0],
        names=texts if texts[0] != texts[1] else models,
        kind=kind,
        layers=tuple(layers),
        heads=rows.mean(dim=2),
        rows=rows,
        queries=tuple(queries),
        keys=tuple(keys),
        coverage=coverage,
        compared=compared.mean(dim=2),
        most=most.amax(dim=2),
    )


def told_texts(trace: Trace) -> str:
    """The texts of a trace in one line; of ids without a text, the tokens."""
    stacks = [each for each in (trace.encoder, trace.decoder) if each is not None]
    texts = [text for each in stacks for text in each.encoding.texts if text]
    return " | ".join(texts) or " ".join(trace.source.shown)


def _shared_heads(one: Trace, other: Trace, kind: Kind, layer: int) -> list[tuple[int, int, int]]:
    """The heads of a layer that both have: (number, place in the one, place in the other).

    Heads keep their numbers where others were pruned.
    """
    (ours, before), (theirs, after) = (_numbers(trace, kind, layer) for trace in (one, other))
    if before != after:
        raise InputError(
            f"both traces must have as many heads; layer {layer} has {before} in the one and {after} in the "
            "other."
        )
    # By number, since places move where heads were removed.
    return [(head, ours.index(head), theirs.index(head)) for head in ours if head in theirs]


def _numbers(trace: Trace, kind: Kind, layer: int) -> tuple[list[int], int]:
    """The numbers of the heads that are there, and how many there were before pruning."""
    gone: Sequence[int] = ()
    if trace.loaded is not None:
        gone = removed_heads(trace.loaded.network).get(kind, {}).get(layer, ())
    # As many as were built: those that are there, and those that are gone.
    built = trace.attention_of(layer, kind).inputs.num_heads + len(gone)
    return [head for head in range(built) if head not in gone], built


Pairs = list[tuple[int, int]]


def _same_layers(one: Trace, other: Trace, kind: Kind) -> Sequence[int]:
    layers, others = list(one.layers_of(kind)), list(other.layers_of(kind))
    if layers != others:
        raise InputError(
            f"both traces must have the same layers of kind {kind!r}; the one has {len(layers)} and the "
            f"other {len(others)}."
        )
    # Where no attention was kept, reading the first layer says so.
    return layers or [0]


def partners_of(one: Trace, other: Trace, kind: Kind) -> tuple[Pairs, Pairs, float]:
    """The queries and the keys that are the same in both, and the share of tokens with a partner."""
    sides = [
        (mine.encoding.tokens, theirs.encoding.tokens)
        for mine, theirs in zip(one.sides(kind), other.sides(kind), strict=True)
    ]
    queries = _matched(*sides[0])
    keys = queries if kind != "cross" else _matched(*sides[1])
    for name, pairs, (tokens, _) in zip(("queries", "keys"), (queries, keys), sides, strict=True):
        # Special tokens alone tell nothing about two texts.
        telling = [place for place, _ in pairs if not tokens[place].special]
        # Texts may consist of special tokens alone; then those are what is compared.
        if not pairs or (not telling and any(not token.special for token in tokens)):
            raise InputError(
                f"the two texts must have tokens in common, besides special ones; of the {name} they have "
                "none. Compare texts that share words, or one text in two models."
            )
    coverage = min(
        len(pairs) / max(len(mine), len(theirs))
        for pairs, (mine, theirs) in zip((queries, keys), sides, strict=True)
    )
    return queries, keys, coverage


def _matched(one: Sequence[Token], other: Sequence[Token]) -> Pairs:
    """The places of tokens that are the same in both, in order."""
    ours, theirs = ([token.text for token in tokens] for tokens in (one, other))
    if ours == theirs:
        return [(place, place) for place in range(len(ours))]
    # Longest common blocks; autojunk would leave out frequent tokens of long texts.
    blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    return [(a + step, b + step) for a, b, size in blocks for step in range(size)]


# Weights of one trace that are worked out at once.
_ENTRIES = 2**20


def _of_layer(
    one: AttentionInputs,
    other: AttentionInputs,
    queries: Pairs,
    keys: Pairs,
    numbers: list[tuple[int, int, int]],
) -> Tensor:
    """(3, heads, rows): the divergences; the attention on keys with partners, the mean of both sides; and the
    largest difference of two weights between partners. NaN for the heads that are not among the numbers.
    """
    heads = max(one.num_heads, other.num_heads)
    named, *places = (torch.tensor(each) for each in zip(*numbers, strict=True))
    # NaN for heads that only one of them has.
    measured = torch.full((3, int(named[-1]) + 1, len(queries)), torch.nan, dtype=torch.float64)
    size = max(1, _ENTRIES // (heads * max(one.num_columns, other.num_columns)))
    for start in range(0, len(queries), size):
        block = queries[start : start + size]
        at = slice(start, start + len(block))
        cells = [
            _cells(inputs, [pair[side] for pair in block], [pair[side] for pair in keys])[places[side]]
            for side, inputs in enumerate((one, other))
        ]
        # Without the two sums at the end.
        partners = [each[..., : len(keys)] for each in cells]
        measured[0, named, at] = _jensen_shannon(*cells)
        # The mean of both sides.
        measured[1, named, at] = sum(each.sum(dim=2) for each in partners) / 2
        measured[2, named, at] = (partners[1] - partners[0]).abs().amax(dim=2)
    return measured


def _cells(inputs: AttentionInputs, rows: list[int], keys: list[int]) -> Tensor:
    """(heads, rows, keys + 2): the weights of these keys, of all others together, and of the sink."""
    device = inputs.q.device
    weights = attention_weights(inputs, torch.tensor(rows, device=device))[0].double().cpu()
    # Columns: these keys, all others, and the sink.
    of_keys = weights[..., : inputs.k_len]
    picked = of_keys[..., torch.tensor(keys)]
    without = torch.ones(inputs.k_len, dtype=torch.bool)
    without[torch.tensor(keys)] = False
    rest = of_keys[..., without].sum(dim=2, keepdim=True)
    sink = weights[..., inputs.k_len :].sum(dim=2, keepdim=True)
    return torch.cat([picked, rest, sink], dim=2)


def _jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """In bits, over the last axis; an empty row, all zeros, diverges by 1/2 from one that is not."""
    middle = (p + q) / 2
    # xlogy(0, ...) is 0; where the middle is 0 so are both, and 0 / 0 may not be asked for.
    safe = torch.where(middle > 0, middle, 1.0)
    terms = torch.xlogy(p, p / safe) + torch.xlogy(q, q / safe)
    # From nats to bits; rounding may step over the ends.
    return (terms.sum(dim=-1) / 2 / torch.log(torch.tensor(2.0, dtype=p.dtype))).clamp(0.0, 1.0)
