"""The live page: a model packed for the browser, what its 8 bits cost, and one text worked out by Python."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from regard.blocks import MultiHeadAttention, learned, unpacked
from regard.core import attention_weights
from regard.core.errors import InputError
from regard.core.tensors import cosine
from regard.models import LanguageModelHead, Loaded, Transformer, attentions
from regard.tracing.pages._names import MOST_WEIGHTS, live_names
from regard.tracing.pages._page import page_record
from regard.tracing.pages._story import sentences
from regard.tracing.run import TraceOfRun
from regard.views import LivePooling, LiveRecord, LiveWeights, Page, render_page

FAMILIES = ("bert", "distilbert", "gpt2")
"""What a live page can run."""

ACTIVATIONS = ("gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu")
"""Those that static/live/arithmetic.js has."""

MOST_PARAMETERS = 400_000_000
"""What a browser can hold: the file has one and a half bytes for each."""

_WAY_OUT = "without --live (in Python: trace.page()) regard draws its attention over a text"


@dataclass(frozen=True, kw_only=True, eq=False)
class LiveModel:
    """A model as a live page holds it."""

    description: dict[str, Any]  # sizes, and where each tensor is, for JSON: see static/live/model.js
    weights: LiveWeights
    rounded: Loaded  # the model with the weights that the browser computes with


def live_model(loaded: Loaded) -> LiveModel:
    """Pack a model; an InputError says why a live page cannot run it."""
    network = _checked(loaded)
    (kind,) = network.prefixes
    head, config = network.head, network.config
    masked = network.has_vocabulary_head and not isinstance(head, LanguageModelHead)
    weights = LiveWeights()
    copy = deepcopy(unpacked(network)).float()
    # Tied weights are one parameter, and so are packed once, under the first of their names.
    for name, parameter in copy.named_parameters():
        if name.startswith("pooler.") or (name.startswith("head.") and not network.has_vocabulary_head):
            continue
        short = name.removeprefix(f"{kind}.").replace("own_bias", "bias")
        block = ".".join(short.split(".")[: 2 if short.startswith("layers.") else 1])
        read = weights.add(block, short, parameter.detach().cpu().numpy())
        parameter.data = torch.from_numpy(read).to(parameter.device)
    for number, each in enumerate(attentions(copy)[kind]):
        weights.add(f"layers.{number}", f"layers.{number}.attention.triangles", _triangles(each))
    description = {
        "blocks": weights.sums(),
        "tensors": weights.tensors,
        "dim": config.d_model,
        "layers": [{"heads": each.num_heads, "scale": _scale(each)} for each in attentions(network)[kind]],
        "norm": "pre" if kind == "decoder" else "post",
        "activation": config.activation,  # type: ignore[attr-defined]
        "eps": config.norm_eps,  # type: ignore[attr-defined]
        "causal": kind == "decoder",
        "vocabulary": config.vocab_size,
        "positions": network.limit(kind),
        "names": live_names(kind),
        "head": None if not network.has_vocabulary_head else "masked" if masked else "next",
        "output": next(
            (name for name in ("head.output.weight", "embeddings.tokens.weight") if name in weights.tensors),
        ),
    }
    return LiveModel(description=description, weights=weights, rounded=replace(loaded, network=copy))


def live_loss(
    loaded: Loaded, rounded: Loaded, texts: Iterable[tuple[str, str | None]]
) -> tuple[float, float]:
    """What the 8 bits change: the largest difference of a weight, and the smallest cosine of an embedding."""
    weight, embedding = 0.0, 1.0
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
    if type(network) is not Transformer or loaded.family not in FAMILIES:
        raise InputError(
            f"a live page runs models of the families {', '.join(FAMILIES)}; {loaded.source.name} is of "
            f"{loaded.family}{'' if isinstance(network, Transformer) else ', edited or seen by the lens'}; "
            f"{_WAY_OUT}."
        )
    if any(each.kernel is not None for layers in attentions(network).values() for each in layers):
        raise InputError(
            f"a live page computes softmax attention; {loaded.source.name} has another kind; {_WAY_OUT}."
        )
    activation = network.config.activation  # type: ignore[attr-defined]
    if activation not in ACTIVATIONS:
        raise InputError(
            f"a live page has the activations {', '.join(ACTIVATIONS)}; {loaded.source.name} has "
            f"{activation}; {_WAY_OUT}."
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
    of_heads = torch.chunk(weight, attention.num_heads, dim=1)
    triangles = [torch.linalg.qr(each, mode="r").R for each in of_heads]
    size = of_heads[0].shape[1]
    # Of a head that is wider than the residual stream, the rows that are missing are 0.
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
    loaded: Loaded, text: str, pair: str | None = None, *, pooling: LivePooling | None = None
) -> Page:
    """A page that holds the model itself, and works out whatever is typed into it.

    Args:
        loaded: a model of the BERT, DistilBERT or GPT-2 family, with its tokenizer.
        text: what the page opens with, worked out by Python.
        pair: a second text beside it, which the model reads too.
        pooling: how one vector of a text is made, for how alike two texts are; None leaves that out.

    Returns:
        The page. `live_difference` is the largest difference of an attention weight between its model, whose
        weights have 8 bits, and Python's, over some texts.

    Raises:
        InputError: a model of another family, or a tokenizer that a page does not have.
        CheckpointError: a model without a tokenizer.
    """
    live = live_model(loaded)
    tokenizer, most = loaded.require_tokenizer(), live.description["positions"]
    portable = tokenizer.portable(most)
    trace = TraceOfRun.of_text(loaded, text, pair)
    some = [(each, None) for each in SENTENCES if len(tokenizer.encode(each).tokens) <= most]
    weight, embedding = live_loss(loaded, live.rounded, [(text, pair), *some])
    record = LiveRecord(
        description=live.description | {"mask": _mask(portable)},
        weights=live.weights,
        tokenizer=portable,
        texts=1 + len(some),
        weight=weight,
        embedding=embedding,
        pooling=pooling,
        sentences=sentences(),
    )
    return render_page(page_record(trace, story=True, names=MOST_WEIGHTS), live=record)


def _mask(tokenizer: Mapping[str, Any]) -> int | None:
    """The token that stands for a word that the model has to guess; None where there is none."""
    ids = [each["id"] for each in tokenizer["added"] if each["content"] in ("[MASK]", "<mask>")]
    return ids[0] if ids else None
