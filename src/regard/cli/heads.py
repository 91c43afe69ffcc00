"""`regard heads`: what each head does, over a sentence or a file of texts."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.cli._input import as_typed, count_lines, load_model, read_lines, read_texts
from regard.cli._options import JSON, KIND, MODEL, Kind, argument, flag, option
from regard.cli._output import BarOrLines, PassedOver, check_table, console, print_json, say
from regard.core.arguments import BelowOne, Natural
from regard.core.errors import InputError


def heads(
    text: str | None = argument("TEXT", "A text; - reads it from stdin.", None),
    file: Path | None = option("--file -f FILE", "A file, one text a line; - reads stdin."),
    repeat: int | None = option("--repeat N", "Read N sequences of random tokens, each repeated once."),
    target: str | None = option("--target TEXT", "With TEXT: the decoder's text, in an encoder-decoder."),
    target_file: Path | None = option(
        "--target-file FILE", "With --file: the decoder's texts, line by line."
    ),
    kind: Kind | None = KIND,
    layer: int | None = option("--layer -l N", "This layer only; -1 is the last."),
    head: int | None = option(
        "--head -n N", "Without --statistics: this head only; with --layer, its whole card."
    ),
    statistics: bool = flag(
        "--statistics", "With TEXT: numbers instead, how widely and how far each head looks."
    ),
    threshold: BelowOne = option(
        "--threshold X", "Without --statistics: what the lower end of the interval must exceed.", 0.1
    ),
    seed: Natural = option("--seed N", "Without --statistics: the seed of the draws.", 0),
    output: Path | None = option("--output -o FILE", "Write a .parquet, .csv, .tsv, .json or .jsonl file."),
    model: str = MODEL,
    as_json: bool = JSON,
) -> None:
    """See what each head does: previous token, induction, delimiter sink, ...

    The effect is the share of attention that the pattern's keys get, minus the share that a head without the
    pattern would give them. A head gets a pattern's name if the lower end of the effect's bootstrap interval
    exceeds the threshold; otherwise "-". Captured is the keys' share of all attention; next is the second
    strongest pattern.

    With --statistics: means over the tokens of TEXT, such as the entropy, the distance, and the weight on the
    token before; -o writes all of them.
    """
    # The texts come from one place.
    if sum(each is not None for each in (text, file, repeat)) != 1:
        raise InputError("give a TEXT, a --file or --repeat, and one of them only.")
    # Another question, of one text.
    if statistics:
        assert text is not None
        _statistics(text, target, kind, layer, output, model, as_json)
        return
    if str(file) == str(target_file) == "-":
        raise InputError("- can stand for one file only: stdin is read once.")
    if repeat is not None and repeat < 1:
        raise InputError(f"--repeat must be at least 1; got {repeat}.")
    check_table(output)
    # For the bar; None where nobody can know it.
    total = repeat if file is None else count_lines(file)
    texts: Any = None
    targets: Any = None
    lines: _Numbered | None = None
    if text is not None:
        [texts] = read_texts([text])
        targets = None if target is None else as_typed(target)
    elif file is not None:
        # Blank lines count where another file goes along line by line.
        texts = lines = _Numbered(file, blank_too=target_file is not None)
        if target_file is not None:
            targets = (line for _, line in read_lines(target_file, "--target-file", blank_too=True))
    # After the checks and the opening of files.
    loaded = load_model(model)
    passed_over = PassedOver("line")
    if repeat is not None:
        from regard.tracing import repeated_tokens

        texts = repeated_tokens(loaded.loaded, repeat, seed=seed)
    with BarOrLines() as progress:
        table = loaded.heads(
            # A single text shows no bar.
            texts if text is not None else _counted(texts, total, progress),
            targets=targets,
            kind=None if kind is None else kind.value,
            layer=layer,
            head=head,
            threshold=threshold,
            seed=seed,
            # A text that is too long is passed over, and told by its line.
            on_refused=None if lines is None else lambda _, error: passed_over.add(lines.line, error),
        )
    passed_over.end()
    # Without targets the decoder reads nothing.
    if len(loaded.network.prefixes) == 2 and targets is None:
        say("the encoder's heads only; for the decoder's, give --target or --target-file")
    if output is not None:
        table.write(output)
    if as_json:
        print_json(table.to_json())
    elif output is None:
        console().print(table)


def _statistics(
    text: str,
    target: str | None,
    kind: Kind | None,
    layer: int | None,
    output: Path | None,
    model: str,
    as_json: bool,
) -> None:
    """Numbers of every head, in a table for each kind of attention."""
    check_table(output)
    [text] = read_texts([text])
    loaded = load_model(model)
    trace = loaded.trace(text, target=None if target is None else as_typed(target))
    # A table for each kind.
    kinds = trace.kinds if kind is None else (trace.kind(kind.value),)
    tables = [trace.statistics(each, layers=layer) for each in kinds]
    if output is not None:
        if len(tables) > 1:
            raise InputError(f"--output takes one kind of attention; give --kind: {' or '.join(kinds)}.")
        tables[0].write(output)
    if as_json:
        rows = ({"kind": each.kind, **row} for each in tables for row in each.to_rows())
        # JSON has no NaN.
        print_json([{name: None if value != value else value for name, value in row.items()} for row in rows])
    elif output is None:
        for each in tables:
            console().print(each)


class _Numbered:
    """The texts of a file; `line` is the number of the last one given out.

    The first one is read at once, so that a file that cannot be used is refused before a model is loaded.
    """

    def __init__(self, file: Path, *, blank_too: bool) -> None:
        self.line = 0
        rest = read_lines(file, "--file", blank_too=blank_too)
        # The first line is read now: an empty file is refused before the model is loaded.
        self._lines = chain(list(islice(rest, 1)), rest)

    def __iter__(self) -> Iterator[str]:
        for number, text in self._lines:
            self.line = number
            yield text


def _counted(texts: Any, total: int | None, progress: BarOrLines) -> Iterator[Any]:
    """The texts, counted as they go by."""
    for count, text in enumerate(texts, start=1):
        yield text
        progress(count, total)
