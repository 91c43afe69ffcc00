"""What a decoder says next, for the door that writes: as static/live/next.js tells it in a page."""

from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.errors import CheckpointError, InputError
from regard.models import Loaded
from regard.text import Encoding, Tokenizer, is_part
from regard.tracing.pages._reads import Reads

_BEST = 5
_LONGEST = 8  # tokens of one character
THE_END = {"text": "(the end)", "isText": False}
_LOSS = "What comes next is no character: the model is at a loss."
_REPLACED = "\N{REPLACEMENT CHARACTER}"


class WriteRequest(NamedTuple):
    """How the next word is chosen.

    Attributes:
        temperature: that the logits are divided by; 0 for the likeliest token.
        drawn: a number from 0 to 1, up to which the tokens' shares are added for the one that is written
            first; None for none.
    """

    temperature: float = 0.0
    drawn: float | None = None


def next_of(loaded: Loaded, text: str, asked: WriteRequest, reads: Reads) -> dict[str, Any]:
    """What comes next after a text, or after the word that is written behind it, as plain values: see
    static/live/next.js. `reads` is what was read before.

    Raises:
        InputError: a model that says no next word, or a text that it cannot take.
    """
    began = perf_counter()
    if loaded.network.prefixes.keys() != {"decoder"} or not loaded.network.has_vocabulary_head:
        raise InputError("write must be asked of a decoder with a language-model head; this model has none.")
    tokenizer = loaded.require_tokenizer()
    chosen, ended = None, ""
    # A token is written first; then what comes after it is asked.
    if asked.drawn is not None:
        chosen, ended = _chosen(loaded, tokenizer.encode(text).token_ids, asked, reads)
        text += "" if chosen is None else chosen["text"]
    encoding = tokenizer.encode(text)
    ids = encoding.token_ids
    # Only what is new is read.
    logits, taken, rests = reads.reader(loaded, ids).said(encoding)
    shares, tempered = logits.softmax(dim=0), _tempered(logits, asked.temperature)
    best = [
        {
            **(THE_END if id in tokenizer.end_ids else spelled(tokenizer, list(ids[-1:]), id)),
            "probability": float(shares[id]),
            "tempered": float(tempered[id]),
        }
        for id in logits.topk(min(_BEST, len(logits))).indices.tolist()
    ]
    read = encoded(encoding)
    return {
        "text": text,
        "words": read["words"],
        "wordSpans": read["wordSpans"],
        "wordOf": [-1 if each["word"] is None else each["word"] for each in read["tokens"]],
        "best": best,
        "taken": taken.tolist(),
        "rests": rests,
        "chosen": chosen,
        "ended": ended,
        "milliseconds": 1000 * (perf_counter() - began),
    }


def _tempered(logits: Tensor, temperature: float) -> Tensor:
    if temperature > 0:
        return (logits / temperature).softmax(dim=0)
    # At temperature 0 the likeliest has everything.
    return torch.nn.functional.one_hot(logits.argmax(), len(logits)).double()


def _chosen(
    loaded: Loaded, ids: tuple[int, ...], asked: WriteRequest, reads: Reads
) -> tuple[dict[str, Any] | None, str]:
    """The text of the next token, or of as many as a character has; None with the reason where none comes."""
    tokenizer, new, is_likeliest = loaded.require_tokenizer(), list[int](), True
    before, place = tokenizer.decode(ids), float(asked.drawn or 0.0)
    # Until the tokens give a whole character.
    while len(new) < _LONGEST:
        logits = reads.reader(loaded, ids).logits([*ids, *new])
        # Both shares: the model's own, and that by which it is drawn.
        tempered = _tempered(logits, asked.temperature)
        # The first token whose sum exceeds the number drawn.
        sums = tempered.cumsum(dim=0)
        drawn = place * sums[-1]
        best = int(logits.argmax())
        id = best if asked.temperature == 0 else min(int((sums <= drawn).sum()), len(sums) - 1)
        # How far into its own share that is, by which the next part of a character is drawn.
        below, share = float(sums[id] - tempered[id]), float(tempered[id])
        place = (float(drawn) - below) / share if share > 0 else 0.0
        if id in tokenizer.end_ids:
            return None, "The model ends its text here."
        new.append(id)
        is_likeliest &= id == best
        # Half a character reads as the replacement sign.
        text = tokenizer.decode([*ids, *new]).removeprefix(before)
        if text and _REPLACED not in text:
            return {"text": text, "isLikeliest": is_likeliest}, ""
    return None, _LOSS


def spelled(tokenizer: Tokenizer, before: list[int], id: int) -> dict[str, Any]:
    """A token as text that can be typed, or as what stands for it."""
    known, whole = tokenizer.decode(before), tokenizer.decode([*before, id])
    # After a token a word shows whether it begins with a blank.
    text = whole.removeprefix(known) if before else whole.strip()
    is_text = text != "" and _REPLACED not in text
    return {"text": text if is_text else tokenizer.shown(id), "isText": is_text}


def encoded(encoding: Encoding) -> dict[str, Any]:
    """The tokens as a page's tokenizer would give them: spans count in UTF-16, as JavaScript does."""
    return {
        "ids": list(encoding.token_ids),
        "words": [word.text for word in encoding.words],
        "wordSpans": [_in_utf16(encoding.texts[word.sequence or 0], word.span) for word in encoding.words],
        "tokens": [
            {
                "text": token.text,
                "surface": token.surface,
                "bytes": token.label if is_part(token.shown) else None,
                "special": token.special,
                "sequence": token.sequence,
                "word": token.word,
                "span": _in_utf16(encoding.texts[token.sequence or 0], token.span),
            }
            for token in encoding.tokens
        ],
    }


def _in_utf16(text: str, span: tuple[int, int] | None) -> list[int] | None:
    return None if span is None else [len(text[:place].encode("utf-16-le")) // 2 for place in span]


def marks_of(tokenizer: Tokenizer) -> dict[str, str] | None:
    """What the template puts before a first question, behind a question, and behind an answer; None without
    one, or where that depends on more."""
    if tokenizer.chat_template is None:
        return None
    question, answer = ({"role": role, "content": _SAID} for role in ("user", "assistant"))
    try:
        # A chat of one question, and one of question, answer, question.
        short, long = (
            tokenizer.chat(each).split(_SAID) for each in ([question], [question, answer, question])
        )
    except (InputError, CheckpointError):
        return None
    # The marks must be the same around each message, or the page could not go on by itself.
    if len(short) != 2 or len(long) != 4 or [long[0], long[1], long[3]] != [*short, short[1]]:
        return None
    return {"begin": short[0], "answer": short[1], "again": long[2]}


_SAID = "What is said, 3f9c."  # words that no template has
