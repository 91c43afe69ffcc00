"""What makes a page live: the model itself with its tokenizer, or a server that runs one."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

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
        sentences: Of some words, in which they mean something else; under "*" one for any other.
    """

    description: dict[str, Any]
    weights: LiveWeights
    tokenizer: dict[str, Any]
    texts: int
    weight: float
    embedding: float
    pooling: LivePooling | None = None
    sentences: Mapping[str, Sequence[str]] = field(default_factory=dict)

    # It compiles the module that it has put together, and starts its own worker.
    policy: ClassVar[str] = " 'wasm-unsafe-eval'; worker-src blob:"
    asks: ClassVar[str] = "It makes no network request."

    def script(self) -> str:
        """The page's JavaScript."""
        return _assets.script(live=True)

    def facts(self) -> dict[str, Any]:
        """What the page's facts say of the model, but for its weights."""
        return {
            "description": self.description | {"pooling": self.pooling},
            "texts": self.texts,
            "weight": self.weight,
            "embedding": self.embedding,
            "head": self.description["head"],
            "pooling": self.pooling,
            "sentences": self.sentences,
        }

    def html(self) -> str:
        """What follows the page's script, which can so run before all of it is there: worker and model."""
        parts = [
            block("live-worker", "text/plain", _assets.worker()),
            block("live-tokenizer", "application/json", as_json(self.tokenizer)),
            *(
                block(f"live-{name}", "text/plain", base64.b64encode(data).decode("ascii"))
                for name, data in self.weights.blocks.items()
            ),
            block("live-end", "text/plain", "end"),
        ]
        return "\n" + "\n".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedRecord:
    """A model that a server runs for the page.

    Attributes:
        model: Its name, by which the page asks for it.
        models: The names of all models that can be chosen.
        head: What its head says: the "next" token, the "masked" ones, or None.
        pooling: How one vector of a text is made; None where regard does not know it.
        usages: Whether there is a concordance too.
        sentences: As in `LiveRecord`.
    """

    model: str
    models: tuple[str, ...] = ()
    head: Literal["next", "masked"] | None = None
    pooling: LivePooling | None = None
    usages: bool = False
    sentences: Mapping[str, Sequence[str]] = field(default_factory=dict)

    policy: ClassVar[str] = "; connect-src 'self'"
    asks: ClassVar[str] = "It asks the server that it came from, and no other."

    def script(self) -> str:
        """The page's JavaScript."""
        return _assets.served()

    def facts(self) -> dict[str, Any]:
        """What the page's facts say of the model and its server: see static/live/served.js."""
        served = {"model": self.model, "models": list(self.models), "usages": self.usages}
        return {"served": served, "head": self.head, "pooling": self.pooling, "sentences": self.sentences}

    def html(self) -> str:
        """Nothing follows the page's script."""
        return ""
