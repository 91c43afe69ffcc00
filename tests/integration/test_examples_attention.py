"""The examples of docs/howto/scorers.md: what they draw is what the networks look at."""

import re
import shutil
from pathlib import Path

import examples_alignment
import examples_shapes
import torch

import regard
from regard.models import family_of, new_network, write_checkpoint
from tolerances import WEIGHTS


def test_the_maps_of_words_are_the_cells_weights() -> None:
    painter = examples_shapes.train(2)
    some = examples_shapes.scenes(5, torch.Generator().manual_seed(3))
    painted, weights = examples_shapes.looked_at(painter, some)
    cells, words = examples_shapes.SIDE**2, 6
    assert weights.shape == (5, 2, cells, words)
    assert torch.allclose(weights.sum(dim=3), torch.ones(5, 2, cells), atol=WEIGHTS)
    drawn = examples_shapes.drawing(some, painted, weights, item=1)
    strengths = torch.tensor([float(each) for each in re.findall(r'fill-opacity="([\d.]+)"', drawn)])
    maps = strengths.view(2 + words, cells)
    assert bool((maps[:2] == 1).all())  # what is given and what is painted
    mean = weights[1].mean(0)
    assert torch.allclose(maps[2:], (mean / mean.amax(0)).T, atol=6e-4)
    names = re.findall(r'text-anchor="middle">([^<]+)', drawn)
    assert names[2:] == [examples_shapes.WORDS[each] for each in some.words[1].tolist()]


def test_scenes_say_what_they_show() -> None:
    some = examples_shapes.scenes(7, torch.Generator().manual_seed(0))
    assert some.filled.sum(1).tolist() == [9 + 5 + 8] * 7
    for words, colour in zip(some.words.tolist(), some.colour, strict=True):
        said = dict(zip(words[1::2], words[::2], strict=True))
        sizes = {len(examples_shapes.COLOURS) + place: size for place, size in enumerate((9, 5, 8))}
        assert {of: int((colour == of).sum()) for of in said.values()} == {
            said[shape]: size for shape, size in sizes.items()
        }


def test_the_painter_reads_the_words() -> None:
    """A start of training is enough to be told from chance, 1/6, and only by the right caption."""
    painter = examples_shapes.train(200, rows=8)
    some = examples_shapes.scenes(64, torch.Generator().manual_seed(5))
    with_own = examples_shapes.right(painter, some)
    assert with_own > examples_shapes.right(painter, some, some.words.roll(1, 0)) + 0.1
    assert with_own > 0.33


def test_both_alignments_stand_on_one_page(tmp_path: Path) -> None:
    words = examples_alignment._words(tmp_path)
    models = []
    for family, sizes in examples_alignment.MODELS.items():
        size = {"vocab_size": 70, "decoder_vocab_size": 70, "decoder_start_token_id": 0, "eos_token_id": 1}
        config = family_of(family).config.of_sizes(**size, **sizes, pad_token_id=0, **MARIAN[family])
        folder = write_checkpoint(new_network(config), tmp_path / family)
        for file in words.iterdir():
            shutil.copy(file, folder)
        models.append(regard.load(folder))
    text = examples_alignment.page(models[0], models[1], (0.5, 0.25))
    assert text.count("<svg") == 2 * len(examples_alignment.SHOWN)
    assert "translates 50.0% right, the transformer\n25.0%" in text
    assert "four thousand two hundred thirty seven → vier tausend zwei hundert sieben und dreißig" in text
    trace = models[1].trace("nine hundred", target="neun hundert")
    assert examples_alignment.likest(trace, trace.weights(1, 2, kind="cross")) == (1, 2)


MARIAN = {
    "bahdanau": {},
    "marian": {
        "model_type": "marian",
        "num_decoder_layers": 2,
        "num_decoder_heads": 4,
        "d_decoder_ff": 128,
        "max_seq_len": 16,
    },
}
