"""Senses in a file that people edit: names, each with uses as examples; and asking for more of them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from regard.concordance._lines import Line
from regard.concordance._meaning import span_of
from regard.concordance._store import Store
from regard.concordance._teach import Head, fit, next_use
from regard.concordance._uses import Found, Place, places
from regard.concordance._vectors import Span, VectorCache
from regard.core.errors import CheckpointError, InputError
from regard.core.files import write_whole
from regard.core.json import parse_object
from regard.text import fold

UNSURE: Final = "unsure"

Examples = dict[str, list[Span]]
"""By sense, uses in their texts."""


def span_at(place: Place) -> Span:
    return Span(place.body, place.start, place.stop)


def marked(span: Span) -> str | list[str]:
    """A use as people write it, "on the *bank*"; as three parts where its text has asterisks of its own."""
    parts = [span.text[: span.start], span.text[span.start : span.stop], span.text[span.stop :]]
    return parts if "*" in span.text else "*".join(parts)


def write_examples(file: Path, word: str, examples: Mapping[str, Sequence[Span]]) -> None:
    """Write the senses to a file that people edit, whole or not at all."""
    content = {
        "word": word,
        "senses": {name: [marked(each) for each in of] for name, of in examples.items()},
    }
    write_whole(file, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def read_examples(file: Path, word: str, *, least: int = 2) -> Examples:
    """The senses in a file, each with its examples; as many as `least`."""
    try:
        content = parse_object(file.read_bytes(), str(file))
    except (OSError, CheckpointError) as error:
        raise InputError(f"file must be a JSON file of senses: {error}") from error
    senses = content.get("senses")
    if not isinstance(senses, dict) or not all(isinstance(each, list) for each in senses.values()):
        raise InputError(f'file must have "senses", a list of examples for each name; {str(file)!r} has not.')
    if fold(str(content.get("word", ""))) != fold(word):
        raise InputError(f"word must be that of {str(file)!r}, {content.get('word')!r}; got {word!r}.")
    found: Examples = {}
    for name, examples in senses.items():
        for each in examples:
            if isinstance(each, list) and len(each) == 3 and all(isinstance(part, str) for part in each):
                span = Span("".join(each), len(each[0]), len(each[0]) + len(each[1]))
            elif isinstance(each, str):
                span = span_of(each, None)
            else:
                raise InputError(
                    f'an example must be a text with its word marked, "on the *bank*"; got {each!r}.'
                )
            found.setdefault(name, []).append(span)
    if len(found) < least or UNSURE in found:
        raise InputError(
            f"file must have examples of two senses or more, none named {UNSURE!r}; {str(file)!r} has "
            f"{', '.join(found) or 'none'}."
        )
    return found


def head_of(cache: VectorCache, examples: Examples) -> Head:
    """The head that examples give, whose vectors the model computes anew: a file goes with any model."""
    names = [name for name, spans in examples.items() for _ in spans]
    return fit(cache.embed([span for spans in examples.values() for span in spans]), names)


def teach(
    store: Store,
    cache: VectorCache,
    word: str,
    found: Found,
    file: Path,
    ask: Callable[[Line, Sequence[str]], str | None],
    *,
    most: int = 20,
    progress: Callable[[int, int], object] | None = None,
) -> int:
    """Ask for the senses of uses, those first that decide most: see `Concordance.teach`."""
    examples = read_examples(file, word, least=0) if file.exists() else {}
    vectors, lines = cache.of(found, progress), [Line(place) for place in places(store, found)]
    said = {(span.text, span.start) for spans in examples.values() for span in spans}
    asked = [row for row, line in enumerate(lines) if (line.place.body, line.place.start) in said]
    count = 0
    while count < most:
        head = head_of(cache, examples) if len(examples) > 1 else None
        row = next_use(vectors, asked, head)
        if row is None:
            break
        line = lines[row]
        if head is not None:
            shares = head.probabilities(vectors[[row]])[0]
            line = replace(line, label=head.names[int(shares.argmax())], probability=float(shares.max()))
        answer = ask(line, tuple(examples))
        if answer is None:
            break
        if answer == UNSURE:
            raise InputError(f"a sense must have another name than {UNSURE!r}: pass the line over instead.")
        asked.append(row)
        if answer:
            examples.setdefault(answer, []).append(span_at(line.place))
            write_examples(file, word, examples)
            count += 1
    return count
