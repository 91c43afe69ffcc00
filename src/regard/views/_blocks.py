"""A record as what stands in the page: one JSON document of facts, and blocks of base64 for the arrays."""

import base64
import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.views._quantize import Packed, PackedLayer, Values
from regard.views._records import AttentionRecord, LayerRecord, MaskRecord, Side

_Array = npt.NDArray[Any]


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

    def html(self, prefix: str = "") -> str:
        """A `<script>` element for each: the page decodes one when someone first looks at its layer."""
        return "\n".join(block(prefix + name, "text/plain", text) for name, text in self.texts.items())


def facts_of(record: AttentionRecord, packed: Packed, difference: float) -> tuple[dict[str, Any], Blocks]:
    """What the page's row source reads: the facts, which name blocks, and the blocks.

    Args:
        record: What to show.
        packed: Its arrays, as the page carries them.
        difference: What the page states as the largest difference.

    Returns:
        Plain values for JSON, and the arrays.
    """
    blocks = Blocks()
    kinds = {}
    for kind in record.kinds:
        kinds[kind] = {
            "query": "encoder" if kind == "encoder" else "decoder",
            "key": "decoder" if kind == "decoder" else "encoder",
            "layers": [_layer(f"{kind}-{each.shown.layer}", each, blocks) for each in packed.layers[kind]],
        }
    sides = {"encoder": record.encoder, "decoder": record.decoder}
    facts = {
        "model": record.model,
        "encoding": packed.encoding,
        "difference": difference,
        "every": packed.every,
        "sides": {name: _side(side) for name, side in sides.items() if side is not None},
        "kinds": kinds,
    }
    return facts, blocks


def block(name: str, kind: str, content: str) -> str:
    """One data block as HTML; the content must hold none of HTML's own characters."""
    return f'<script type="{kind}" id="regard-{name}">{content}</script>'


def as_json(value: object) -> str:
    """JSON in ASCII, without the characters that HTML knows: no token can end the block or start another."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _side(side: Side) -> dict[str, Any]:
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
        tokens.append(fields)
    return {"text": side.text, "pair": side.pair, "tokens": tokens, "words": list(side.words)}


def _layer(name: str, packed: PackedLayer, blocks: Blocks) -> dict[str, Any]:
    layer = packed.shown
    if packed.weights is not None:
        weights = _values(f"{name}-weights", packed.weights, blocks)
        return {"layer": layer.layer, "heads": layer.heads, "weights": weights}
    return {
        "layer": layer.layer,
        "heads": layer.heads,
        "kvHeads": len(layer.k),
        "headDim": layer.q.shape[2],
        "scale": layer.scale,
        "softcap": layer.softcap,
        "q": _values(f"{name}-q", packed.q, blocks),
        "k": _values(f"{name}-k", packed.k, blocks),
        "mask": None if layer.mask is None else _mask(f"{name}-mask", layer.mask, blocks),
        "bias": _bias(f"{name}-bias", layer, packed.bias, blocks),
        "sinks": None if layer.sinks is None else blocks.add(f"{name}-sinks", layer.sinks),
    }


def _values(name: str, values: Values, blocks: Blocks) -> dict[str, str | None]:
    steps = None if values.steps is None else blocks.add(f"{name}-steps", values.steps)
    return {"values": blocks.add(name, values.stored), "steps": steps}


def _bias(name: str, layer: LayerRecord, dense: Values | None, blocks: Blocks) -> dict[str, Any] | None:
    if layer.bias is None:
        return None
    stored = Values(stored=layer.bias) if dense is None else dense
    return {"heads": len(layer.bias), "dense": dense is not None, **_values(name, stored, blocks)}


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
