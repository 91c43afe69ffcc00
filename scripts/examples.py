"""Write the example pages, docs/examples: twelve pages, each with what is to be seen in it.

    make pictures                       these and the pictures of the documentation
    .venv/bin/python scripts/examples.py [--to FOLDER]

Three of them need models that no package brings: examples_models.py and examples_training.py train them, in
about five minutes. Where only the page is another one, examples_renew.py does without.
"""

import argparse
import contextlib
import html
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import examples_models
import examples_training

import regard
from regard.training import film
from regard.views import Page

FOLDER = Path(__file__).parent.parent / "docs" / "examples"
LONG = " ".join(Path(__file__).with_name("examples_long.txt").read_text(encoding="utf-8").split())


@dataclass(frozen=True, kw_only=True)
class Example:
    """One page: its file, its title, what is to be seen, what its address opens."""

    name: str
    title: str
    text: str
    fragment: str
    make: Callable[[Path], Page]


def default_page(*texts: str) -> Page:
    """The page of a text in the default model, or of how it differs from a second one."""
    model = regard.load()
    first = model.trace(texts[0])
    return first.difference_page(model.trace(texts[1])) if len(texts) > 1 else first.page()


def decoder_page(text: str, *heads: tuple[int, int], max_mb: float | None = None) -> Page:
    """The page of a text in the default decoder; small, it holds these heads, and pictures of the others."""
    return regard.load("smollm2").trace(text).page(heads=heads, max_mb=max_mb or MOST_MB)


def answer_page(*messages: tuple[str, str]) -> Page:
    """The page of its answer to messages, (role, content)."""
    said = [{"role": role, "content": content} for role, content in messages]
    return regard.load("smollm2").chat(said, max_length=40, trace=True).page(max_mb=MOST_MB)


def long_page() -> Page:
    """The page of the long text, with a few heads, so that the file is small; pictures of the others."""
    return regard.load().trace(LONG).page(heads=[(5, 2), (3, 1)], max_mb=1.5)


def trained(train: Callable[[Path], float], text: str, folder: Path, target: str | None = None) -> Page:
    """The page of a model that is trained now."""
    return _small(train, folder).trace(text, target=target).page()


def written(train: Callable[[Path], float], text: str, folder: Path) -> Page:
    """The page of what such a model writes, by beam search."""
    return _small(train, folder).generate(text, choice=regard.Beams(4), trace="all").page()


def _small(train: Callable[[Path], float], folder: Path) -> regard.Model:
    name = f"small-{train.__name__}"
    if not Path(name).exists():
        train(folder / name)
    return regard.load(name)


MOST_MB = 2.5
DURSLEY = "Mr Dursley was thin. Mrs Potter was tall. Mr D"
LIST = "moon table wolf paper river stone moon table wolf paper river"
ENGLISH, GERMAN = "four thousand two hundred thirty seven", "vier tausend zwei hundert sieben und dreißig"
TROPHY = "The trophy does not fit in the suitcase because it is too {}."

