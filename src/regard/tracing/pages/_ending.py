"""What a contextual embedding is for: the next words of a decoder, or the same word in another sentence."""

from typing import Any

from regard.core.errors import InputError
from regard.models import Loaded, StackKind
from regard.text import Encoding
from regard.tracing.measures import logits_of_layers
from regard.tracing.pages._beside import PlacedWord, beside, placed_words
from regard.tracing.record import KeepPolicy, Trace
from regard.tracing.run import TraceOfRun

_NEXT = 10  # words that come next
_OF_EACH = ("words", "points", "far", "share", "apart")
_MOST = 8  # words that are shown beside themselves: each is 0.4 kB of a page

_ASKED = "What does the word * mean?"  # a sentence for any word

# Words of several meanings, each in two sentences: the one is taken where the word ends furthest from here.
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


def sentences() -> dict[str, tuple[str, ...]]:
    """For a page that asks its model: sentences for some words, and under "*" that for any other."""
    return _SENTENCES | {"*": (_ASKED,)}


def ending_of(
    trace: Trace, kind: StackKind, first: int = 0, *, with_words: bool = True
) -> dict[str, Any] | None:
    """How the story of a stack ends, as plain values; None where there is nothing honest to show.

    `next` is the likeliest tokens after the last one, of a decoder that says them. Of an encoder alone,
    `beside` has words of the text, by their first tokens, beside themselves in another sentence: the longest
    words, and that at the token `first`; `with_words` leaves them to a page that can ask its model.
    """
    if trace.loaded is None:
        return None
    if kind == "decoder" and trace.loaded.network.has_vocabulary_head:
        return {"next": _next(trace)}
    words = placed_words(trace) if with_words and trace.kinds == ("encoder",) else []
    if not words:
        return None
    words.sort(key=lambda word: (first not in word.tokens, -len(word.name)))
    try:
        return {"beside": _beside(trace, trace.loaded, words[:_MOST])}
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


def _beside(trace: Trace, loaded: Loaded, words: list[PlacedWord]) -> dict[str, Any]:
    """Of each word its way beside that in the sentence in which it ends furthest from here."""
    given = {
        word.name: _SENTENCES.get(word.name.lower(), (_ASKED.replace("*", word.name),)) for word in words
    }
    texts = [text for some in given.values() for text in some]
    traces = TraceOfRun.of_texts(loaded, texts, keeping=KeepPolicy(keep="residual"))
    others = dict(zip(texts, traces, strict=True))
    ways = {
        word.tokens[0]: max(
            (beside(trace, others[text], word) for text in given[word.name]),
            key=lambda way: float(way["far"][-1]),
        )
        for word in words
    }
    own = {
        first: {"text": way["texts"][1]} | {name: way[name] for name in _OF_EACH}
        for first, way in ways.items()
    }
    any_way = next(iter(ways.values()))
    return {"text": any_way["texts"][0], "steps": any_way["steps"], "of": own}
