"""A record as what stands in the page: facts in JSON, blocks of base64 for arrays, and values if they fit.

A head's result is the sum over the keys of weight x v. The page works it out from its own q, k and v: of all
heads where v fits, else of some.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.views._layer_record import LayerRecord, MaskRecord, RotaryRecord, ScorerRecord, weight_rows
from regard.views._quantize import TOLERANCE, Encoding, Packed, Values, as_it_is, by_dimension, some_heads
from regard.views._records import AttentionRecord, HeadName, PositionsRecord, RecordKind, Side

_Array = npt.NDArray[Any]

Facts = Mapping[str, Any]
"""What a page holds in words and numbers, as JSON has them."""


MOST_POSITIONS = 512
"""Rows of the matrix of added vectors that a page holds."""


class Blocks:
    """The page's arrays by name, little-endian in base64; one that is there already is not stored again.

    Layers often share a bias or a mask: then the second names the block of the first.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._names: dict[bytes, str] = {}

    def add(self, name: str, array: _Array) -> str:
        """Stores an array, and says under which name it is found."""
        # Browsers read little-endian numbers on all common machines.
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        data = little.tobytes()
        # By content: layers that share an array name one block.
        known = self._names.setdefault(hashlib.sha256(data).digest(), name)
        if known == name:
            self.texts[name] = base64.b64encode(data).decode("ascii")
        return known

    def add_values(self, name: str, values: Values) -> dict[str, str | None]:
        """Stores an array as a page carries it, and says under which names it is found."""
        stored = {"values": self.add(name, values.stored), "steps": None}
        if values.steps is not None:
            # The upper half of a float32 is all that there is of it.
            half = (values.steps.view(np.uint32) >> 16).astype(np.uint16)
            stored["steps"] = self.add(f"{name}-steps", half)
        return stored

    @property
    def size(self) -> int:
        """Bytes that they take in the page, with the elements around them."""
        return sum(len(block(name, "text/plain", "")) + len(text) + 8 for name, text in self.texts.items())

    def html(self, prefix: str = "") -> str:
        """A `<script>` element for each: the page decodes one when someone first looks at its layer."""
        return "\n".join(block(prefix + name, "text/plain", text) for name, text in self.texts.items())


def facts_of(record: AttentionRecord) -> tuple[dict[str, Any], Blocks]:
    """What the page's row source reads, for JSON, and the blocks that it names; not what each head has of its
    own: see `add_heads`.
    """
    blocks = Blocks()
    kinds = {}
    # Names and sizes; q, k and v come when it is known which fit.
    for kind in record.kinds:
        kinds[kind] = {
            "names": None if record.names is None else record.names["kinds"].get(kind),
            "query": "encoder" if kind == "encoder" else "decoder",
            "key": "decoder" if kind == "decoder" else "encoder",
            "layers": [_layer(f"{kind}-{each.layer}", each, blocks) for each in record.layers[kind]],
        }
    sides = {"encoder": record.encoder, "decoder": record.decoder}
    facts = {
        "model": record.model,
        "encoding": "float32",
        "difference": 0.0,
        "every": 1,
        "sides": {name: _side(name, side, blocks) for name, side in sides.items() if side is not None},
        "kinds": kinds,
        "names": None
        if record.names is None
        else {name: record.names[name] for name in ("said", "patterns")},
        "without": list(record.without),
        "messages": list(record.messages),
        "apart": record.apart,
        "why": None if record.why is None else dict(record.why),
        "instead": None if record.instead is None else dict(record.instead),
    }
    return facts, blocks


def add_heads(packed: Packed, facts: dict[str, Any], blocks: Blocks, difference: float) -> None:
    """Put q, k and dense biases of the heads that a page holds into its facts and blocks, as `packed` has
    them.

    The page states `difference` as the largest one.
    """
    facts |= {"encoding": packed.encoding, "difference": difference, "every": packed.every}
    for kind, layers in packed.layers.items():
        for packed_layer, its_facts in zip(layers, facts["kinds"][kind]["layers"], strict=True):
            name = f"{kind}-{packed_layer.shown.layer}"
            # Some heads only: which, in order.
            if len(packed_layer.heads) < packed_layer.shown.heads:
                its_facts["held"] = list(packed_layer.heads)
            # Weights that were given have no q and k.
            if packed_layer.weights is not None:
                its_facts["weights"] = blocks.add_values(f"{name}-weights", packed_layer.weights)
                continue
            its_facts |= {
                "q": blocks.add_values(f"{name}-q", packed_layer.q),
                "k": blocks.add_values(f"{name}-k", packed_layer.k),
            }
            if packed_layer.bias is not None:
                its_facts["bias"] |= blocks.add_values(f"{name}-bias", packed_layer.bias)