EXAMPLES = (
    Example(
        name="bank",
        title="A bank of a river",
        text=(
            "“bank” gets its meaning from its neighbours: in the last layer this head looks back from it "
            "to “fishing”, and less to “poem” and “river”. Point at any other word, or open the page and "
            "choose another head."
        ),
        fragment="view=heads&layer=5&head=11&pin=query-11",
        make=lambda folder: default_page("Write a poem about a man fishing on a river bank."),
    ),
    Example(
        name="winograd",
        title="What is too big?",
        text=(
            "The trophy is too big; or else the suitcase is too small. One word decides what “it” "
            "means (Winograd 1972; Levesque 2011). Head 3.1 looks from “it” to “trophy” in both "
            "texts: a clear line is not yet an understanding. Here is what the other word changes in "
            "it, which is little."
        ),
        fragment="view=heads&layer=3&head=1&specials=hidden&pin=query-10",
        make=lambda folder: default_page(TROPHY.format("big"), TROPHY.format("small")),
    ),
    Example(
        name="induction",
        title="Once more from the list",
        text=(
            "A decoder of two layers, trained on lists of random words that are said twice. In the "
            "second half it knows what comes: this head finds where the word stood before, and looks "
            "at the word after it."
        ),
        fragment="",
        make=lambda folder: trained(examples_models.repeater, LIST, folder),
    ),
    Example(
        name="copying",
        title="A name, once more",
        text=(
            "SmolLM2 reads “Dursley” in three pieces. After “Mr D” it expects “urs”: head 18.6, one of eight "
            "induction heads, looks for the last “D”, and at what came after it. Without the eight, random "
            "tokens that are said twice are no easier the second time: "
            "[what was measured](../learn/findings.md)."
        ),
        fragment="view=heads&layer=18&head=6&pin=query-13",
        make=lambda folder: decoder_page(DURSLEY),
    ),
    Example(
        name="why",
        title="Why there?",
        text=(
            "The same text. Why does head 17.5 look from the second “D” at “urs”? Its score, less the mean "
            "of the row, is a sum over what wrote the key. The largest part is by head 16.0: it looks at the "
            "word before, and notes at “urs” that it follows “D”. The last step of the calculation has the "
            "three largest parts: [all of them, and what a cut shows](../howto/why.md)."
        ),
        fragment="view=door&layer=17&head=5&pin=query-13&key=2&asks=why&follow",
        make=lambda folder: decoder_page(DURSLEY, (17, 5), (16, 0), max_mb=0.9),
    ),
    Example(
        name="rest",
        title="At rest",
        text=(
            "The same model on a sentence in which little is said twice: most of its 270 heads rest on the "
            "first word, whatever that is. Attention goes there that is not needed elsewhere: "
            "[what happens without it](../learn/findings.md#the-sink-213-heads-at-rest)."
        ),
        fragment="view=model&stat=to_first&by=most&layer=24&head=0",
        make=lambda folder: decoder_page("The old man sat on the bench and looked at the sea."),
    ),
    Example(
        name="mary",
        title="Who gets the drink?",
        text=(
            "The model goes on with “Mary”, and head 23.3 has the largest part in it. But it looks at the "
            "second “John”, and takes John away; head 24.4, which looks at “Mary”, writes against her: "
            "[patching, attribution and ablation]"
            "(../learn/findings.md#the-indirect-object-which-heads-say-mary)."
        ),
        fragment="view=heads&layer=23&head=3&pin=query-13",
        make=lambda folder: decoder_page("When Mary and John went to the store, John gave a drink to"),
    ),
    Example(
        name="answer",
        title="A question, and its answer",
        text=(
            "A chat, as the model reads it: what is small is its template's. Before “Paris” head 23.4 reads "
            "“France” in the question, with 54 %, and of all heads it adds most to “Paris”. Press Play to "
            "see it written."
        ),
        fragment="word=5&layer=23&head=4",
        make=lambda folder: answer_page(
            ("system", "You answer in one short sentence."), ("user", "What is the capital of France?")
        ),
    ),
    Example(
        name="emergence",
        title="A head emerges",
        text=(
            "A decoder learns to go on with lists that are said twice. Press Play: at first every head looks "
            "everywhere alike. Then one learns to look at the word before, and right after it three learn to "
            "find where a word stood last time, and what came next: the loss falls."
        ),
        fragment="layer=1&head=2",
        make=lambda folder: film(examples_training.lists(folder)),
    ),
    Example(
        name="translation",
        title="Seven and thirty",
        text=(
            "A small encoder-decoder that translates English numbers to German, where the ones come "
            "before the tens. Each word on the left looks for the one to write next: “hundert” looks "
            "ahead at “seven”, and “und” back at “thirty”."
        ),
        fragment="view=heads&kind=cross&layer=1&head=2&pin=query-6",
        make=lambda folder: trained(examples_models.numbers, ENGLISH, folder, GERMAN),
    ),
    Example(
        name="writing",
        title="Word by word",
        text=(
            "The same translator at work. Press Play: before it writes a word it looks for that word in the "
            "source. Beside it stands what could have come, below it the four ways that were followed and "
            "the one that won: “sieben” comes before “dreißig”, though “thirty” came before “seven”."
        ),
        fragment="view=writing",
        make=lambda folder: written(examples_models.numbers, ENGLISH, folder),
    ),
    Example(
        name="long",
        title="512 tokens",
        text=(
            "A short story, as long as the model can read. In this head “girl” looks at the family: "
            "brother, daughter, father, hundreds of words before."
        ),
        fragment="view=heads&layer=5&head=2&pin=query-494",
        make=lambda folder: long_page(),
    ),
)


def index(examples: tuple[Example, ...]) -> str:
    """The page of the site that shows them, each in a frame of its own."""
    cards = []
    for each in examples:
        page, opened = f"{each.name}.html", html.escape(each.fragment)
        cards.append(f"## [{each.title}]({page}#{each.fragment})\n\n{each.text}\n")
        cards.append(
            f'<iframe title="{each.title}" src="{page}#bare&amp;{opened}" loading="lazy"></iframe>\n'
        )
    shown = "\n".join(cards)
    return f"""# Twelve pages, and what attention does in them

Each frame is a page of its own, which works without a network. Its title opens it. `make pictures` writes
all of them.

{shown}"""


def main() -> None:
    """Writes the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="names of examples; all of them by default")
    parser.add_argument("--to", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    to = arguments.to.resolve()
    to.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):  # a page names a model, and no folder
        for each in EXAMPLES:
            if arguments.names and each.name not in arguments.names:
                continue
            page = each.make(Path(folder))
            page.write(to / f"{each.name}.html")
            print(f"{to / each.name}.html  {os.path.getsize(to / f'{each.name}.html') // 1000} kB")
    (to / "README.md").write_text(index(EXAMPLES), encoding="utf-8")


if __name__ == "__main__":
    main()
