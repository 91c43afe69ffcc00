"""`regard fill`: what stands behind a mask."""

from regard.cli._input import load_model, read_texts
from regard.cli._options import JSON, WRITING_MODEL, argument, option
from regard.cli._output import console, print_json
from regard.cli._writing_options import required


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
    loaded = load_model(required(model, "bert-base-uncased"))
    filled = loaded.fill(text, top=top)
    if as_json:
        print_json({"model": loaded.name, "text": text, "best": filled.best, "guesses": filled.to_rows()})
        return
    console().print(filled)
