"""The live page: what Python works out of one text, and the model, which works out all others there."""

from collections.abc import Mapping
from typing import Any

from regard.models import Loaded
from regard.tracing.pages._ending import sentences
from regard.tracing.pages._live_model import live_loss, live_model
from regard.tracing.pages._names import MOST_WEIGHTS
from regard.tracing.pages._page import page_record
from regard.tracing.run import TraceOfRun
from regard.views import LivePooling, LiveRecord, Page, render_page

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
    loss = live_loss(loaded, live.rounded, [(text, pair), *some])
    record = LiveRecord(
        description=live.description | {"mask": _mask(portable)},
        weights=live.weights,
        tokenizer=portable,
        texts=loss.texts,
        weight=loss.weight,
        embedding=loss.embedding,
        pooling=pooling,
        sentences=sentences(),
    )
    return render_page(page_record(trace, story=True, names=MOST_WEIGHTS), live=record)


def _mask(tokenizer: Mapping[str, Any]) -> int | None:
    """The token that stands for a word that the model has to guess; None where there is none."""
    ids = [each["id"] for each in tokenizer["added"] if each["content"] in ("[MASK]", "<mask>")]
    return ids[0] if ids else None
