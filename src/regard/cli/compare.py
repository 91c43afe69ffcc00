"""`regard compare`: one word in several sentences, or each head's attention in two texts or two models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.cli._input import as_typed, load_model, read_texts
from regard.cli._options import JSON, MODEL, Kind, argument, flag, option
from regard.cli._output import check_outputs, console, print_json, print_path
from regard.core.errors import InputError


def compare(
    texts: list[str] = argument("TEXT", "Two sentences or more; - reads one from stdin."),
    word: list[str] | None = option(
        "--word -w WORD",
        'The word, once for all texts or once for each; "bank#2" is its second occurrence, "16:20" '
        "the characters 16 to 20.",
    ),
    heads: bool = flag("--heads", "Instead of --word: compare how differently each head attends."),
    against: str | None = option("--against MODEL", "With --heads: another model, for one text."),
    kind: Kind | None = option("--kind -k KIND", "With --heads: encoder, decoder or cross."),
    plot: Path | None = option("--plot FILE", "Without --heads: draw it too, in a .png, .svg or .pdf file."),
    page: Path | None = option(
        "--page FILE", "Write an interactive page too: the word's movement, or with --heads the difference."
    ),
    model: str = MODEL,
    as_json: bool = JSON,
) -> None:
    """See how alike one word's vectors are between sentences, at every layer.

    1 means the same direction. Layer 0 is the learned embedding, which is the same in every sentence; the
    last layer is the contextual one.

    With --heads, see how differently each head attends in two texts, or in two models with --against: the
    Jensen-Shannon divergence of its rows, over the tokens that both have, 0 for the same and 1 for nothing
    in common. The interactive page of --page shows where.
    """
    # Two commands in one: a word, or heads.
    if heads:
        _compare_heads(texts, model, against, kind, page, as_json)
        return
    if not word:
        raise InputError("give --word, whose vectors are compared, or --heads.")
    if len(texts) < 2:
        raise InputError("give two texts or more, to compare the word between them.")
    check_outputs({"--plot": plot, "--page": page})
    # Checked and read before the model is loaded.
    texts = read_texts(texts)
    words = [as_typed(each) for each in word]
    # One word for all texts, or one for each.
    chosen = words[0] if len(words) == 1 else words
    traces = load_model(model).trace(texts)
    from regard.tracing import compare as compare_traces
    from regard.tracing import comparison_page

    comparison = compare_traces(traces, chosen)
    if page is not None:
        comparison_page(traces, chosen).write(page)
    if plot is not None:
        comparison.plot(plot)
    _show(comparison, {"page": page, "plot": plot}, as_json)


def _compare_heads(
    texts: list[str],
    model: str,
    against: str | None,
    kind: Kind | None,
    page: Path | None,
    as_json: bool,
) -> None:
    if len(texts) != (2 if against is None else 1):
        raise InputError("--heads compares two texts in one model, or one text in two, with --against.")
    check_outputs({"--page": page})
    texts = read_texts(texts)
    # One model and two texts, or two models and one text.
    models = [load_model(name) for name in (model, against) if name is not None]
    # A page shows values and vectors too.
    traces = [each.trace(text, keep="qk" if page is None else "all") for each in models for text in texts]
    from regard.tracing import divergence

    if page is not None:
        traces[0].difference_page(traces[1]).write(page)
    divergences = divergence(traces[0], traces[1], None if kind is None else kind.value)
    _show(divergences, {"page": page}, as_json)


def _show(found: Any, files: Mapping[str, Path | None], as_json: bool) -> None:
    """What was found, and where the files are that were written of it."""
    written = {name: file.resolve() for name, file in files.items() if file is not None}
    if as_json:
        print_json({**found.to_json(), **{name: str(file) for name, file in written.items()}})
        return
    console().print(found)
    for file in written.values():
        print_path(file)
