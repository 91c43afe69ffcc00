"""`regard generate` and `regard fill`: a model goes on with a text, or guesses what stands behind a mask."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._input import as_typed, load_model, read_messages, read_texts
from regard.cli._options import DECODER, DEFAULT_DECODER, JSON, OTHER_MODEL, argument, flag, option
from regard.cli._output import console, print_json
from regard.core.arguments import Count, Natural, Positive, Share
from regard.core.errors import InputError
from regard.core.wording import printable

if TYPE_CHECKING:
    from regard.api import Model
    from regard.decoding import Beams, Choice, Speculation

# These `regard translate` has too.
MAX = option("--max N", "New tokens at most.")
MIN = option("--min N", "New tokens at least.")
BEAMS = option("--beams N", "Search with so many beams, instead of greedily.")
LENGTH_PENALTY = option("--length-penalty X", "With --beams: scores are log p / length^X; by default 1.")
REPETITION = option("--repetition-penalty X", "Above 1: tokens that were read get less likely.")
NO_REPEAT = option("--no-repeat N", "Never write the same N tokens in a row twice.")
RECOMMENDED = flag("--recommended", "Draw or search as the model's own files ask for.")
PRECISION = option(
    "--precision TYPE", "How weights are stored: float32; bfloat16 or int8 for speed.", "float32"
)
LOOKUP = flag("--lookup", "The greedy text, faster if it repeats what was read.")
DRAFT = option("--draft MODEL", "The greedy text, faster: a smaller model guesses ahead.")

_DRAWN = ("temperature", "top_k", "top_p", "min_p")


def generate(
    ctx: typer.Context,
    texts: list[str] = argument("TEXT", "The beginning of a text, or several; - reads it from stdin."),
    model: str = DECODER,
    chat: bool = flag("--chat", "Answer TEXT, as a chat model; so do the next two options."),
    system: str | None = option("--system TEXT", "What the model is told before all messages."),
    turns: Path | None = option("--messages FILE", "The messages before TEXT, a JSON list; - is stdin."),
    max_length: Count | None = MAX,
    min_length: Natural | None = MIN,
    stop: list[str] | None = option("--stop TEXT", "End before this text; give it again for more."),
    count: int | None = option("--count N", "How many texts: drawn, or the best beams."),
    sample: bool = flag("--sample", "Draw tokens by their probability; so do the next four options."),
    temperature: Positive | None = option("--temperature X", "Below 1: likelier tokens; above 1: variety."),
    top_k: Count | None = option("--top-k N", "Draw only from the N likeliest tokens."),
    top_p: Share | None = option("--top-p P", "Draw from the likeliest that sum to P."),
    min_p: Share | None = option("--min-p P", "Draw from those with at least P times the highest."),
    seed: int | None = option("--seed N", "The seed of the draws: the same text every time."),
    beams: Count | None = BEAMS,
    length_penalty: float | None = LENGTH_PENALTY,
    repetition_penalty: Positive | None = REPETITION,
    no_repeat: Natural | None = NO_REPEAT,
    recommended: bool = RECOMMENDED,
    precision: str = PRECISION,
    lookup: bool = LOOKUP,
    draft: str | None = DRAFT,
    as_json: bool = JSON,
) -> None:
    """Let a language model continue a text. Prints the new text, without its beginning.

    A single text is shown as it is written. An empty line separates several; with --beams each begins with
    its score. With --chat the answers of --json have `messages`, the answer included: a file for --messages.
    """
    typed = ctx.params
    # Options first: the model takes seconds.
    check_choice(typed)
    prompts = read_texts(texts)
    if not all(prompt.strip() for prompt in prompts):
        raise InputError("TEXT is empty: there is nothing to go on with.")
    # Messages in order: system, the earlier ones, then TEXT.
    before = [] if system is None else [{"role": "system", "content": as_typed(system)}]
    before += [] if turns is None else read_messages(turns)
    loaded = model_of(typed, DEFAULT_DECODER)
    # Each text is the next message of its own chat.
    if chat or system is not None or turns is not None:
        said = [{"role": "user", "content": prompt} for prompt in prompts]
        prompts = [loaded.tokenizer.chat([*before, message]) for message in said]
    choice, rules, stops = choice_of(loaded, typed), rules_of(typed), stop or ()
    from regard.decoding import Beams

    # One text is shown as it is written.
    if len(prompts) == 1 and count is None and not as_json and not isinstance(choice, Beams):
        # Beams have nothing to show before their end.
        for piece in loaded.stream(prompts[0], choice=choice, stop=stops, **rules):
            # Pieces as they come, without line ends between.
            typer.echo(_shown(piece), nl=False)
        typer.echo()
        return
    written = loaded.generate(
        prompts, choice=choice, count=1 if count is None else count, stop=stops, progress=_quiet, **rules
    )
    if as_json:
        print_json({"model": loaded.name, "texts": [[way.to_json() for way in ways] for ways in written]})
        return
    # Several beams differ by their score.
    scored = isinstance(choice, Beams) and count is not None
    typer.echo(
        "\n\n".join(
            (f"{way.score:.4f} " if scored else "") + _shown(way.text) for ways in written for way in ways
        )
    )


def fill(
    text: str = argument("TEXT", "A text with [MASK] or <mask>, as the model spells it; - is stdin."),
    model: str | None = OTHER_MODEL,
    top: int = option("--top N", "Guesses for each mask.", 5),
    as_json: bool = JSON,
) -> None:
    """Guess the words behind the masks of a text, as a masked language model does.

    If there are several masks, each is guessed by itself, while the others stay masks.
    """
    [text] = read_texts([text])
    loaded = load_model(required(model, "bert-base-uncased"))
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


def required(model: str | None, such_as: str) -> str:
    """The name of the model, which must be given: the default ones neither fill gaps nor translate."""
    if model is None:
        raise InputError(f"--model must be given, such as {such_as} or the folder of a run.")
    return model


def rules_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The rules that were typed; where none was, the model's own holds."""
    names = ("max_length", "min_length", "repetition_penalty", "no_repeat")
    return {name: given[name] for name in names if given[name] is not None}


