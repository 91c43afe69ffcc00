"""How near attention comes to CBOW, condition by condition: the table of docs/ideas/static.md.

    .venv/bin/python scripts/static_cbow.py

CBOW predicts a word from the mean of the vectors around it. The claim: a head does about the same for a
masked word, if its q and k are the identity, the mask is as like to one word as to any other, and positions
are alike up to a distance of 4 and unlike beyond. Here each word of a text is masked in turn, the vectors are
rows of the default model's table, and CBOW's window has four words on each side.
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

Row = tuple[str, float, float]
"""A condition; how much of the weight is elsewhere than CBOW's; how far the context vector is from CBOW's."""


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

    def row(name: str, weights: Tensor) -> Row:
        elsewhere = (weights - uniform).abs().sum(dim=1) / 2
        contexts = torch.einsum("ij,ijd->id", weights, texts)
        far = (contexts - cbow).norm(dim=1) / cbow.norm(dim=1)
        return name, float(elsewhere.mean()), float(far.mean())

    def identity(x: Tensor, **more: Any) -> Tensor:
        """The rows of attention whose q and k are x itself."""
        x = x.expand(count, count, -1)[:, None]
        inputs = AttentionInputs(q=x, k=x, v=texts[:, None], **more)
        return reference_attention(inputs).weights[places, 0, places]

    # The weights of [CLS] and [SEP] are dealt out among the words.
    heads = torch.stack([trace.weights(layer=0)[:, n + 1, 1:-1] for n, trace in enumerate(traces)], dim=1)
    of_heads = [row("", weights / weights.sum(dim=1, keepdim=True)) for weights in heads]
    means = [sum(each[part] for each in of_heads) / len(of_heads) for part in (1, 2)]
    yield "a head of the default model, layer 0 (mean of 12)", means[0], means[1]

    # Vectors are made longer before positions are added: Vaswani et al. 2017, arXiv 1706.03762, section 3.4.
    scale, positions = table.shape[1] ** 0.5, sinusoidal_encoding(*table.shape).float()
    yield row("q and k are the identity; the word itself asks", identity(scale * table + positions))
    yield row("[MASK] asks in its place", identity(scale * texts + positions))
    yield row("the mask is as like to every word", identity(positions))

    nothing, reach = torch.zeros(1, 1), apart.le(REACH).float()[None, None]
    for height in (1, 10):
        name = f"positions have the product {height} up to a distance of {REACH}, then 0"
        yield row(name, identity(nothing, bias=DenseBias(height * reach)))
    window = Window(REACH, REACH)
    yield row(f"a window of {REACH} in place of positions", identity(nothing, mask=window))
    others = Conjunction((window, Predicate(lambda query, key: query != key)))
    yield row("without the masked place itself", identity(nothing, mask=others))


def table() -> str:
    """As the documentation shows it."""
    lines = [
        "| condition, joined to those above | weight elsewhere | distance from CBOW |",
        "|---|---:|---:|",
    ]
    return "\n".join([*lines, *(f"| {name} | {off:.3f} | {far:.3f} |" for name, off, far in distances())])


if __name__ == "__main__":
    print(table())
