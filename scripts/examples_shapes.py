"""Words that cells of a picture look at: cross-attention from a grid to a caption, as in diffusion models.

A caption names three shapes and their colours, in any order: "red square blue cross green ring". A small
network is given the picture with so much noise that colours are lost (a step of a diffusion model, Ho et al.
2020, arXiv 2006.11239, equation 4, with alpha-bar 0.1), where shapes stand, and the caption; it paints the
picture. Each cell of the grid asks, and the words answer (Rombach et al. 2022, arXiv 2112.10752, section
3.3). The weights say, for each word, which cells looked at it (Tang et al. 2023, arXiv 2210.04885).

    .venv/bin/python scripts/examples_shapes.py [--to FOLDER] [--steps N]
"""

import argparse
import html
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.blocks import (
    CrossAttentionLayer,
    Embeddings,
    FeedForward,
    MultiHeadAttention,
    PreNorm,
    SelfAttentionLayer,
)
from regard.core import AttentionInputs, Taps, attention_weights
from regard.positions import LearnedPositions

COLOURS = {
    "red": (0.85, 0.15, 0.15), "green": (0.1, 0.6, 0.2), "blue": (0.15, 0.3, 0.9),
    "yellow": (0.95, 0.8, 0.1), "purple": (0.55, 0.15, 0.7), "orange": (0.95, 0.5, 0.05),
}  # fmt: skip
SHAPES = {"square": "###/###/###", "cross": ".#./###/.#.", "ring": "###/#.#/###"}
WORDS = (*COLOURS, *SHAPES)
SIDE = 10
KEPT = 0.1  # alpha-bar: the share of the picture's variance that the noise leaves
FOLDER = Path(__file__).parent.parent / "docs" / "examples"


@dataclass(frozen=True, eq=False)
class Scenes:
    """Pictures with their captions.

    Args:
        words: int64 (batch, 6), the captions, as places in `WORDS`.
        filled: bool (batch, cells), where a shape stands.
        picture: (batch, cells, 3), red, green and blue from 0 to 1, on white.
        noisy: the same with noise, of colours from -1 to 1.
        colour: int64 (batch, cells), the place in `COLOURS` of a cell's own; -1 on white.
    """

    words: Tensor
    filled: Tensor
    picture: Tensor
    noisy: Tensor
    colour: Tensor


def scenes(count: int, generator: torch.Generator) -> Scenes:
    """So many random ones: three shapes each, which do not touch, in three colours."""

    def below(limit: int) -> int:
        return int(torch.randint(limit, (), generator=generator))

    words = torch.empty(count, 6, dtype=torch.int64)
    colour = torch.full((count, SIDE, SIDE), -1)
    for item in range(count):
        colours = torch.randperm(len(COLOURS), generator=generator)[:3].tolist()
        order = torch.randperm(3, generator=generator).tolist()
        words[item] = torch.tensor([[colours[each], len(COLOURS) + each] for each in order]).flatten()
        for shape, of in zip(SHAPES.values(), colours, strict=True):
            cells = torch.tensor([[sign == "#" for sign in row] for row in shape.split("/")])
            while True:
                row, column = below(SIDE - 2), below(SIDE - 2)
                around = colour[item, max(0, row - 1) : row + 4, max(0, column - 1) : column + 4]
                if bool((around < 0).all()):
                    break
            colour[item, row : row + 3, column : column + 3][cells] = of
    colour = colour.flatten(1)
    table = torch.tensor([*COLOURS.values(), (1.0, 1.0, 1.0)])
    picture = table[colour]
    noise = torch.randn(picture.shape, generator=generator)
    noisy = KEPT**0.5 * (2 * picture - 1) + (1 - KEPT) ** 0.5 * noise
    return Scenes(words=words, filled=colour >= 0, picture=picture, noisy=noisy, colour=colour)