def model_of(given: Mapping[str, Any], such_as: str) -> "Model":
    """The model, with its weights as they are to be stored."""
    loaded = load_model(required(given["model"], such_as))
    return loaded if given["precision"] == "float32" else loaded.prepared(given["precision"])


def choice_of(model: "Model", given: Mapping[str, Any]) -> "Choice | Beams | Speculation | None":
    """How the model chooses tokens; None is greedy."""
    from regard.decoding import Beams, Draft, Lookup, Power, Sampling

    seed = {} if given.get("seed") is None else {"seed": given["seed"]}
    # In the order in which `check_choice` lets them stand alone.
    if given["recommended"]:
        return model.recommended(**seed)
    if given["beams"] is not None:
        penalty = given["length_penalty"]
        return Beams(given["beams"], counts=Power(1.0 if penalty is None else penalty))
    if given["lookup"]:
        return Lookup()
    if given["draft"] is not None:
        return Draft(load_model(given["draft"]).loaded)
    # One of these is enough to ask for sampling.
    drawn = {name: given[name] for name in _DRAWN if given.get(name) is not None}
    return Sampling(**drawn, **seed) if drawn or given.get("sample") else None


def check_choice(given: Mapping[str, Any]) -> None:
    """Refuse options that contradict each other, before a model is loaded."""

    def typed(*names: str) -> list[str]:
        return [f"--{name.replace('_', '-')}" for name in names if given.get(name) not in (None, False)]

    # The three ways of choosing, each by its options.
    drawn, searched = typed("sample", *_DRAWN), typed("beams", "length_penalty")
    if given["recommended"] and (drawn or searched):
        raise InputError(f"--recommended takes the model's own way; leave {(drawn + searched)[0]} out.")
    guessed = typed("lookup", "draft")
    if guessed and (others := [*guessed[1:], *drawn, *searched, *typed("recommended")]):
        raise InputError(f"{guessed[0]} writes the greedy text; leave {others[0]} out.")
    if drawn and searched:
        raise InputError(f"{drawn[0]} draws and {searched[0]} searches; give one of the two.")
    if typed("seed") and not (drawn or given["recommended"]):
        raise InputError("--seed goes with --sample.")
    # Greedy decoding writes one text.
    for several in typed("count", "best"):
        if not (drawn or searched or given["recommended"]):
            other = "--sample or --beams" if several == "--count" else "--beams"
            raise InputError(f"{several} goes with {other}: greedily there is one text.")
