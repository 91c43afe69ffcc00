"""A record as what stands in the page: one JSON document of facts, and blocks of base64 for the arrays."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._layer_record import LayerRecord, MaskRecord, RotaryRecord, ScorerRecord
from regard.views._quantize import TOLERANCE, Packed, Values, by_dimension
from regard.views._records import AttentionRecord, PositionsRecord, Side

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
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        data = little.tobytes()
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
        "without": [
            *(
                {"kind": kind, "layer": layer, "head": head, "cosine": plain(cosine, 4)}
                for (kind, layer, head), cosine in record.without.items()
            ),
            *(
                {"kind": kind, "unseen": token, "cosine": plain(cosine, 4)}
                for (kind, token), cosine in record.unseen.items()
            ),
        ],
    }
    return facts, blocks


def add_heads(packed: Packed, facts: dict[str, Any], blocks: Blocks, difference: float) -> None:
    """Put q, k and dense biases of the heads that a page holds into its facts and blocks, as `packed` has
    them.

    The page states `difference` as the largest one.
    """
    facts |= {"encoding": packed.encoding, "difference": difference, "every": packed.every}
    for kind, layers in packed.layers.items():
        for each, its_facts in zip(layers, facts["kinds"][kind]["layers"], strict=True):
            name = f"{kind}-{each.shown.layer}"
            if len(each.heads) < each.shown.heads:
                its_facts["held"] = list(each.heads)
            if each.weights is not None:
                its_facts["weights"] = blocks.add_values(f"{name}-weights", each.weights)
                continue
            its_facts |= {
                "q": blocks.add_values(f"{name}-q", each.q),
                "k": blocks.add_values(f"{name}-k", each.k),
            }
            if each.bias is not None:
                its_facts["bias"] |= blocks.add_values(f"{name}-bias", each.bias)


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
        fields: dict[str, Any] = {
            "text": token.text,
            "special": token.special,
            "sequence": token.sequence,
            "word": token.word,
        }
        if token.surface is not None and token.surface != token.text:
            fields["surface"] = token.surface
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
    one, other = table.astype(np.float64), read.astype(np.float64)
    apart = [np.abs(one - other).max(), np.abs(one @ one.T - other @ other.T).max()]
    lengths = [np.maximum(np.linalg.norm(each, axis=1), 1e-30) for each in (one, other)]
    if min(lengths[0].min(), lengths[1].min()) > 1e-6:
        one, other = one / lengths[0][:, None], other / lengths[1][:, None]
        apart.append(np.abs(one @ one.T - other @ other.T).max())
    return bool(max(apart) <= TOLERANCE / 2)
