"""How near attention comes to CBOW, condition by condition: the table of docs/ideas/static.md.

    .venv/bin/python scripts/static_cbow.py

CBOW predicts a word from the mean of the vectors around it. The claim: a head does about the same for a
masked word, if its q and k are the identity, the mask is as like to one word as to any other, and positions
are alike up to a distance of 4 and unlike beyond. Here each word of a text is masked in turn, the vectors are
rows of the default model's table, and CBOW's window has four words on each side. The claim's score is the
product q . k; attention divides it by sqrt(d), which is 19.6 here. The table has both.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import regard
from regard.core import AttentionInputs, Conjunction, DenseBias, Predicate, Window, reference_attention
from regard.positions import sinusoidal_encoding

TEXT = (
    "the man walked along the river with his dog and sat down on the bank to watch the boats while the "
    "people in the town went to the bank to ask for a loan or to bring the money of the week"
)
REACH = 4

Row = tuple[str, float, float, float, float]
"""A condition; how much of the weight is elsewhere than CBOW's, and how far the context vector is from it:
where the score is the product, then where it is the product / sqrt(d).
"""


def distances() -> Iterator[Row]:
    """Each condition joined to those before it."""
    model, words = regard.load(), TEXT.split()
    count = len(words)
    masked = [" ".join([*words[:place], "[MASK]", *words[place + 1 :]]) for place in range(count)]
    traces = model.trace(masked, layers=[0])
    table = model.trace(TEXT).embeddings(0)[1:-1]
    apart = (torch.arange(count)[:, None] - torch.arange(count)).abs()
    near = apart <= REACH
    uniform = (near & (apart > 0)).float()
    uniform = uniform / uniform.sum(dim=1, keepdim=True)
    cbow = uniform @ table
    # Text i has the mask at place i, and only its row i is looked at.
    texts = table.repeat(count, 1, 1)
    places = torch.arange(count)
    texts[places, places] = traces[0].embeddings(0)[1]

    root = table.shape[1] ** 0.5

    def told(weights: Tensor) -> tuple[float, float]:
        elsewhere = (weights - uniform).abs().sum(dim=1) / 2
        contexts = torch.einsum("ij,ijd->id", weights, texts)
        far = (contexts - cbow).norm(dim=1) / cbow.norm(dim=1)
        return float(elsewhere.mean()), float(far.mean())

    def row(name: str, x: Tensor, product: Tensor | None = None, **more: Any) -> Row:
        """Of attention whose q and k are x itself, and whose positions have a product."""
        x = x.expand(count, count, -1)[:, None]
        found = []
        for scale in (1.0, 1 / root):
            bias = None if product is None else DenseBias(scale * product)
            inputs = AttentionInputs(q=x, k=x, v=texts[:, None], scale=scale, bias=bias, **more)
            found.append(told(reference_attention(inputs).weights[places, 0, places]))
        return name, *found[0], *found[1]

    # The weights of [CLS] and [SEP] are dealt out among the words. A head divides by sqrt(32), as it learned.
    heads = torch.stack([trace.weights(layer=0)[:, n + 1, 1:-1] for n, trace in enumerate(traces)], dim=1)
    of_heads = [told(weights / weights.sum(dim=1, keepdim=True)) for weights in heads]
    off, far = (sum(each) / len(of_heads) for each in zip(*of_heads, strict=True))
    yield "a head of the default model, layer 0 (mean of 12)", off, far, off, far

    # Vectors are made longer before positions are added: Vaswani et al. 2017, arXiv 1706.03762, section 3.4.
    positions = sinusoidal_encoding(*table.shape).float()
    yield row("q and k are the identity; the word itself asks", root * table + positions)
    yield row("[MASK] asks in its place", root * texts + positions)
    yield row("the mask is as like to every word", positions)

    nothing, reach = torch.zeros(1, 1), apart.le(REACH).float()[None, None]
    for height in (1, 3, 5, 10, 200):
        name = f"positions have the product {height} up to a distance of {REACH}, then 0"
        yield row(name, nothing, height * reach)
    window = Window(REACH, REACH)
    yield row(f"a window of {REACH} in place of positions", nothing, mask=window)
    others = Conjunction((window, Predicate(lambda query, key: query != key)))
    yield row("without the masked place itself", nothing, mask=others)


def table() -> str:
    """As the documentation shows it."""
    lines = [
        "| condition, joined to those above | weight elsewhere | distance | weight, / sqrt(d) | distance |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, *found in distances():
        lines.append(f"| {name} | {' | '.join(f'{each:.3f}' for each in found)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
