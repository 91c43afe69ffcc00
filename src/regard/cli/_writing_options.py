"""Options of the commands that write, and what they mean."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regard.cli._input import load_model
from regard.cli._options import flag, option
from regard.core.errors import InputError

if TYPE_CHECKING:
    from regard.decoding import Beams, Choice, Speculation
    from regard.model import Model

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


def required(model: str | None, such_as: str) -> str:
    """The name of the model, which must be given: the default one does not write."""
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
    if given["recommended"]:
        return model.recommended(**seed)
    if given["beams"] is not None:
        penalty = given["length_penalty"]
        return Beams(given["beams"], counts=Power(1.0 if penalty is None else penalty))
    if given["lookup"]:
        return Lookup()
    if given["draft"] is not None:
        return Draft(load_model(given["draft"]).loaded)
    drawn = {name: given[name] for name in _DRAWN if given.get(name) is not None}
    return Sampling(**drawn, **seed) if drawn or given.get("sample") else None


def check_choice(given: Mapping[str, Any]) -> None:
    """Refuse options that contradict each other, before a model is loaded."""

    def typed(*names: str) -> list[str]:
        return [f"--{name.replace('_', '-')}" for name in names if given.get(name) not in (None, False)]

    drawn, searched = typed("sample", *_DRAWN), typed("beams", "length_penalty")
    if given["recommended"] and (drawn or searched):
        raise InputError(f"--recommended takes the model's own way; leave {(drawn + searched)[0]} out.")
    guessed = typed("lookup", "draft")
    if guessed and (others := [*guessed[1:], *drawn, *searched, *typed("recommended")]):
        raise InputError(f"{guessed[0]} writes the greedy text; leave {others[0]} out.")
    if drawn and searched:
        raise InputError(f"{drawn[0]} draws and {searched[0]} searches; give one of the two.")
    if searched == ["--length-penalty"]:
        raise InputError("--length-penalty goes with --beams.")
    if typed("seed") and not (drawn or given["recommended"]):
        raise InputError("--seed goes with --sample.")
    for several in typed("count", "best"):
        if not (drawn or searched or given["recommended"]):
            other = "--sample or --beams" if several == "--count" else "--beams"
            raise InputError(f"{several} goes with {other}: greedily there is one text.")
