"""Two ways to align: a recurrent decoder's additive attention beside a transformer's, on one page.

Both learn to translate English numbers to German, where the ones come before the tens, by `regard.training`:
Bahdanau, Cho and Bengio 2015 (arXiv 1409.0473), and Vaswani et al. 2017 (arXiv 1706.03762). For each
translation stand the weights of the recurrent decoder, and those of the transformer's cross-attention: of the
head whose weights are the most like them. Some two minutes on one core.

    .venv/bin/python scripts/examples_alignment.py [--to FOLDER]
"""

import argparse
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from examples_models import EINER, ONES, TEENS, TENS, ZEHNER, ZIG, english, german
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

import regard
from regard.tracing import Trace
from regard.training import read_settings, train

FOLDER = Path(__file__).parent.parent / "docs" / "examples"
SHOWN = (4237, 9481, 7560)
MODELS = {
    "bahdanau": {"d_model": 64, "d_alignment": 32},
    "marian": {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128, "dropout_p": 0.0},
}
"""Of each family its sizes; the second is the original transformer, small."""
STEPS = {"bahdanau": (300, 50), "marian": (1800, 300)}
"""Steps of training, and those of them in which the learning rate rises."""


def learned(family: str, folder: Path, *, pairs: int = 9000) -> tuple[regard.Model, float]:
    """A translator that has learned from `pairs` numbers, and its share of right ones among 200 others."""
    steps, warmup = STEPS[family]
    order = random.Random(0).sample(range(1, 10_000), pairs + 200)
    sides = {"en": english, "de": german}
    for side, words in sides.items():
        (folder / f"train.{side}").write_text("\n".join(map(words, order[200:])) + "\n", encoding="utf-8")
        (folder / f"valid.{side}").write_text("\n".join(map(words, order[:200])) + "\n", encoding="utf-8")
    settings = read_settings(
        "seq2seq",
        data={
            "train": [str(folder / "train.en")],
            "train_target": [str(folder / "train.de")],
            "valid": [str(folder / "valid.en")],
            "valid_target": [str(folder / "valid.de")],
        },
        tokenizer={"path": str(_words(folder))},
        family=family,
        model=MODELS[family],
        task={"smoothing": 0.0, "bleu_texts": 0},
        batch={"length": 16, "rows": 64},
        optimiser={"lr": 3e-3, "warmup": warmup},
        steps=steps,
        save_every=steps,
        evaluate_every=steps,
    )
    model = regard.load(train(settings, folder / family).folder / "model")
    texts = list(map(english, order[:200]))
    written = [each.text for each in model.generate(texts)]
    return model, sum(text == german(n) for text, n in zip(written, order, strict=False)) / len(texts)


def _words(folder: Path) -> Path:
    """A tokenizer of whole words, in both languages."""
    said = [
        *ONES,
        *TEENS,
        *TENS,
        "thousand",
        "hundred",
        *EINER,
        "eins",
        *ZEHNER,
        *ZIG,
        "tausend",
        "hundert",
        "und",
    ]
    words = ["[PAD]", "[EOS]", "[UNK]", *said]
    tokenizer = Tokenizer(WordLevel({word: id for id, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(words[:3])
    tokenizer.post_processor = TemplateProcessing(single="$A [EOS]", special_tokens=[("[EOS]", 1)])
    to = folder / "words"
    to.mkdir(exist_ok=True)
    tokenizer.save(str(to / "tokenizer.json"))
    (to / "tokenizer_config.json").write_text(
        '{"pad_token": "[PAD]", "eos_token": "[EOS]", "unk_token": "[UNK]"}'
    )
    return to


def likest(trace: Trace, other: torch.Tensor) -> tuple[int, int]:
    """The layer and head whose cross-attention is the nearest to other weights, (queries, keys)."""
    apart = (trace.weights(kind="cross") - other).abs().sum(dim=(2, 3))
    layer, head = divmod(int(apart.argmin()), apart.shape[1])
    return layer, head


def page(recurrent: regard.Model, transformer: regard.Model, scores: tuple[float, float]) -> str:
    """The page."""
    rows = []
    for number in SHOWN:
        source, target = english(number), german(number)
        first, second = (model.trace(source, target=target) for model in (recurrent, transformer))
        layer, head = likest(second, first.weights(0, 0))
        # A picture names a head, and no folder.
        maps = (
            replace(first.plot(0, 0, form="map"), title="recurrent, additive attention"),
            replace(
                second.plot(layer, head, kind="cross", form="map"),
                title=f"transformer, layer {layer}, head {head}",
            ),
        )
        drawn = "".join(f"<figure>{each.svg()}</figure>" for each in maps)
        rows.append(f"<h2>{source} → {target}</h2>\n<div>{drawn}</div>")
    return PAGE.format(*scores, shown="\n".join(rows))


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Two ways to align · regard</title>
<style>
body {{ font: 17px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 0 auto; padding: 24px 16px 80px; }}
h1 {{ font-size: 25px; }}
h2 {{ font-size: 17px; margin: 40px 0 4px; }}
div {{ display: flex; flex-wrap: wrap; gap: 16px; }}
figure {{ flex: 1 1 380px; margin: 0; }}
svg {{ width: 100%; height: auto; }}
</style>
</head>
<body>
<h1>Two ways to align</h1>
<p>Both networks translate English numbers to German. A row is a word that the decoder has read, the columns
are the words of the source, and the colour is the weight by which it looks at each before it writes the
next. The first scores a word by v_a · tanh(q + k), from the state of its gated unit (Bahdanau et al. 2015);
the second by q · k / √d, in several heads, of which the one is shown that is the most like it. German says
the ones before the tens. The recurrent network looks ahead for them and comes back, in its only attention; a
transformer divides this among its heads, so no single one need show all of it.</p>
<p>Of 200 numbers that they have not seen, the recurrent network translates {0:.1%} right, the transformer
{1:.1%}.</p>
{shown}
</body>
</html>
"""


def main() -> None:
    """Train both, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=FOLDER)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [learned(family, Path(folder)) for family in MODELS]
        text = page(found[0][0], found[1][0], (found[0][1], found[1][1]))
    asked.to.mkdir(parents=True, exist_ok=True)
    (asked.to / "alignments.html").write_text(text, encoding="utf-8")
    print(asked.to / "alignments.html", [score for _, score in found])


if __name__ == "__main__":
    main()