class Painter(nn.Module):
    """From noise, the places of shapes and a caption to the picture: (batch, cells, 3).

    Taps:
        those of the cross-attention from cells to words, under `cross.`.
    """

    def __init__(self, d_model: int = 48, num_heads: int = 2) -> None:
        super().__init__()
        self.words = Embeddings(len(WORDS), d_model, positions=LearnedPositions(6, d_model))
        self.caption = SelfAttentionLayer(
            MultiHeadAttention(d_model, num_heads),
            FeedForward(d_model, 2 * d_model),
            attention_residual=PreNorm(nn.LayerNorm(d_model)),
            ffn_residual=PreNorm(nn.LayerNorm(d_model)),
        )
        # A cell sees the cells around it: which shape it belongs to.
        self.cells = nn.Conv2d(4, d_model, 5, padding=2)
        self.mixed = nn.Conv2d(d_model, d_model, 3, padding=1)
        self.cross = CrossAttentionLayer(
            MultiHeadAttention(d_model, num_heads),
            FeedForward(d_model, 2 * d_model),
            source_norm=nn.LayerNorm(d_model),
            attention_residual=PreNorm(nn.LayerNorm(d_model)),
            ffn_residual=PreNorm(nn.LayerNorm(d_model)),
        )
        self.colour = nn.Sequential(nn.LayerNorm(d_model), nn.Linear(d_model, 3))

    def forward(self, words: Tensor, filled: Tensor, noisy: Tensor, taps: Taps | None = None) -> Tensor:
        """Paint."""
        numbers = torch.arange(words.shape[1])[None]
        caption = self.caption(self.words(words, positions=numbers))
        grid = torch.cat((noisy, filled[..., None].to(noisy.dtype)), dim=2)
        seen = self.cells(grid.mT.reshape(len(grid), 4, SIDE, SIDE))
        cells = self.mixed(torch.relu(seen)).flatten(2).mT
        painted = self.cross(cells, caption, taps=None if taps is None else taps.at("cross"))
        return torch.sigmoid(self.colour(painted))


def train(steps: int, *, rows: int = 32, seed: int = 0) -> Painter:
    """A painter that has learned from `steps` batches of new scenes: 600 take half a minute on one core."""
    torch.manual_seed(seed)
    painter, generator = Painter(), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(painter.parameters(), lr=2e-3)
    for _ in range(steps):
        some = scenes(rows, generator)
        found = painter(some.words, some.filled, some.noisy)
        loss = (found - some.picture).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return painter.eval()


@torch.no_grad()
def right(painter: Painter, some: Scenes, words: Tensor | None = None) -> float:
    """The share of the shapes' cells whose colour is nearest to that of the scene, read with a caption."""
    found = painter(some.words if words is None else words, some.filled, some.noisy)
    table = torch.tensor(list(COLOURS.values()))
    nearest = (found[:, :, None] - table).square().sum(-1).argmin(-1)
    return float((nearest == some.colour)[some.filled].float().mean())


@torch.no_grad()
def looked_at(painter: Painter, some: Scenes) -> tuple[Tensor, Tensor]:
    """What is painted, (batch, cells, 3), and the weights from cells to words, (batch, heads, cells, words).

    The weights are worked out from the queries and keys of the pass, and checked against its contexts.
    """
    heard: list[AttentionInputs] = []
    contexts: list[Tensor] = []
    taps = Taps({"cross.attention.inputs": heard.append, "cross.attention.context": contexts.append})
    painted = painter(some.words, some.filled, some.noisy, taps=taps)
    weights = attention_weights(heard[0])
    assert torch.allclose(weights @ heard[0].v, contexts[0], atol=1e-5)
    return painted, weights


def on_own_words(some: Scenes, weights: Tensor) -> float:
    """The mean weight, over heads, that the shapes' cells give the two words of their own shape."""
    of_word = some.words.clone()
    of_word[:, 1::2] = of_word[:, ::2]  # a shape's word belongs to its colour's
    own = of_word[:, None] == some.colour[:, :, None]
    return float((weights.mean(1) * own).sum(-1)[some.filled].mean())


CELL = 11


