"""The live page: a model packed for the browser, what its 8 bits cost, and one text worked out by Python."""

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from regard.blocks import (
    GatedFeedForward,
    MultiHeadAttention,
    PackedEmbedding,
    PackedLinear,
    RMSNorm,
    learned,
    unpacked,
)
from regard.checkpoints import Packed
from regard.core import attention_weights
from regard.core.errors import InputError
from regard.core.tensors import cosine
from regard.models import FAMILIES, LanguageModelHead, Loaded, Transformer, attentions, family_of
from regard.positions import Rotary
from regard.tracing.pages._names import MOST_WEIGHTS, live_names
from regard.tracing.pages._next import marks_of
from regard.tracing.pages._page import page_record
from regard.tracing.pages._page_measures import as_array
from regard.tracing.pages._story import sentences
from regard.tracing.run import TraceOfRun
from regard.views import STORED, LivePooling, LiveRecord, LiveWeights, Page, render_page

ACTIVATIONS = ("gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "silu", "swish")
"""Those that static/live/arithmetic.js has."""

MOST_PARAMETERS = 400_000_000
"""What a browser can hold: the file has one and a half bytes for each of 8 bits."""

MOST_TOKENS = 1024
"""What the page of a model reads that knows no end: the names of its heads need every weight at once."""

_WAY_OUT = "without --live (in Python: trace.page()) regard draws its attention over a text"


@dataclass(frozen=True, kw_only=True, eq=False)
class LiveModel:
    """A model as a live page holds it."""

    description: dict[str, Any]  # sizes, and where each tensor is, for JSON: see static/live/model.js
    weights: LiveWeights
    rounded: (
        Loaded  # the model with the weights that the browser computes with: itself, if they are the file's
    )


def live_model(loaded: Loaded) -> LiveModel:
    """Pack a model; an InputError says why a live page cannot run it."""
    # What a browser cannot run is refused before anything is packed.
    network = _checked(loaded)
    (kind,) = network.prefixes
    head, config = network.head, network.config
    # Which head: for masks, or for what comes next.
    masked = network.has_vocabulary_head and not isinstance(head, LanguageModelHead)
    weights = LiveWeights()
    # Where the browser computes with other numbers: those, by the names of parameters.
    rounded: dict[str, torch.Tensor] = {}
    for name, tensor in _tensors(network):
        # What no page shows is left out.
        if name.startswith("pooler.") or (name.startswith("head.") and not network.has_vocabulary_head):
            continue
        # The names that the page's JavaScript has.
        short = name.removeprefix(f"{kind}.").replace("own_bias", "bias").replace(".before.", ".norm.")
        # One block a layer, so that it can be unpacked as it comes.
        block = ".".join(short.split(".")[: 2 if short.startswith("layers.") else 1])
        # Blocks of a file are taken as they are: no second rounding.
        if isinstance(tensor, Packed) and tensor.kind.name in STORED:
            weights.add_stored(block, short, tensor.blocks.cpu().numpy(), tensor.shape, tensor.kind.name)
            continue
        wanted = as_array(tensor.unpacked() if isinstance(tensor, Packed) else tensor)
        read = weights.add(block, short, wanted)
        # Only matrices are rounded.
        if wanted.ndim > 1 and (read != wanted).any():
            rounded[name] = torch.from_numpy(read)
    copy = _with(network, rounded) if rounded else network
    for number, each in enumerate(attentions(copy)[kind]):
        # For the lengths of what heads make of values.
        weights.add(f"layers.{number}", f"layers.{number}.attention.triangles", _triangles(each))
    stack = network.stack(kind)
    patterns, scale = stack.patterns, stack.embeddings.scale
    limits = (network.limit(kind), config.max_seq_len, getattr(config, "sliding_window", None), MOST_TOKENS)
    description = {
        "blocks": weights.sums(),
        "tensors": weights.tensors,
        "dim": config.d_model,
        "scale": None if scale == 1 else scale,
        # Everything that JavaScript needs and no tensor says.
        "layers": [
            {
                "heads": each.num_heads,
                "kvHeads": each.num_kv_heads,
                "scale": _scale(each),
                "softcap": each.softcap,
                "rotary": _rotary(pattern.rotary),
            }
            for each, pattern in zip(attentions(network)[kind], patterns, strict=True)
        ],
        "norm": "pre" if kind == "decoder" else "post",
        "rms": any(isinstance(each, RMSNorm) for each in network.modules()),
        "gated": any(isinstance(each, GatedFeedForward) for each in network.modules()),
        "activation": config.activation,  # type: ignore[attr-defined]
        "eps": config.norm_eps,  # type: ignore[attr-defined]
        "causal": kind == "decoder",
        "vocabulary": config.vocab_size,
        # Up to the window's width it hides nothing.
        "positions": min(each for each in limits if each is not None),
        "names": live_names(kind),
        "head": None if not network.has_vocabulary_head else "masked" if masked else "next",
        "softcap": getattr(config, "final_softcap", None),
        "output": next(
            (name for name in ("head.output.weight", "embeddings.tokens.weight") if name in weights.tensors),
        ),
    }
    read_by_page = replace(loaded, network=copy) if rounded else loaded
    return LiveModel(description=description, weights=weights, rounded=read_by_page)


def _tensors(network: Transformer) -> Iterator[tuple[str, torch.Tensor | Packed]]:
    """What a network has learned, by name; tied tensors come once, under the first of their names."""
    places = set()
    for path, module in network.named_modules():
        in_blocks = isinstance(module, PackedLinear | PackedEmbedding)
        tensors: list[tuple[str, Any]] = [(f"{path}.weight", module.packed)] if in_blocks else []
        for name, tensor in (*tensors, *module.named_parameters(path, recurse=False)):
            place = (tensor.blocks if isinstance(tensor, Packed) else tensor).data_ptr()
            if place not in places:
                places.add(place)
                # The page's norm multiplies by the weight alone.
                yield name, tensor + module.offset if isinstance(module, RMSNorm) else tensor


def _with(network: Transformer, rounded: Mapping[str, torch.Tensor]) -> Transformer:
    """A copy in float32 with other numbers in the place of some."""
    copy = unpacked(network)
    copy = (deepcopy(network) if copy is network else copy).float()
    for name, parameter in copy.named_parameters():
        if name in rounded:
            parameter.data = rounded[name].to(parameter.device)
    return copy


def _rotary(rotary: Rotary | None) -> dict[str, Any] | None:
    """How positions turn queries and keys."""
    if rotary is None:
        return None
    dim = rotary.head_dim if rotary.rotary_dim is None else rotary.rotary_dim
    # One position is enough: the frequencies of a live page do not depend on the length.
    frequencies = rotary.scaling.frequencies(rotary.base, dim, torch.zeros(1, 1, dtype=torch.long))
    return {
        "frequencies": as_array(frequencies).tolist(),
        "layout": rotary.layout,
        "amplitude": rotary.scaling.amplitude,
    }


def live_loss(
    loaded: Loaded, rounded: Loaded, texts: Iterable[tuple[str, str | None]]
) -> tuple[float, float]:
    """What the 8 bits change: the largest difference of a weight, and the smallest cosine of an embedding."""
    weight, embedding = 0.0, 1.0
    # The same texts by both models, every weight and every vector.
    for text, pair in texts:
        one, other = TraceOfRun.of_text(loaded, text, pair), TraceOfRun.of_text(rounded, text, pair)
        (kind,) = one.kinds
        for layer in one.layers_of(kind):
            theirs, ours = (attention_weights(each.attention_of(layer, kind).inputs) for each in (one, other))
            weight = max(weight, float((theirs - ours).abs().max()))
        alike = cosine(one.embeddings().double(), other.embeddings().double())
        embedding = min(embedding, float(alike.min()))
    return weight, embedding


def _checked(loaded: Loaded) -> Transformer:
    network = loaded.network
    if type(network) is not Transformer or not family_of(loaded.family).live:
        able = ", ".join(name for name in FAMILIES if family_of(name).live)
        raise InputError(
            f"a live page runs models of the families {able}; {loaded.source.name} is of "
            f"{loaded.family}{'' if isinstance(network, Transformer) else ', edited or seen by the lens'}; "
            f"{_WAY_OUT}."
        )
    # In the order of what a reader can do about it: family, attention, activation, size.
    if any(each.kernel is not None for layers in attentions(network).values() for each in layers):
        raise InputError(
            f"a live page computes softmax attention; {loaded.source.name} has another kind; {_WAY_OUT}."
        )
    if getattr(network.config, "is_bidirectional", False):
        raise InputError(
            f"a live page has decoders that look back; {loaded.source.name} looks ahead; {_WAY_OUT}."
        )
    activation = network.config.activation  # type: ignore[attr-defined]
    if activation not in ACTIVATIONS:
        raise InputError(
            f"a live page has the activations {', '.join(ACTIVATIONS)}; {loaded.source.name} has "
            f"{activation}; {_WAY_OUT}."
        )
    if any(
        each.rotary and each.rotary.scaling.by_length for each in network.stack(*network.prefixes).patterns
    ):
        raise InputError(
            f"a live page turns positions by fixed angles; those of {loaded.source.name} depend on the "
            f"text's length; {_WAY_OUT}."
        )
    count = sum(each.count for each in learned(network))
    if count > MOST_PARAMETERS:
        raise InputError(
            f"a live page holds at most {MOST_PARAMETERS // 10**6} million parameters; "
            f"{loaded.source.name} has {count // 10**6} million; {_WAY_OUT}."
        )
    return network


def _triangles(attention: MultiHeadAttention) -> npt.NDArray[np.float32]:
    """R of each head, one after the other, of W_O = Q R: Q keeps lengths, so |R v| is that of W_O v."""
    weight = attention.output.weight.detach().double().cpu()
    # (d_model, v_dim) of each head
    of_heads = torch.chunk(weight, attention.num_heads, dim=1)
    triangles = [torch.linalg.qr(each, mode="r").R for each in of_heads]
    size = of_heads[0].shape[1]
    # A head that is wider than the residual stream lacks rows: they are 0.
    filled = [torch.nn.functional.pad(each, (0, 0, 0, size - len(each))) for each in triangles]
    flat: npt.NDArray[np.float32] = torch.stack(filled).float().flatten().numpy()
    return flat


def _scale(attention: MultiHeadAttention) -> float:
    head_dim = attention.q.out_features // attention.num_heads
    return float(head_dim**-0.5 if attention.scale is None else attention.scale)


SENTENCES = (
    "The trophy does not fit into the brown suitcase because it is too big.",
    "She poured water from the pitcher into the cup until it was full.",
    "I went to the bank to withdraw some money; the cashier smiled.",
    "When Mary and John went to the store, John gave a drink to",
    "the cat sat on the mat, the cat sat on the",
    'In 1969, 12 % of all listeners wrote: "Why?"',
    "no verb here",
)
"""Short texts of many kinds: over them, and the page's own, its model is compared with Python's."""


def live_page(
    loaded: Loaded,
    text: str,
    pair: str | None = None,
    *,
    against: str | None = None,
    beside: str | None = None,
    pooling: LivePooling | None = None,
) -> Page:
    """A page that holds the model itself, and works out whatever is typed into it.

    Args:
        loaded: a model of the BERT, DistilBERT, GPT-2, Llama or Gemma families, with its tokenizer.
        text: what the page opens with, worked out by Python.
        pair: a second text beside it, which the model reads too.
        against: another text, with which the page opens beside the first; None for that of a ready sentence.
        beside: a name for a file beside the page that holds the weights, for a page that a server sends; None
            puts them into the page.
        pooling: how one vector of a text is made, for how alike two texts are; None leaves that out.

    Returns:
        The page. `live_difference` is the largest difference of an attention weight between its model, whose
        weights have 8 bits, and Python's, over some texts; 0 where the weights are those of a GGUF file.

    Raises:
        InputError: a model of another family, or too large, or a tokenizer that a page does not have; or a
            text that the model does not take.
        CheckpointError: a model without a tokenizer.
    """
    if beside is not None and not re.fullmatch(r"[\w-][\w.-]*", beside, re.ASCII):
        raise InputError(f"beside must be a file name of letters, digits, - and .; got {beside!r}.")
    if against is not None and (pair is not None or against == text):
        raise InputError("against must be another text, and stand without a pair.")
    live = live_model(loaded)
    tokenizer, most = loaded.require_tokenizer(), live.description["positions"]
    portable = tokenizer.portable(most)
    if against is None:
        trace = TraceOfRun.of_text(loaded, text, pair)
    else:
        # Both are read: what the page could not open on is refused here.
        trace, _ = TraceOfRun.of_texts(loaded, [text, against])
    is_exact = live.rounded is loaded
    # A model with few positions reads the short ones only.
    some = [(each, None) for each in SENTENCES if len(tokenizer.encode(each).tokens) <= most]
    texts = [] if is_exact else [(text, pair), *some]
    weight, embedding = live_loss(loaded, live.rounded, texts)
    # What the page says of its own exactness is measured here.
    record = LiveRecord(
        description=live.description | {"mask": _mask(portable), "ends": sorted(tokenizer.end_ids)},
        weights=live.weights,
        tokenizer=portable,
        stored=sorted({each["type"] for each in live.weights.tensors.values()} - {"F32"}) if is_exact else [],
        texts=len(texts),
        weight=weight,
        embedding=embedding,
        pooling=pooling,
        against=against,
        chat=marks_of(tokenizer),
        beside=beside,
        sentences=sentences(),
    )
    return render_page(page_record(trace, story=True, names=MOST_WEIGHTS), live=record)


def _mask(tokenizer: Mapping[str, Any]) -> int | None:
    """The token that stands for a word that the model has to guess; None where there is none."""
    ids = [each["id"] for each in tokenizer["added"] if each["content"] in ("[MASK]", "<mask>")]
    return ids[0] if ids else None
