"""`regard generate` and `regard fill`: a model goes on with a text, or guesses what stands behind a mask."""

import re
import sys

import typer

from regard.cli import _writing_options as writing
from regard.cli._input import load_model, read_texts
from regard.cli._options import JSON, WRITING_MODEL, argument, flag, option
from regard.cli._output import console, print_json
from regard.core.errors import InputError
from regard.core.wording import printable


def generate(
    ctx: typer.Context,
    texts: list[str] = argument("TEXT", "The beginning of a text, or several; - reads it from stdin."),
    model: str | None = WRITING_MODEL,
    max_length: int | None = writing.MAX,
    min_length: int | None = writing.MIN,
    stop: list[str] | None = option("--stop TEXT", "End before this text; give it again for more."),
    count: int | None = option("--count N", "How many texts: drawn, or the best beams."),
    sample: bool = flag("--sample", "Draw tokens by their probability; so do the next four options."),
    temperature: float | None = option("--temperature X", "Below 1: likelier tokens; above 1: more variety."),
    top_k: int | None = option("--top-k N", "Draw only from the N likeliest tokens."),
    top_p: float | None = option("--top-p P", "Draw from the likeliest that sum to P."),
    min_p: float | None = option("--min-p P", "Draw from those with at least P times the highest."),
    seed: int | None = option("--seed N", "The seed of the draws: the same text every time."),
    beams: int | None = writing.BEAMS,
    length_penalty: float | None = writing.LENGTH_PENALTY,
    repetition_penalty: float | None = writing.REPETITION,
    no_repeat: int | None = writing.NO_REPEAT,
    recommended: bool = writing.RECOMMENDED,
    precision: str = writing.PRECISION,
    lookup: bool = writing.LOOKUP,
    draft: str | None = writing.DRAFT,
    as_json: bool = JSON,
) -> None:
    """Let a language model continue a text. Prints the new text, without its beginning.

    A single text is shown as it is written. An empty line separates several; with --beams each begins with
    its score.
    """
    given = ctx.params
    writing.check_choice(given)
    prompts = read_texts(texts)
    if not all(prompt.strip() for prompt in prompts):
        raise InputError("TEXT is empty: there is nothing to go on with.")
    loaded = writing.model_of(given, "gpt2")
    choice, rules, stops = writing.choice_of(loaded, given), writing.rules_of(given), stop or ()
    from regard.decoding import Beams

    if len(prompts) == 1 and count is None and not as_json and not isinstance(choice, Beams):
        # Beams have nothing to show before their end.
        for piece in loaded.stream(prompts[0], choice=choice, stop=stops, **rules):
            typer.echo(_shown(piece), nl=False)
        typer.echo()
        return
    found = loaded.generate(
        prompts, choice=choice, count=1 if count is None else count, stop=stops, progress=_quiet, **rules
    )
    if as_json:
        print_json({"model": loaded.name, "texts": [[way.to_json() for way in ways] for ways in found]})
        return
    scored = isinstance(choice, Beams) and count is not None
    typer.echo(
        "\n\n".join(
            (f"{way.score:.4f} " if scored else "") + _shown(way.text) for ways in found for way in ways
        )
    )


def fill(
    text: str = argument("TEXT", "A text with [MASK] or <mask>, as the model spells it; - is stdin."),
    model: str | None = WRITING_MODEL,
    top: int = option("--top N", "Guesses for each mask.", 5),
    as_json: bool = JSON,
) -> None:
    """Guess the words behind the masks of a text, as a masked language model does.

    If there are several masks, each is guessed by itself, while the others stay masks.
    """
    [text] = read_texts([text])
    loaded = load_model(writing.required(model, "bert-base-uncased"))
    filled = loaded.fill(text, top=top)
    if as_json:
        print_json({"model": loaded.name, "text": text, "best": filled.best, "guesses": filled.to_rows()})
        return
    console().print(filled)


def _quiet(done: int, total: int) -> None:
    del done, total


def _shown(text: str) -> str:
    """As it is, but on a terminal, which would obey control characters, with signs for those."""
    return re.sub(r"[^\n\t]+", lambda part: printable(part[0]), text) if sys.stdout.isatty() else text
