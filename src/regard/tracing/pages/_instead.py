"""A text without a head or a word, or with another word: a page's "What if not?" and "Why?"."""

from typing import Any

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.core.tensors import cosine
from regard.models import Loaded, StackKind
from regard.tracing.edits import Edit, edited
from regard.tracing.pages._story import PlacedWord, next_tokens, placed_words, word_at
from regard.tracing.record import KeepPolicy, Trace
from regard.tracing.run import TraceOfRun
from regard.views import plain

_NEAR = 2  # words that are like it
_READ = 400  # of the nearest tokens, in which they are looked for
_AT_ONCE = 8192  # rows of the table
_STEM = 3  # letters: words that begin with the same are forms of one
_BLANK = "␣"

_RESIDUAL = KeepPolicy(keep="residual")


def left_by(trace: Trace, edit: Edit) -> dict[str, Any]:
    """What an edit leaves of the run of one text, as plain values.

    `cosine` of each contextual embedding to what it becomes; and where the model says what comes next,
    `next`: the likeliest tokens after the last one, `before` and `after` the edit.
    """
    # The same tokens, read once more with the edit.
    encoding, loaded = trace.stack(None).encoding, trace.require_model()
    other = TraceOfRun.of_encoding(edited(loaded, [edit]), encoding, keeping=_RESIDUAL)
    keeping = trace.stack(None).keeping
    # The trace may lack the last layer's output.
    if not keeping.hidden or keeping.layers is not None:
        trace = TraceOfRun.of_encoding(loaded, encoding, keeping=_RESIDUAL)
    likeness = cosine(trace.embeddings().double(), other.embeddings().double())
    # How alike each token's vector stays.
    facts: dict[str, Any] = {"cosine": plain(likeness.cpu().numpy(), 4)}
    before, after = next_tokens(trace), next_tokens(other)
    return facts | ({"next": {"before": before, "after": after}} if before else {})


def other_words(trace: Trace, token: int) -> list[str]:
    """What may stand in the place of the word of a token: the nearest whole words of the model's table, by
    the cosine of their learned embeddings, and then the word of the text that is least like it.

    Raises:
        InputError: a token that is in no word; a model under the lens, whose table regard does not know.
    """
    word, loaded = word_at(trace, token), trace.require_model()
    (kind,) = loaded.network.prefixes
    ids = trace.stack(kind).encoding.token_ids
    # The cosine of each row of the table to the word's mean vector.
    table = _cosines(loaded, kind, [ids[place] for place in word.tokens])
    near = _near(loaded, table, word)
    excluded = [word.name, *near]
    # Other words of the text, but for short ones and forms of those found.
    others = [
        each for each in placed_words(trace) if len(each.name) > _STEM and not _alike(each.name, *excluded)
    ]

    def alike(other: PlacedWord) -> float:
        return float(table[[ids[place] for place in other.tokens]].mean())

    # And one that is unlike: the least alike of the text.
    return near + ([min(others, key=alike).name] if others else [])


def _alike(one: str, *others: str) -> bool:
    return one.casefold()[:_STEM] in [other.casefold()[:_STEM] for other in others]


def _cosines(loaded: Loaded, kind: StackKind, ids: list[int]) -> Tensor:
    """The cosine of every row of the table with the mean of some of them."""
    stack = loaded.network.stack(kind)
    if stack is None:
        raise InputError("other words need the embeddings of a model that regard builds; a lens has none.")
    rows, device = stack.embeddings.tokens, next(loaded.network.parameters()).device
    alike = torch.empty(rows.num_embeddings)
    with torch.no_grad():
        # A word of several tokens is the mean of their rows.
        mean = rows(torch.tensor(ids, device=device)).float().mean(dim=0)
        for first in range(0, len(alike), _AT_ONCE):
            part = rows(torch.arange(first, min(first + _AT_ONCE, len(alike)), device=device)).float()
            alike[first : first + _AT_ONCE] = part @ mean / (part.norm(dim=-1) * mean.norm()).clamp(min=1e-12)
    return alike


def _near(loaded: Loaded, cosines: Tensor, word: PlacedWord) -> list[str]:
    tokenizer = loaded.require_tokenizer()
    ids = cosines.topk(min(_READ, len(cosines))).indices.tolist()
    shown = [tokenizer.shown(id) for id in ids if not tokenizer.is_special(id)]
    # Tables that mark the start of a word, and those that mark its going on.
    begins = _BLANK if any(each.startswith(_BLANK) for each in shown) else ""  # where a piece begins a word
    near: list[str] = []
    for piece in shown:
        name = piece.removeprefix(begins)
        is_word = piece.startswith(begins) and name.isalpha() and len(name) >= _STEM
        if is_word and len(near) < _NEAR and not _alike(name, word.name, *near):
            near.append(name)
    return near


def instead_of(trace: Trace, layer: int, head: int, query: int, key: int) -> list[dict[str, Any]]:
    """What the word of a token gives to other words in the place of that of another: `text` and `share`.

    Raises:
        InputError: tokens that are in no word, or of the same one; or of a text and its pair.
    """
    encoding, loaded = trace.stack(None).encoding, trace.require_model()
    # Both tokens must be of words, and of two.
    numbers = [encoding.tokens[token].word for token in (query, key)]
    if len(encoding.texts) != 1 or None in numbers or numbers[0] == numbers[1]:
        raise InputError(f"query and key must be tokens of two words of one text; got {query} and {key}.")
    (text,), span = encoding.texts, encoding.words[numbers[1] or 0].span
    names, shares = other_words(trace, key), []
    # The text with each other word in its place.
    texts = [text[: span[0]] + name + text[span[1] :] for name in names]
    traces = TraceOfRun.of_texts(loaded, texts, keeping=KeepPolicy(keep="qk", layers=layer))
    for name, other in zip(names, traces, strict=True):
        tokens = other.stack(None).encoding.tokens
        # The words keep their numbers, not their tokens.
        own, there = ([place for place, each in enumerate(tokens) if each.word == word] for word in numbers)
        row = other.weights(layer, head)[own].double().mean(dim=0)
        shares.append({"text": name, "share": round(float(row[there].sum()), 5)})
    return shares
