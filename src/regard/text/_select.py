"""From what a person writes ("bank", "bank#2", "river bank", "16:20", "[CLS]", -1) to token positions."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import regex  # type: ignore[import-untyped, unused-ignore]

from regard.core.errors import InputError
from regard.text._tokens import Span, Token, Word, reach
from regard.text._words import fold, shown, split_words

# [0-9], not \d: a selector is written in ASCII digits, "²" and "٢" belong to words.
_CHOICE: Final = re.compile(r"(?s)(?P<name>.+)#(?P<number>[0-9]{1,9})")
_SPAN: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")

_CONTROLS: Final = regex.compile(r"(?V1)[\p{Cc}--\p{White_Space}]+")

# Messages stay readable: at most so many words and places are listed, with a little around each.
_WORDS_LISTED: Final = 40
_OCCURRENCES_LISTED: Final = 20
_CONTEXT_WORDS: Final = 3
_CONTEXT_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class _Occurrence:
    """A place where the query was found; without words where it is a special token."""

    tokens: tuple[int, ...]
    words: Sequence[Word]


def select(
    selector: str | int | tuple[int, ...],
    texts: Sequence[str],
    tokens: Sequence[Token],
    words: Sequence[Word],
) -> tuple[int, ...]:
    """The token positions that `selector` names; see `Encoding.find`."""
    if isinstance(selector, tuple):
        return _between(selector, texts, tokens)
    if not isinstance(selector, str):
        return (_position(selector, len(tokens)),)
    # In a text blanks around the selector do not count; a piece may be a blank.
    name = selector.strip() if texts else selector
    if texts and not split_words(name):
        raise InputError(
            f"selector names no word: got {shown(selector)}; give a word of the text, or a token position"
        )
    # "bank#2": the name and the number, if it has that form.
    choice = _CHOICE.fullmatch(name)
    base = choice["name"].strip() if choice else name
    places = _occurrences(base, texts, tokens, words)
    number = int(choice["number"]) if choice else 1
    # A number beyond what there is: perhaps the "#" belongs to the text.
    if choice and not 1 <= number <= len(places) and (written := _occurrences(name, texts, tokens, words)):
        # "issue#42" in a text with fewer issues is what the text says.
        choice, base, places, number = None, name, written, 1
    # Text first, span second: "16:20" may be a time in the text.
    if not places and texts and (span := _SPAN.fullmatch(name)):
        return _between((int(span[1]), int(span[2])), texts, tokens)
    if not places:
        raise InputError(_not_in_text(base, texts, words) if texts else _no_piece(base, tokens))
    # Several places and no choice: guessing would show another word.
    if choice is None and len(places) > 1:
        where = _listed(name, places, texts)
        raise InputError(f"{shown(name)} occurs {_times(places, texts)}: {where}; choose one of these")
    if not 1 <= number <= len(places):
        raise InputError(_no_such_occurrence(name, base, number, places, texts))
    return _tokens_of(name, places[number - 1], texts, tokens, words)


def _position(selector: object, count: int) -> int:
    try:
        # operator.index lets numpy's integers pass; a bool is an integer to it, and never meant as one.
        position = operator.index(selector)  # type: ignore[arg-type]
    except TypeError:
        position = None
    if position is None or isinstance(selector, bool):
        raise InputError(
            "selector must be a word or a token position; "
            f"got {type(selector).__name__} {shown(repr(selector))}"
        )
    if not -count <= position < count:
        raise InputError(
            f"token position {position} is out of range: the text has {count} tokens, "
            f"so 0 to {count - 1}, or -{count} to -1 from the end"
        )
    return position % count


def _between(span: tuple[int, ...], texts: Sequence[str], tokens: Sequence[Token]) -> tuple[int, ...]:
    """The tokens of what stands between two places of a text: of a pair's second where a 1 follows."""
    try:
        # Two or three numbers; more, or others, are no span.
        start, end, sequence = map(operator.index, (*span, 0)[: max(3, len(span))])
    except (TypeError, ValueError):
        start = end = sequence = 0
    if not (0 <= sequence < len(texts) and 0 <= start < end <= len(texts[sequence])):
        of = " and ".join(f"{len(text)} characters" for text in texts) or "no text, since it was given as ids"
        raise InputError(f"selector must be a span (start, end) of tokens, within {of}; got {span}")
    asked = f"span {start}:{end}, {shown(texts[sequence][start:end])},"
    inside = []
    for token in tokens:
        first, last = token.span or (0, 0)
        # Blank tokens between words are not selected by a span.
        seen = token.special or token.word is not None
        if seen and token.sequence == sequence and first < min(last, end) and start < last:
            # A token is shown or it is not: a part of one cannot be asked for.
            if first < start or end < last:
                raise InputError(
                    f"{asked} has only a part of token {token.index}, {shown(token.surface)}; "
                    f"give {first}:{last} in full"
                )
            inside.append(token.index)
    if not inside:
        raise InputError(f"{asked} has no token; give another")
    return tuple(inside)


