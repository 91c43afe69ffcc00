"""Every head's statistics over a text: entropy, distances, and the weight on tokens of some kind."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.core import AttentionInputs, Groups, RowStatistics, row_statistics
from regard.core.arguments import one_of
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.models import Kind
from regard.text import Encoding
from regard.tracing.record import Trace, is_punctuation, is_spelled

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Statistics(Displayable):
    """Statistics of the attention of one kind: float32 on the CPU, of every layer and head for every query.

    With p_ij the weight of query i on key j, each is (layers, heads, queries) unless it says otherwise. What
    does not exist for the text is None; where it does not exist for a query, or a layer has fewer heads than
    the others, stands NaN (-1 in a tensor of keys). So a zero always means that the head looks elsewhere.

    Attributes:
        kind: "encoder", "decoder" or "cross".
        layers: the numbers of the layers, in the order of the first axis.
        tokens, key_tokens: the tokens of the queries and of the keys, as people read them.
        entropy: -sum_j p_ij log p_ij, in nats, over the sink too (Clark et al. 2019, arXiv 1906.04341,
            section 3.3).
        largest: max_j p_ij, over the keys.
        largest_at: int64, its key, the first of equal ones.
        distance: D_i = sum_j p_ij |i - j| / sum_j p_ij, in tokens, over the keys (the attention distance of
            Vig and Belinkov 2019, arXiv 1906.04284, of one query). None of cross-attention, whose queries and
            keys are two sequences.
        spread: sqrt(sum_j p_ij (|i - j| - D_i)^2 / sum_j p_ij), in tokens, to about 0.02. None of
            cross-attention.
        to_self, to_previous, to_next: p_ii, p_i,i-1 and p_i,i+1 (arXiv 1906.04341, section 3.1); NaN at the
            text's ends. None of cross-attention.
        to_first: p_i0.
        to_special: the sum over special tokens, "[CLS]", "[SEP]", "<s>" (arXiv 1906.04341, section 3.2). None
            where the keys have none.
        to_punctuation: the sum over punctuation, not that within a word; of ids without a text, over pieces
            that show nothing else. None where the keys have none.
        to_other_sentence: of a pair of texts, the sum over the tokens of the one in which the query is not;
            NaN for special tokens, which are in neither. None where there is no pair.
        to_same_word: the sum over the other pieces of the query's word; NaN where it has none. None where no
            word has several, where there are no words, and of cross-attention.
        to_repeated_word: the sum over the pieces of the other places of the query's word in the text, of any
            case; NaN where there is none. None where no word comes twice (punctuation is no word), where
            there are no words, and of cross-attention.
        to_sink: the weight of the sink. None where the attention has none.
        received: (layers, heads, keys), sum_i p_ij, what each key gets from all queries together.
        top_weights: (layers, heads, queries, k), the largest weights in falling order; None without `top_k`.
        top_keys: int64, their keys; -1, with a weight of 0, where the query sees fewer.
    """

    kind: "Kind"
    layers: tuple[int, ...]
    tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    entropy: Tensor
    largest: Tensor
    largest_at: Tensor
    distance: Tensor | None
    spread: Tensor | None
    to_self: Tensor | None
    to_previous: Tensor | None
    to_next: Tensor | None
    to_first: Tensor
    to_special: Tensor | None
    to_punctuation: Tensor | None
    to_other_sentence: Tensor | None
    to_same_word: Tensor | None
    to_repeated_word: Tensor | None
    to_sink: Tensor | None
    received: Tensor
    top_weights: Tensor | None
    top_keys: Tensor | None

    @property
    def names(self) -> tuple[str, ...]:
        """The statistics that there are."""
        return tuple(name for name in _MEASURED if getattr(self, name) is not None)

    def mean(self, name: str) -> Tensor:
        """A statistic's mean over the queries that it exists for; of `received`, over the keys.

        Args:
            name: one of `names` that is a quantity: not `largest_at`, `top_keys` or `top_weights`.

        Returns:
            float32 (layers, heads); NaN where it exists for no query, or there is no such head.

        Raises:
            InputError: another name.
        """
        # Places and lists of the largest weights have no mean.
        quantities = [each for each in self.names if each not in _NO_QUANTITIES]
        values: Tensor = getattr(self, one_of("name", name, quantities))
        # NaN where a query has no such key (no previous token, no repeated word).
        return values.nanmean(dim=2)

    def __repr__(self) -> str:
        layers, heads, queries = self.entropy.shape
        many = "" if layers == 1 else "s"
        return (
            f"Statistics({self.kind}, {layers} layer{many} x {heads} heads x {queries} queries: "
            f"{', '.join(self.names)})"
        )

    @property
    def axes(self) -> tuple[str, ...]:
        return ("layer", "head")

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a head: layer, head, and the mean of each statistic over the queries that it exists for."""
        means = {name: self.mean(name).tolist() for name in self.names if name not in _NO_QUANTITIES}
        heads = self.entropy.shape[1]
        return [
            {"layer": layer, "head": head, **{name: of[place][head] for name, of in means.items()}}
            for place, layer in enumerate(self.layers)
            for head in range(heads)
            # A layer with fewer heads has NaN in the table.
            if not math.isnan(means["entropy"][place][head])
        ]

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        rows = self.to_rows()
        shown = [name for name in _IN_TABLE if name in rows[0]] if rows else []
        where = f"{self.kind} attention, {len(self.tokens)} queries"
        yield Text(f"Means over the queries: {where}; entropy in nats", style="dim")
        yield ""
        cells = (
            [
                f"{row['layer']}.{row['head']}",
                *("-" if math.isnan(row[name]) else f"{row[name]:.3f}" for name in shown),
            ]
            for row in rows
        )
        yield plain_table(["head", *(name.removeprefix("to_") for name in shown)], cells)


