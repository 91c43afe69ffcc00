"""What makes a page live: the model itself, its tokenizer, and what is said of both."""

import base64
from dataclasses import dataclass
from typing import Any, Literal

from regard.views import _assets
from regard.views._blocks import as_json, block
from regard.views._live_weights import LiveWeights

LivePooling = Literal["mean", "cls", "last"]
"""How a page can make one vector of a text's."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LiveRecord:
    """A model that runs in the page.

    Attributes:
        description: Its sizes and where its tensors are: see static/live/model.js.
        weights: Its packed tensors.
        tokenizer: What gives the tokens of a text: see static/live/tokenizer.js.
        texts: Texts over which it was compared with Python.
        weight: The largest difference of an attention weight in them.
        embedding: The smallest cosine of a contextual embedding in them.
        pooling: How one vector of a text is made; None where regard does not know it.
    """

    description: dict[str, Any]
    weights: LiveWeights
    tokenizer: dict[str, Any]
    texts: int
    weight: float
    embedding: float
    pooling: LivePooling | None = None


def live_facts(record: LiveRecord) -> dict[str, Any]:
    """What the page's facts say of the model, but for its weights."""
    return {
        "description": record.description | {"pooling": record.pooling},
        "texts": record.texts,
        "weight": record.weight,
        "embedding": record.embedding,
        "head": record.description["head"],
        "pooling": record.pooling,
    }


def live_html(record: LiveRecord) -> str:
    """What stands after the page's script, which so can run before all of it is there: worker and model."""
    parts = [
        block("live-worker", "text/plain", _assets.worker()),
        block("live-tokenizer", "application/json", as_json(record.tokenizer)),
        *(
            block(f"live-{name}", "text/plain", base64.b64encode(data).decode("ascii"))
            for name, data in record.weights.blocks.items()
        ),
        block("live-end", "text/plain", "end"),
    ]
    return "\n" + "\n".join(parts)