def _occurrences(
    name: str, texts: Sequence[str], tokens: Sequence[Token], words: Sequence[Word]
) -> list[_Occurrence]:
    asked = [name[start:end] for start, end in split_words(name)]
    special = [
        # Special tokens are named by their exact text.
        _Occurrence(tokens=(token.index,), words=())
        for token in tokens
        if (token.special or not texts) and name in (token.text, token.shown)
    ]
    if special or not texts or not asked:
        return special
    # As it is written first, then folded.
    for key in (str, fold):
        for parts in ([name], asked):  # a word that was given may be several to Unicode
            if phrases := list(_phrases(parts, words, key)):
                return phrases
    return list(_run_together(fold(name), texts, words))


def _phrases(asked: Sequence[str], words: Sequence[Word], key: Callable[[str], str]) -> Iterator[_Occurrence]:
    wanted = [key(word) for word in asked]
    keys = [key(word.text) for word in words]
    size = len(wanted)
    for start in range(len(words) - size + 1):
        # The first word by itself first: slices at every word would cost more than the search.
        if keys[start] != wanted[0] or keys[start : start + size] != wanted:
            continue
        run = words[start : start + size]
        # Words of both texts follow each other, but a phrase is of one.
        if run[0].sequence == run[-1].sequence:
            yield _Occurrence(tokens=tuple(token for word in run for token in word.tokens), words=run)


def _run_together(name: str, texts: Sequence[str], words: Sequence[Word]) -> Iterator[_Occurrence]:
    """Words that only control characters part, which nobody sees: "inter", U+0002, "national"."""
    runs: list[list[Word]] = []
    for word in words:
        last = runs[-1][-1] if runs else word
        between = texts[word.sequence][last.span[1] : word.span[0]]
        if last.sequence == word.sequence and _CONTROLS.fullmatch(between):
            runs[-1].append(word)
        else:
            runs.append([word])
    for run in runs:
        if len(run) > 1 and fold("".join(word.text for word in run)) == name:
            yield _Occurrence(tokens=tuple(token for word in run for token in word.tokens), words=run)


def _tokens_of(
    name: str, occurrence: _Occurrence, texts: Sequence[str], tokens: Sequence[Token], words: Sequence[Word]
) -> tuple[int, ...]:
    # A token that also stands for a neighbour would answer for more than was asked.
    if occurrence.tokens and occurrence.words:
        _check_whole(name, occurrence, texts, tokens, words)
    if occurrence.tokens:
        return occurrence.tokens
    # No token of its own: say what has become of the word.
    word = occurrence.words[0]
    for token in tokens:
        if token.sequence != word.sequence or token.span is None:
            continue
        # A token that overlaps the word.
        if token.span[0] < word.span[1] and word.span[0] < token.span[1]:
            if token.special:
                raise InputError(
                    f"{shown(name)} is part of the special token {shown(token.text)} at token {token.index}: "
                    f"select {shown(token.text)}, or position {token.index}"
                )
            if token.word is not None:
                raise _joined(name, token, *_reach(token.span, token.word, texts, words), texts)
    context = _context(occurrence, texts)
    raise InputError(
        f"the tokenizer dropped {shown(name)} ({context}) and left no token for it; choose another word"
    )


def _check_whole(
    name: str, occurrence: _Occurrence, texts: Sequence[str], tokens: Sequence[Token], words: Sequence[Word]
) -> None:
    """Raise InputError where a token of what was asked for stands for a word beside it too."""
    asked = range(occurrence.words[0].index, occurrence.words[-1].index + 1)
    for token in (tokens[position] for position in occurrence.tokens):
        if token.span is not None and token.word is not None:
            first, last = _reach(token.span, token.word, texts, words)
            if first.index not in asked or last.index not in asked:
                raise _joined(name, token, first, last, texts)


def _reach(span: Span, word: int, texts: Sequence[str], words: Sequence[Word]) -> tuple[Word, Word]:
    """The first and the last word that a token stands for; see `reach`."""
    sequence = words[word].sequence
    own = [each for each in words if each.sequence == sequence]
    before = own[0].index
    first, last = reach(texts[sequence], span, [each.span for each in own], word - before)
    return words[first + before], words[last + before]


