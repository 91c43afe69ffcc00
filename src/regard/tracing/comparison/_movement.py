"""One word's movement through a model in several sentences, and the page that shows it."""

from collections.abc import Sequence

import torch

from regard.tracing.comparison._compare import found_words
from regard.tracing.record import Trace
from regard.views import Movement


def movement(traces: Sequence[Trace], word: str | Sequence[str]) -> Movement:
    """One word's vectors from its learned to its contextual embedding, in several texts.

    Args:
        traces: of texts, by one model.
        word: the word, in all texts, or one for each ("bank#2" chooses among several).

    Returns:
        The steps: the learned embedding, what layer 0 reads (with its position; left out where that is the
        same), and the output of every layer, the last after the final norm. A model whose learned embeddings
        are of another width starts with what layer 0 reads.

    Raises:
        InputError: no text, traces of different models, a word that is not in a text.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> fishing = model.trace("Write a poem about a man fishing on a river bank.")
        >>> money = model.trace("Write a poem about a man withdrawing money from a bank.")
        >>> movement([fishing, money], "bank").steps[:3]
        ('learned', 'position', '1')
    """
    model, words = found_words(traces, word)
    kind = traces[0].kinds[0]  # of the stack that reads the text
    last = len(traces[0].source.hidden) - 1
    layers: list[int | str] = [0, "input", *range(1, last + 1)]
    names = ["learned", "position", *map(str, range(1, last)), f"{last} contextual"]
    rows = [
        [trace.embedding(chosen, layer, kind=kind).double() for layer in layers]
        for trace, chosen in zip(traces, words, strict=True)
    ]
    if any(row[0].shape != row[1].shape for row in rows):
        first, steps = 1, [names[1], *names[2:]]
    elif all(torch.equal(row[0], row[1]) for row in rows):
        rows = [[row[0], *row[2:]] for row in rows]
        first, steps = 0, [names[0], *names[2:]]
    else:
        first, steps = 0, names
    return Movement(
        model=model,
        words=tuple(words),
        texts=tuple(" | ".join(trace.encoding.texts) for trace in traces),
        steps=tuple(steps),
        vectors=torch.stack([torch.stack(row[first:]) for row in rows]).numpy(),
    )
