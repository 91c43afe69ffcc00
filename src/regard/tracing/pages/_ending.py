"""What a contextual embedding is for: the next words of a decoder, or the same word in another sentence."""

from typing import Any

import torch

from regard.core.errors import InputError
from regard.models import StackKind
from regard.text import Encoding
from regard.tracing.comparison import movement
from regard.tracing.measures import logits_of_layers
from regard.tracing.record import Trace
from regard.tracing.run import TraceOfRun

_NEXT = 10  # words that come next

# Words of several meanings, each in two sentences: the one is taken where the word comes to be least alike.
_SENTENCES = {
    "bank": ("The boat lay on the river bank.", "She keeps her savings in a bank."),
    "bark": ("The bark of the tree was rough.", "The bark of the dog was loud."),
    "bat": ("A bat flew out of the cave.", "He hit the ball with a bat."),
    "date": ("They ate a dried date from the palm.", "They agreed on a date in May."),
    "fair": ("We rode a wheel at the fair.", "The judge was fair to both."),
    "flies": ("The flies sat on the fruit.", "The plane flies to Rome."),
    "light": ("She switched off the light.", "The feather was light."),
    "like": ("I like music and dancing.", "He ran like the wind."),
    "match": ("He lit the fire with a match.", "Our team won the match."),
    "ring": ("She wore a gold ring.", "I heard the telephone ring."),
    "seal": ("The seal swam under the ice.", "The letter had a seal of wax."),
    "spring": ("Flowers bloom in spring.", "The watch has a steel spring."),
    "watch": ("My watch is five minutes slow.", "They watch the birds."),
    "write": ("They write letters home.", "The disk is slow to write."),
}


def ending_of(trace: Trace, kind: StackKind) -> dict[str, Any] | None:
    """How the story of a stack ends, as plain values; None where there is nothing honest to show.

    `next` is the likeliest tokens after the last one, of a decoder that says them; `movement` the facts of a
    word of the text beside itself in a sentence of `_SENTENCES`, of an encoder alone.
    """
    if trace.loaded is None:
        return None
    if kind == "decoder" and trace.loaded.network.has_vocabulary_head:
        return {"next": _next(trace)}
    if trace.kinds != ("encoder",):
        return None
    words = [word.text.lower() for word in trace.stack(kind).encoding.words]
    known = [word for word in _SENTENCES if words.count(word) == 1]
    try:
        return {"movement": _apart(trace, known[0])} if known else None
    except InputError:  # a model that takes no such sentence
        return None


def _next(trace: Trace) -> list[dict[str, Any]]:
    assert trace.loaded is not None
    traced = trace.stack("decoder")
    (logits,) = logits_of_layers(trace, [len(traced.hidden) - 1], [len(traced.encoding.tokens) - 1])
    found = logits[0].double().softmax(dim=0).topk(min(_NEXT, logits.shape[1]))
    tokens = Encoding.from_ids(found.indices.tolist(), trace.loaded.tokenizer).tokens
    return [
        {"text": token.surface or token.text, "probability": float(f"{probability:.4g}")}
        for token, probability in zip(tokens, found.values.tolist(), strict=True)
    ]


def _apart(trace: Trace, word: str) -> dict[str, Any]:
    """The movement of a word here and in the sentence in which it comes to be least like itself here."""
    assert trace.loaded is not None
    here = trace.embedding(word)
    others = [TraceOfRun.of_text(trace.loaded, text) for text in _SENTENCES[word]]
    other = min(others, key=lambda each: float(torch.cosine_similarity(here, each.embedding(word), dim=0)))
    facts = movement([trace, other], word).facts()
    return facts | {"projections": {"vectors": facts["projections"]["vectors"]}}