def _joined(name: str, token: Token, first: Word, last: Word, texts: Sequence[str]) -> InputError:
    joined = texts[first.sequence][first.span[0] : last.span[1]]
    return InputError(
        f"{shown(name)} has no token of its own: the tokenizer joins it with what is beside it in token "
        f"{token.index}, {shown(token.text)}; select {shown(joined)}, or position {token.index}"
    )


def _no_such_occurrence(
    name: str, base: str, number: int, candidates: Sequence[_Occurrence], texts: Sequence[str]
) -> str:
    count = len(candidates)
    reach = f"{shown(base)} or {shown(base + '#1')}" if count == 1 else f"1 to {count}"
    return (
        f"{shown(name)} asks for occurrence {number}, but {shown(base)} occurs {_times(candidates, texts)}: "
        f"{_listed(base, candidates, texts)}; choose {reach}"
    )


def _times(found: Sequence[_Occurrence], texts: Sequence[str]) -> str:
    return ("once" if len(found) == 1 else f"{len(found)} times") + (" in the text" if texts else "")


def _listed(name: str, found: Sequence[_Occurrence], texts: Sequence[str]) -> str:
    places = []
    for number, occurrence in enumerate(found[:_OCCURRENCES_LISTED], start=1):
        where = f"at {_token_list(occurrence.tokens)}{_sentence(occurrence, texts)}"
        places.append(f"{shown(f'{name}#{number}')} {where}")
        if occurrence.words:
            places[-1] += f" ({_context(occurrence, texts)})"
    if len(found) > _OCCURRENCES_LISTED:
        places.append(f"and {len(found) - _OCCURRENCES_LISTED} more")
    return ", ".join(places)


def _token_list(positions: Sequence[int]) -> str:
    if not positions:
        return "no token"
    if len(positions) == 1:
        return f"token {positions[0]}"
    if len(positions) > 4:
        return f"tokens {positions[0]}, {positions[1]}, … {positions[-1]}"
    return f"tokens {', '.join(map(str, positions))}"


def _sentence(occurrence: _Occurrence, texts: Sequence[str]) -> str:
    if len(texts) == 1 or not occurrence.words:
        return ""
    return f" in the {('first', 'second')[occurrence.words[0].sequence]} text"


def _context(occurrence: _Occurrence, texts: Sequence[str]) -> str:
    """The occurrence with a few words on either side."""
    first, last = occurrence.words[0], occurrence.words[-1]
    text = texts[first.sequence]
    # By characters, then to whole words: a text without blanks must not be quoted in full.
    head = text[max(0, first.span[0] - _CONTEXT_CHARACTERS) : first.span[0]]
    tail = text[last.span[1] : last.span[1] + _CONTEXT_CHARACTERS]
    before = [start for start, _ in split_words(head)][-_CONTEXT_WORDS:]
    after = [end for _, end in split_words(tail)][:_CONTEXT_WORDS]
    start = first.span[0] - len(head) + before[0] if before else first.span[0]
    end = last.span[1] + after[-1] if after else last.span[1]
    quoted = shown(text[start:end])[1:-1]
    return f"{'…' if text[:start].strip() else ''}{quoted}{'…' if text[end:].strip() else ''}"


def _not_in_text(name: str, texts: Sequence[str], words: Sequence[Word]) -> str:
    unique = list(dict.fromkeys(word.text for word in words))
    by_key: dict[str, str] = {}
    for word in unique:
        # The first of several spellings that fold alike stands for all.
        by_key.setdefault(fold(word), word)
    near = [shown(by_key[key]) for key in difflib.get_close_matches(fold(name), list(by_key), n=3)]
    listed = ", ".join(shown(word) for word in unique[:_WORDS_LISTED])
    if len(unique) > _WORDS_LISTED:
        listed += f" and {len(unique) - _WORDS_LISTED} more"
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    where = "text" if len(texts) == 1 else "texts"
    return f"{shown(name)} is not a word of the {where}; the words are {listed}{meant}"


def _no_piece(name: str, tokens: Sequence[Token]) -> str:
    return (
        f"{shown(name)} is no piece of these tokens: only their ids are known here, and without a text "
        f"there are no words; give a position, 0 to {len(tokens) - 1}, or a piece as the vocabulary has it, "
        f"such as {shown(tokens[0].text)}"
    )
