"""`regard explain`: one token's attention, worked out in the terminal."""

from typing import Any

from regard.cli._input import as_typed, load_model, read_texts
from regard.cli._options import JSON, KIND, MODEL, TARGET, Kind, argument, flag, option
from regard.cli._output import console, print_json
from regard.core.errors import InputError


def explain(
    text: str = argument("TEXT", "The sentence; - reads it from stdin."),
    word: str | None = option(
        "--word -w WORD",
        'Whose attention; "bank#2" is its second occurrence, "16:20" the characters 16 to 20.',
    ),
    token: int | None = option("--token N", "Instead of --word: a token by its place, from 0."),
    layer: int = option("--layer -l N", "Which layer, from 0; -1 is the last.", -1),
    head: int = option("--head -n N", "Which head of it, from 0; -1 is the last.", 0),
    why: str | None = option(
        "--why WORD", "Why it looks at this word: its score over the mean of the row, by what wrote both."
    ),
    check: bool = flag("--check", "With --why: cut the largest parts, one at a time, and read the weight."),
    target: str | None = TARGET,
    kind: Kind | None = KIND,
    model: str = MODEL,
    as_json: bool = JSON,
) -> None:
    """Work out one word's attention with real numbers, from token ids to the layer's output."""
    # A text names a word, a number a token.
    selector = word if token is None else token
    if selector is None:
        raise InputError("give --word or --token, to say whose attention is worked out.")
    [text] = read_texts([text])
    selector = as_typed(selector) if isinstance(selector, str) else selector
    loaded = load_model(model)
    trace = loaded.trace(text, target=None if target is None else as_typed(target))
    # The only kind, or the one that was named.
    meant = trace.kind(None if kind is None else kind.value)
    if len(loaded.network.prefixes) == 2 and meant != "encoder" and target is None:
        raise InputError(
            f'--target must be given for {meant} attention: the decoder reads it, as in --target "a river".'
        )
    explanation: Any
    # One score taken apart, or one row worked out.
    if why is not None:
        explanation = trace.why(layer, head, selector, as_typed(why), kind=meant, check=check)
    else:
        explanation = trace.explain(selector, layer, head, kind=meant)
    if as_json:
        print_json(explanation.to_json())
        return
    console().print(explanation)