_MEASURED = tuple(
    field.name for field in fields(Statistics) if field.name not in ("kind", "layers", "tokens", "key_tokens")
)
_IN_TABLE = (
    "entropy",
    "distance",
    "to_self",
    "to_previous",
    "to_next",
    "to_first",
    "to_special",
    "to_punctuation",
)
"""What fits 80 columns; `to_rows` and `to_pandas` have all of them."""
_NO_QUANTITIES = ("largest_at", "top_keys", "top_weights")


def statistics(
    self: Trace,
    kind: "Kind | None" = None,
    *,
    layers: int | Sequence[int] | None = None,
    top_k: int = 0,
) -> Statistics:
    """Statistics of all heads, in one pass over each layer's queries and keys and in O(N) memory.

    Args:
        kind: "encoder", "decoder" or "cross"; needed only where there are several.
        layers: which attention layers, a number or some, in this order; by default all that the trace has.
        top_k: how many of the largest weights of each query are given, with their keys.

    Returns:
        See `Statistics`: what each is, its formula and its source.

    Raises:
        InputError: a layer that is not there, a kind that is not said, or a top_k that is not from 0 to the
            number of keys.

    Example:
        >>> import regard
        >>> statistics = regard.load().trace("time flies like an arrow").statistics()
        >>> statistics.entropy.shape
        torch.Size([6, 12, 7])
        >>> statistics.mean("to_special")[0].argmax().item()  # the head of layer 0 that looks there most
        8
        >>> statistics.to_other_sentence is None  # there is no pair
        True
    """
    kind = self.kind(kind)
    numbers = _chosen(self, layers, kind)
    of_queries, of_keys = self.sides(kind)
    # The tokens of queries and keys, as questions to ask of each layer.
    sets = _TokenSets(of_queries.encoding, of_keys.encoding, cross=kind == "cross")
    # One pass over each layer, all statistics at once.
    answers = [sets.ask(self.attention_of(each, kind).inputs, top_k) for each in numbers]
    absent: dict[str, Any] = dict.fromkeys(_MEASURED)
    measured = {
        name: _stacked([each.get(name) for each in answers])
        # What no layer has stays None.
        for name in _MEASURED
        if any(name in each for each in answers)
    }
    return Statistics(
        kind=kind,
        layers=numbers,
        tokens=of_queries.shown,
        key_tokens=of_keys.shown,
        **absent | measured,
    )


def _chosen(trace: Trace, layers: int | Sequence[int] | None, kind: "Kind") -> tuple[int, ...]:
    if layers is None:
        # Where no attention was kept, reading the first layer says so.
        return tuple(trace.layers_of(kind)) or (trace.layer_index(0, kind),)
    asked = list(layers) if isinstance(layers, Sequence) else [layers]
    if not asked:
        raise InputError("layers must be at least one layer, or None for all; got none.")
    return tuple(trace.layer_index(each, kind) for each in asked)


def _stacked(layers: Sequence[Tensor | None]) -> Tensor:
    """(layers, heads, ..); NaN, or -1 for keys, where a layer has fewer heads, or does not have it at all."""
    # Layers without attention sinks have no such statistic.
    there = [each for each in layers if each is not None]
    heads = max(len(each) for each in there)
    # -1 where a head is missing among keys, NaN among numbers.
    stacked = there[0].new_full(
        (len(layers), heads, *there[0].shape[1:]), torch.nan if there[0].is_floating_point() else -1
    )
    for row, each in zip(stacked, layers, strict=True):
        if each is not None:
            row[: len(each)] = each
    return stacked