def grid(colours: Tensor, at: tuple[int, int], weights: Tensor | None = None) -> str:
    """Cells as squares of SVG; with weights each is as strong as its weight, of the largest one."""
    strength = torch.ones(len(colours)) if weights is None else weights / weights.max()
    parts = []
    for cell, (colour, opacity) in enumerate(
        zip(colours.clamp(0, 1).tolist(), strength.tolist(), strict=True)
    ):
        row, column = divmod(cell, SIDE)
        red, green, blue = (round(255 * each) for each in colour)
        parts.append(
            f'<rect x="{at[0] + CELL * column}" y="{at[1] + CELL * row}" width="{CELL}" height="{CELL}" '
            f'fill="rgb({red},{green},{blue})" fill-opacity="{opacity:.3f}"/>'
        )
    side = CELL * SIDE
    frame = f'<rect x="{at[0]}" y="{at[1]}" width="{side}" height="{side}" fill="none" stroke="#888"/>'
    return "".join(parts) + frame


def drawing(some: Scenes, painted: Tensor, weights: Tensor, item: int = 0) -> str:
    """An SVG: what the network is given, what it paints, and for each word the cells that look at it.

    The map of a word is drawn on black, where every cell's own colour is seen as far as it looks at the word.
    """
    side, gap, top = CELL * SIDE, 18, 22
    words = [WORDS[each] for each in some.words[item].tolist()]
    black = f'<rect x="{{}}" y="{{}}" width="{side}" height="{side}" fill="#000"/>'
    names, parts = ["given", "painted", *words], []
    for place, name in enumerate(names):
        x = gap + (side + gap) * (place % 4)
        y = top + (side + gap + top) * (place // 4)
        parts.append(f'<text x="{x + side / 2}" y="{y - 7}" text-anchor="middle">{html.escape(name)}</text>')
        if place < 2:
            given = ((some.noisy[item] + 1) / 2, painted[item])[place]
            parts.append(grid(given, (x, y)))
        else:
            of_word = weights[item].mean(0)[:, place - 2]
            parts.append(black.format(x, y) + grid(some.picture[item], (x, y), of_word))
    width = gap + 4 * (side + gap)
    height = (side + gap + top) * 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="13" fill="#666">'
        f"{''.join(parts)}</svg>"
    )


def page(painter: Painter, *, seed: int = 1, pictures: int = 3) -> tuple[str, str]:
    """The page, and its first picture by itself."""
    some = scenes(256, torch.Generator().manual_seed(seed))
    painted, weights = looked_at(painter, some)
    drawn = [drawing(some, painted, weights, item) for item in range(pictures)]
    scores = right(painter, some), right(painter, some, some.words.roll(1, 0)), on_own_words(some, weights)
    captions = [" ".join(WORDS[each] for each in row) for row in some.words[:pictures].tolist()]
    shown = "\n".join(f"<h2>“{said}”</h2>\n{svg}" for said, svg in zip(captions, drawn, strict=True))
    return PAGE.format(*scores, shown=shown), drawn[0]


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Which cells look at a word · regard</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 17px/1.5 system-ui, sans-serif; max-width: 720px; margin: 0 auto; padding: 24px 16px 80px; }}
h1 {{ font-size: 25px; }}
h2 {{ font-size: 17px; margin: 40px 0 4px; }}
svg {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
<h1>Which cells look at a word</h1>
<p>A small network paints a picture from noise, the places of three shapes, and a caption. Its cells are the
queries of cross-attention, the words of the caption its keys and values, as in a diffusion model. Noise hides
the colours, so that only the words say them. For each word a map shows every cell as bright as the weight
that it gives the word, mean of the heads; the brightest cell of a map has the word's largest weight.</p>
<p>Of 256 new scenes, {0:.1%} of the shapes' cells get the right colour; with another scene's caption {1:.1%}.
The shapes' cells give the two words of their own shape {2:.0%} of their weight.</p>
{shown}
</body>
</html>
"""


def main() -> None:
    """Train, and write the page and a picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=FOLDER)
    parser.add_argument("--steps", type=int, default=600)
    asked = parser.parse_args()
    text, picture = page(train(asked.steps))
    asked.to.mkdir(parents=True, exist_ok=True)
    (asked.to / "shapes.html").write_text(text, encoding="utf-8")
    (asked.to / "shapes.svg").write_text(picture, encoding="utf-8")
    print(asked.to / "shapes.html")


if __name__ == "__main__":
    main()