def block(name: str, kind: str, content: str) -> str:
    """One data block as HTML; the content must hold none of HTML's own characters."""
    return f'<script type="{kind}" id="regard-{name}">{content}</script>'


def as_json(value: object) -> str:
    """JSON in ASCII, without the characters that HTML knows: no token can end the block or start another."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(values: Any, digits: int = 6) -> Any:
    """Numbers for JSON: nested lists with so many digits, None for what is not finite.

    Example:
        >>> plain(np.array([[1 / 3, np.nan]])), plain(None)
        ([[0.333333, None]], None)
    """
    if values is None or (np.ndim(values) == 0 and not np.isfinite(values)):
        return None
    if np.ndim(values) == 0:
        return float(f"{values:.{digits}g}")
    return [plain(each, digits) for each in values]


def _side(name: str, side: Side, blocks: Blocks) -> dict[str, Any]:
    tokens = []
    for token in side.tokens:
        # What is usual is left out, to keep the facts short.
        fields: dict[str, Any] = {
            "text": token.text,
            "special": token.special,
            "sequence": token.sequence,
            "word": token.word,
        }
        if token.surface is not None and token.surface != token.text:
            fields["surface"] = token.surface
        if token.bytes is not None:
            fields["bytes"] = token.bytes
        if token.unknown:
            fields["unknown"] = True
        tokens.append(fields)
    return {
        "text": side.text,
        "pair": side.pair,
        "tokens": tokens,
        "words": list(side.words),
        "positions": _positions(name, side.positions, blocks),
    }


def _layer(name: str, layer: LayerRecord, blocks: Blocks) -> dict[str, Any]:
    # Nothing to work out.
    if layer.weights is not None:
        return {"layer": layer.layer, "heads": layer.heads, "weights": {}, "rotary": None}
    return {
        "layer": layer.layer,
        "heads": layer.heads,
        "kvHeads": len(layer.k),
        "headDim": layer.q.shape[2],
        "scale": layer.scale,
        "scorer": None if layer.scorer is None else _scorer(f"{name}-scorer", layer.scorer, blocks),
        "softcap": layer.softcap,
        "mask": None if layer.mask is None else _mask(f"{name}-mask", layer.mask, blocks),
        "bias": _bias(f"{name}-bias", layer, blocks),
        "sinks": None if layer.sinks is None else blocks.add(f"{name}-sinks", layer.sinks),
        "rotary": _rotary(name, layer.rotary, blocks),
    }


def _bias(name: str, layer: LayerRecord, blocks: Blocks) -> dict[str, Any] | None:
    if layer.bias is None:
        return None
    known: dict[str, Any] = {"heads": len(layer.bias), "dense": layer.bias.ndim == 3}
    # By distance it is short, and stays float32; a dense one belongs to the heads.
    return known if known["dense"] else known | blocks.add_values(name, Values(stored=layer.bias))


def _scorer(name: str, scorer: ScorerRecord, blocks: Blocks) -> dict[str, Any]:
    return {"name": scorer.name, "v": None if scorer.v is None else blocks.add(name, scorer.v)}


def _mask(name: str, mask: MaskRecord, blocks: Blocks) -> dict[str, Any]:
    bits = None
    if mask.bits is not None:
        # Bit i of the whole array, heads first, is bit i % 8 of byte i // 8.
        packed = np.packbits(mask.bits, bitorder="little")
        bits = {"heads": len(mask.bits), "values": blocks.add(f"{name}-bits", packed)}
    segments = None
    if mask.segments is not None:
        # Which segment is which says nothing, only whether two are one: small numbers are enough.
        sizes = np.cumsum([len(each) for each in mask.segments])[:-1]
        _, numbers = np.unique(np.concatenate(mask.segments), return_inverse=True)
        parts = np.split(numbers.astype(np.int32), sizes)
        sides = zip(("queries", "keys"), parts, strict=True)
        segments = [blocks.add(f"{name}-{side}", part) for side, part in sides]
    return {
        "low": mask.low,
        "high": mask.high,
        "keys": None if mask.keys is None else blocks.add(f"{name}-real", mask.keys.astype(np.uint8)),
        "segments": segments,
        "bits": bits,
    }


def _rotary(name: str, rotary: RotaryRecord | None, blocks: Blocks) -> dict[str, Any] | None:
    if rotary is None:
        return None
    return {
        "frequencies": blocks.add(f"{name}-rotary", rotary.frequencies),
        "layout": rotary.layout,
        "amplitude": rotary.amplitude,
    }


def _positions(name: str, record: PositionsRecord | None, blocks: Blocks) -> dict[str, Any]:
    # The vectors in 16 bits where that shows the same numbers.
    if record is None or record.table is None:
        return {"said": None if record is None else record.said, "table": None}
    table = np.ascontiguousarray(record.table[:MOST_POSITIONS])
    # 16 bits if a reader sees no other number.
    values, read = by_dimension(table[None])
    if not _same(table, read[0]):
        values = Values(stored=table)
    return {
        "said": record.said,
        "table": {
            "count": len(table),
            "dim": table.shape[1],
            **blocks.add_values(f"{name}-positions", values),
        },
    }


def _same(table: npt.NDArray[np.float32], read: npt.NDArray[np.float32]) -> bool:
    """Whether entries, dot products and cosines stay what they are, to the third decimal."""
    # Entries, then products, then cosines.
    one, other = table.astype(np.float64), read.astype(np.float64)
    apart = [np.abs(one - other).max(), np.abs(one @ one.T - other @ other.T).max()]
    lengths = [np.maximum(np.linalg.norm(each, axis=1), 1e-30) for each in (one, other)]
    if min(lengths[0].min(), lengths[1].min()) > 1e-6:
        one, other = one / lengths[0][:, None], other / lengths[1][:, None]
        apart.append(np.abs(one @ one.T - other @ other.T).max())
    return bool(max(apart) <= TOLERANCE / 2)


Held = Literal["all", "some", "none"]

MOST_BYTES = 8_000_000
"""A page grows up to this size to hold values; more are held only when asked for."""

# Weights worked out at most to compare results: of a longer text, those of evenly spaced queries.
_MOST_WEIGHTS = 1 << 22


Chosen = dict[tuple[RecordKind, int], tuple[int, ...]]
"""By (kind, layer), for each layer that has values: the heads of k and v whose values are held."""


def add_values(
    record: AttentionRecord,
    packed: Packed,
    facts: dict[str, Any],
    blocks: Blocks,
    *,
    wanted: Sequence[HeadName],
    room: int,
) -> Held:
    """Put the values into a page's facts and blocks: all while they fit in `room` bytes, else of the wanted
    heads.

    An InputError where a wanted head has no values.
    """
    chosen = _chosen(record, wanted)
    # The smaller one first; values are rounded only where q and k are.
    encodings: tuple[Encoding, ...] = ("float32",) if packed.encoding == "float32" else ("int16", "float32")
    for encoding in encodings:
        # All heads if there is room, else those asked for.
        every = {each: tuple(range(len(v))) for each, v in _values(record)}
        held = every if _bytes(record, every, encoding) <= room else chosen
        store = by_dimension if encoding == "int16" else as_it_is
        packed_values = {each: some_heads(v, held[each], store) for each, v in _values(record)}
        read = {each: of_layer for each, (_, of_layer) in packed_values.items()}
        difference, rounding, sample = _compare(record, packed, held, read)
        # A reader sees both, each value and each result, to the third decimal.
        if max(difference, rounding) <= TOLERANCE:
            break
    for kind in record.kinds:
        for layer, its_facts in zip(record.layers[kind], facts["kinds"][kind]["layers"], strict=True):
            if layer.v is not None:
                heads, (stored, _) = held[kind, layer.layer], packed_values[kind, layer.layer]
                # Also of a layer without any: the page says why.
                its_facts["v"] = {"dim": layer.v.shape[2], "heads": list(heads)}
                if heads:
                    its_facts["v"] |= blocks.add_values(f"{kind}-{layer.layer}-v", stored)
    state: Held = "none" if not any(held.values()) else "all" if held == every else "some"
    facts["values"] = {"held": state, "difference": difference, "every": sample}
    return state


def wanted_bytes(record: AttentionRecord, wanted: Sequence[HeadName]) -> int:
    """What the values of the wanted heads take in a page at most; an InputError where one has none."""
    return _bytes(record, _chosen(record, wanted), "float32")


def _values(record: AttentionRecord) -> Iterator[tuple[tuple[RecordKind, int], npt.NDArray[np.float32]]]:
    for kind in record.kinds:
        for layer in record.layers[kind]:
            if layer.v is not None:
                yield (kind, layer.layer), layer.v


def _chosen(record: AttentionRecord, wanted: Sequence[HeadName]) -> Chosen:
    chosen: dict[tuple[RecordKind, int], set[int]] = {each: set() for each, _ in _values(record)}
    for kind, number, head in wanted:
        # A layer whose values give other contexts than the model's.
        if (kind, number) not in chosen:
            raise InputError(
                f"values must be of a layer that has some; got {kind} layer {number}, which has none; "
                "choose another"
            )
        [group] = (each.group for each in record.layers[kind] if each.layer == number)
        chosen[kind, number].add(head // group)
    return {each: tuple(sorted(heads)) for each, heads in chosen.items()}


def _bytes(record: AttentionRecord, held: Chosen, encoding: Encoding) -> int:
    """What the values take in the page: base64, with the element around it."""
    size = 600  # the policy, and what the facts say of it
    for layer, v in _values(record):
        count = len(held[layer]) * v.shape[1] * v.shape[2]
        # Two bytes a number and a step for each dimension.
        plain = 4 * count if encoding == "float32" else 2 * count + 2 * len(held[layer]) * v.shape[2]
        size += 4 * (plain // 3 + 2) + 300
    return size


def _compare(
    record: AttentionRecord,
    packed: Packed,
    held: Chosen,
    read: dict[tuple[RecordKind, int], npt.NDArray[np.float32]],
) -> tuple[float, float, int]:
    """The largest difference of a result and of a value, and one query in how many was compared.

    `read` is what a reader of the page has of v, zero for the heads that are not held.
    """
    # Heads whose q, k and v all are in the page.
    heads = [
        (layer, each.shown, layer.v, read[kind, layer.layer], head)
        for kind in record.kinds
        for layer, each in zip(record.layers[kind], packed.layers[kind], strict=True)
        if layer.v is not None
        for head in each.heads
        if head // layer.group in held[kind, layer.layer]
    ]
    count = sum(layer.queries * layer.keys for layer, *_ in heads)
    every = max(1, -(-count // _MOST_WEIGHTS))
    difference = rounding = 0.0
    for layer, shown, v, read_v, head in heads:
        # From the last query back, which sees most keys.
        queries = np.arange(layer.queries - 1, -1, -every)[::-1]
        results = value_contexts(layer, v, head, queries) - value_contexts(shown, read_v, head, queries)
        difference = max(difference, float(np.abs(results).max()))
        of_head = head // layer.group
        rounding = max(rounding, float(np.abs(v[of_head] - read_v[of_head]).max()))
    return difference, rounding, every


def value_contexts(
    layer: LayerRecord, v: npt.NDArray[np.float32], head: int, queries: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """The results of some queries of a head: the sum over the keys of weight x v, in float64.

    Args:
        layer: The layer.
        v: float32 (kv_heads, keys, v_dim).
        head: The query head.
        queries: Which queries, (rows,).

    Returns:
        (rows, v_dim). A sink has no value, and no share in it.

    Example:
        >>> q, v = np.zeros((1, 2, 5), np.float32), np.array([[[1.0], [3.0]]], np.float32)
        >>> value_contexts(LayerRecord(layer=0, q=q, k=q, scale=1.0), v, 0, np.arange(1)).tolist()
        [[2.0]]
    """
    # Without the sink, which has no value.
    weights = weight_rows(layer, head, queries)[:, : layer.keys]
    result: npt.NDArray[np.float64] = weights @ v[head // layer.group].astype(np.float64)
    return result