class _TokenSets:
    """The tokens that a head may look at, as questions to `row_statistics`, and its answers by name.

    What the text does not have is not asked for, and where a single query does not have it, its answer is
    NaN. If `cross`, the two sequences differ, and no query is at a key's position.
    """

    def __init__(self, of_queries: Encoding, of_keys: Encoding, *, cross: bool) -> None:
        self._cross = cross
        self._queries, self._keys = len(of_queries.tokens), len(of_keys.tokens)
        # Sums over keys that are the same for all queries: name, and whether a key is among them.
        self._columns: dict[str, Tensor] = {}
        # Groups of keys that differ from query to query, as the words of a text.
        self._groups: dict[str, Groups] = {}
        self._alone: dict[str, Tensor] = {}
        special = [token.special for token in of_keys.tokens]
        if any(special):
            # Sums over columns: the weight on keys of some kind.
            self._columns["to_special"] = torch.tensor(special)
        marks = [is_punctuation(token, of_keys.words) for token in of_keys.tokens]
        if any(marks):
            self._columns["to_punctuation"] = torch.tensor(marks)
        self._sentence: Tensor | None = None
        if not cross:
            self._add_sentences(of_keys)
            self._add_words(of_keys)

    def _add_sentences(self, encoding: Encoding) -> None:
        # -1 for tokens of the template, which belong to no text.
        sentence = torch.tensor([-1 if each.sequence is None else each.sequence for each in encoding.tokens])
        # Only where there are two texts.
        if {0, 1} <= set(sentence.tolist()):
            self._sentence = sentence
            self._columns |= {f"sentence {number}": sentence == number for number in (0, 1)}

    def _add_words(self, encoding: Encoding) -> None:
        word = torch.tensor([-1 if token.word is None else token.word for token in encoding.tokens])
        self._add_group("to_same_word", Groups(word))
        # Punctuation repeats without meaning anything.
        spelled = [each.text.casefold() if is_spelled(each.text) else None for each in encoding.words]
        # Words by their spelling, numbered in order of appearance.
        numbers = {text: number for number, text in enumerate(dict.fromkeys(spelled))}
        text = [-1 if spelled[at] is None else numbers[spelled[at]] for at in word.tolist() if at >= 0]
        # A token of the same spelling, but of another word: what induction heads look at.
        same = torch.full_like(word, -1)
        same[word >= 0] = torch.tensor(text, dtype=torch.int64)
        self._add_group("to_repeated_word", Groups(same, word))

    def _add_group(self, name: str, groups: Groups) -> None:
        # How many other tokens are in each token's group.
        others = groups.others()
        if bool(others.any()):
            self._groups[name], self._alone[name] = groups, others == 0

    def ask(self, inputs: AttentionInputs, top_k: int) -> dict[str, Tensor]:
        """One layer's statistics by name: on the CPU, (heads, queries), float32 or int64."""
        device = inputs.q.device
        at = torch.arange(self._queries, device=device)
        # Places of single keys for each query: the first token, itself, the previous and the next one.
        places = torch.zeros(self._queries, 1, dtype=torch.int64, device=device)
        if not self._cross:
            places = torch.cat((places, torch.stack((at, at - 1, at + 1), dim=1)), dim=1)
            # Nothing follows the last token.
            places[places == self._keys] = -1
        # All columns together as one matrix (keys, columns), so that they are one product.
        values = torch.stack(list(self._columns.values()), dim=1) if self._columns else None
        of_rows = row_statistics(
            inputs,
            values=None if values is None else values.float().to(device),
            places=places,
            positions=None if self._cross else at,
            groups=list(self._groups.values()),
            top_k=top_k,
        )
        return {name: _delivered(tensor) for name, tensor in self._by_name(of_rows).items()}

    def _by_name(self, found: RowStatistics) -> dict[str, Tensor]:
        named = {
            "entropy": found.entropy,
            "largest": found.largest,
            "largest_at": found.largest_at,
            "distance": found.distance,
            "spread": found.spread,
            "to_sink": found.sink,
            "received": found.received,
            "top_weights": found.top_weights,
            "top_keys": found.top_keys,
        }
        answers = {name: tensor for name, tensor in named.items() if tensor is not None}
        assert found.at_places is not None, "there is always a first token"
        places = ("to_first",) if self._cross else ("to_first", "to_self", "to_previous", "to_next")
        answers |= dict(zip(places, found.at_places.unbind(dim=3), strict=True))
        if not self._cross:
            # Without a previous or a next token: no number rather than 0.
            answers["to_previous"][..., 0] = torch.nan
            answers["to_next"][..., -1] = torch.nan
        if found.mass is not None:
            answers |= dict(zip(self._columns, found.mass.unbind(dim=3), strict=True))
        if self._sentence is not None:
            # The other text's sum, which depends on the query's own text.
            first, second = (answers.pop(f"sentence {number}") for number in (0, 1))
            sentence = self._sentence.to(first.device)
            other = torch.where(sentence == 0, second, first)
            answers["to_other_sentence"] = other.masked_fill(sentence < 0, torch.nan)
        if found.at_groups is not None:
            for name, values in zip(self._groups, found.at_groups.unbind(dim=3), strict=True):
                # A token alone in its group has nothing to look at there.
                answers[name] = values.masked_fill(self._alone[name].to(values.device), torch.nan)
        return answers


def _delivered(tensor: Tensor) -> Tensor:
    """The only item of the batch, on the CPU."""
    one = tensor[0].cpu()
    return one.float() if one.is_floating_point() else one
