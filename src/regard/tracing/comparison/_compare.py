"""One word in several sentences: how alike its vectors are, layer by layer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.tracing.comparison._comparison import Comparison
from regard.tracing.record import Trace


def compare(traces: Sequence[Trace], word: str | Sequence[str]) -> Comparison:
    """The cosine similarity of one word's vectors between texts, at every embedding layer.

        similarity[l, a, b] = e_a . e_b / (|e_a| |e_b|),  e_a the word's embedding at layer l in text a

    Args:
        traces: of two texts or more, by one model.
        word: the word, in all texts, or one for each ("bank#2" chooses among several).

    Returns:
        The similarities, for layers 0 (the learned embedding: 1 for the same word) to L; NaN where a vector
        is zero and so has no direction.

    Raises:
        InputError: fewer than two texts, traces of different models, a word that is not in a text.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> fishing = model.trace("Write a poem about a man fishing on a river bank.")
        >>> money = model.trace("Write a poem about a man withdrawing money from a bank.")
        >>> round(float(compare([fishing, money], "bank").similarity[-1, 0, 1]), 3)
        0.847
    """
    if len(traces) < 2:
        raise InputError(f"texts must be two or more, to compare the word between them; got {len(traces)}.")
    model, words = found_words(traces, word)
    kind = traces[0].kinds[0]  # of the stack that reads the text
    layers = range(len(traces[0].source.hidden))
    similarity = []
    for layer in layers:  # one by one: learned embeddings may be of another width
        vectors = torch.stack(
            [trace.embedding(chosen, layer, kind=kind) for trace, chosen in zip(traces, words, strict=True)]
        )
        similarity.append(cosines_of(vectors))
    return Comparison(
        model=model,
        words=tuple(words),
        texts=tuple(" | ".join(trace.encoding.texts) for trace in traces),
        similarity=torch.stack(similarity).numpy(),
    )


def cosines_of(vectors: Tensor) -> Tensor:
    """float64 (n, n), the cosines between n vectors (n, d); NaN where one is zero."""
    unit = vectors.double() / vectors.double().norm(dim=1, keepdim=True)
    cosines: Tensor = (unit @ unit.mT).clamp(-1.0, 1.0)  # rounding may step over the ends
    return cosines


def found_words(traces: Sequence[Trace], word: str | Sequence[str]) -> tuple[str, list[str]]:
    """The one model of some traces, and the word that is meant in each."""
    if not isinstance(word, Sequence):
        raise InputError(f"word must be a word, or one for each text; got {type(word).__name__}.")
    words = [word] * len(traces) if isinstance(word, str) else list(word)
    if not traces or len(words) != len(traces):
        raise InputError(f"word must be one, or one for each of the {len(traces)} texts; got {len(words)}.")
    models = sorted({trace.model for trace in traces})
    if len(models) > 1:
        raise InputError(f"traces must come from one model; got {', '.join(models)}.")
    for number, (trace, chosen) in enumerate(zip(traces, words, strict=True), start=1):
        try:
            trace.encoding.find(chosen)
        except InputError as error:
            raise InputError(f"text {number}: {error}") from error
    return models[0], words
