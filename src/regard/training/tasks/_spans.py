"""Spans of words, written as tags: B-LOC, I-LOC, O."""

from collections.abc import Sequence

Span = tuple[str, int, int]
"""Its kind, its first word, and the word after its last."""


def is_bio(tags: Sequence[str]) -> bool:
    """Whether tags tell spans: each is "O", or begins with one of B-, I-, E- and S-.

    Example:
        >>> is_bio(["O", "B-LOC", "I-LOC"]), is_bio(["NOUN", "O"])
        (True, False)
    """
    return all(tag == "O" or tag[:2] in ("B-", "I-", "E-", "S-") for tag in tags) and set(tags) != {"O"}


def kinds_of(tags: Sequence[str]) -> tuple[str, ...]:
    """The kinds of spans, in order."""
    return tuple(sorted({tag[2:] for tag in tags if tag != "O"}))


def spans(tags: Sequence[str]) -> set[Span]:
    """The spans that the tags of a text tell.

    An I- that does not go on from a word of its kind begins a span, as in IOB1 and in what a model says.

    Example:
        >>> sorted(spans(["B-LOC", "I-LOC", "B-LOC", "O", "I-PER", "I-LOC"]))
        [('LOC', 0, 2), ('LOC', 2, 3), ('LOC', 5, 6), ('PER', 4, 5)]

    Source: conlleval.pl, Tjong Kim Sang 2004, "endOfChunk" and "startOfChunk"; seqeval has the same rules.
    """
    found: set[Span] = set()
    start, kind, before = 0, "", "O"
    for place, tag in enumerate([*tags, "O"]):
        prefix = tag[0]
        goes_on = prefix in "IE" and before in "BI" and tag[2:] == kind
        if not goes_on:
            if before != "O":
                found.add((kind, start, place))
            start, kind = place, tag[2:]
        before = prefix
    return found
