"""One word in several sentences: how alike its vectors are, layer by layer, as a table and a plot."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard.core.arguments import path_of
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.wording import excerpt, printable
from regard.models import Kind
from regard.tracing.record import Trace, is_spelled
from regard.views import check_format, moved, new_figure, write_figure

if TYPE_CHECKING:
    from rich.console import RenderableType

# Columns of similarities that fit 80 characters beside the layer.
_PAIRS_A_TABLE = 7
# Columns of a text before it is cut, in a terminal and under a plot, and lines that a legend can name.
_MAX_TEXT = 200
_MAX_CAPTION = 120
_MAX_LEGEND = 15


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(Displayable):
    """How alike one word's vectors are between texts, at every embedding layer.

    Args:
        model: whose vectors.
        words: the word, for each text.
        texts: the texts.
        similarity: (L + 1, texts, texts), cosine from -1 to 1; layer 0 is the learned embedding, L the
            contextual one. NaN where a vector is zero.
        others: (L + 1,), the mean cosine of two different words of one text: what to hold `similarity`
            against. NaN where no text has two.
    """

    model: str
    words: tuple[str, ...]
    texts: tuple[str, ...]
    similarity: np.ndarray
    others: np.ndarray

    def __repr__(self) -> str:
        words = " / ".join(dict.fromkeys(self.words))
        return f"Comparison({words!r} in {len(self.texts)} texts, {len(self.similarity)} embedding layers)"

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Every pair of texts, counted from 0."""
        return list(combinations(range(len(self.texts)), 2))

    def to_json(self) -> dict[str, Any]:
        """Every field under its name; `similarity` as nested lists, NaN as None."""
        return {
            "model": self.model,
            "words": list(self.words),
            "texts": list(self.texts),
            "similarity": _without_nan(self.similarity),
            "others": _without_nan(self.others),
        }

    @property
    def layers(self) -> tuple[str, ...]:
        """What each embedding layer is called: "0 learned", "1", ..., "6 contextual"."""
        last = len(self.similarity) - 1
        return ("0 learned", *map(str, range(1, last)), f"{last} contextual")

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a layer and pair of texts (counted from 1): their cosine, and that of different words."""
        others = self.others.tolist()
        return [
            {"layer": layer, "text": a + 1, "other": b + 1, "cosine": float(matrix[a, b]), "others": usual}
            for layer, (matrix, usual) in enumerate(zip(self.similarity, others, strict=True))
            for a, b in self.pairs
        ]

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        yield Text(f"{printable(self.model)}: cosine similarity of the word's vectors", style="dim")
        for number, (word, text) in enumerate(zip(self.words, self.texts, strict=True), start=1):
            word, text = excerpt(word, 30), excerpt(text, _MAX_TEXT)
            yield Text.assemble((f"{number} ", "bold"), (word, "bold"), f"  {text}")
        pairs = self.pairs
        for start in range(0, len(pairs), _PAIRS_A_TABLE):
            shown = pairs[start : start + _PAIRS_A_TABLE]
            # With one pair there is room for a bar.
            single = len(pairs) == 1
            cells = [
                [
                    name,
                    *(
                        "-" if np.isnan(each) else f"{each:.3f}"
                        for each in (*map(matrix.item, shown), others)
                    ),
                    *(["█" * round(40 * max(0.0, np.nan_to_num(matrix[shown[0]])))] if single else []),
                ]
                for name, matrix, others in zip(self.layers, self.similarity, self.others, strict=True)
            ]
            names = [f"{a + 1}-{b + 1}" for a, b in shown]
            yield ""
            yield plain_table(["layer", *names, "others", *([""] if single else [])], cells, bar=single)
        yield ""
        # 1 - cosine at the last layer, and that of two different words.
        moves = [1 - float(self.similarity[-1][pair]) for pair in pairs]
        yield Text(moved(moves, 1 - float(self.others[-1])))

    def plot(self, path: str | Path) -> None:
        """Draw similarity against layer, a line a pair of texts.

        Args:
            path: the file; its ending says the format: .png, .svg or .pdf.

        Raises:
            MissingExtraError: matplotlib is not installed.
            InputError: another ending.
            OutputError: the file cannot be written.
        """
        check_format(path_of("path", path))
        figure = new_figure(width=7.0, height=4.5 + 0.12 * len(self.texts))
        axes = figure.subplots()
        layers = np.arange(len(self.similarity))
        for number, (a, b) in enumerate(self.pairs):
            # Marker and dash differ too: colour alone would be lost in print and to some eyes.
            axes.plot(
                layers,
                self.similarity[:, a, b],
                marker="osv^D*XP"[number % 8],
                linestyle=("-", "--", "-.", ":")[number % 4],
                label=f"{a + 1} and {b + 1}",
            )
        axes.plot(layers, self.others, color="0.6", linestyle=":", label="others")
        axes.set_xticks(layers)
        axes.set_xlabel("embedding layer (0 is the learned embedding)")
        axes.set_ylabel("cosine similarity")
        names = " / ".join(excerpt(word, 30) for word in dict.fromkeys(self.words))
        title = f"“{names}” between sentences, {printable(self.model)}"
        # A text may hold dollar signs, which are no formula.
        axes.set_title(excerpt(title, 75), fontsize=10, parse_math=False)
        axes.grid(alpha=0.3)
        if len(self.pairs) <= _MAX_LEGEND:
            axes.legend(title="texts", fontsize=8)
        captions = (
            f"{number}  {excerpt(text, _MAX_CAPTION)}" for number, text in enumerate(self.texts, start=1)
        )
        figure.supxlabel("\n".join(captions), fontsize=7, x=0.02, ha="left", parse_math=False)
        write_figure(figure, Path(path))


def compare(traces: Sequence[Trace], word: str | Sequence[str]) -> Comparison:
    """The cosine similarity of one word's vectors between texts, at every embedding layer.

        similarity[l, a, b] = e_a . e_b / (|e_a| |e_b|),  e_a the word's embedding at layer l in text a

    A cosine alone says little: words of one text are alike too. `others` is that, by `words_alike`.

    Args:
        traces: of two texts or more, by one model.
        word: the word, in all texts, or one for each ("bank#2" chooses among several).

    Returns:
        The similarities, for layers 0 (the learned embedding: 1 for the same word) to L; NaN where a vector
        is zero and so has no direction.

    Raises:
        InputError: fewer than two texts, traces of different models, a word that is not in a text.

    Example:
        >>> from regard.tracing import compare
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
    # The kind of attention of the stack that reads the text.
    kind = traces[0].kinds[0]
    layers = range(len(traces[0].source.hidden))
    similarity = []
    # Layer by layer: learned embeddings may be of another width.
    for layer in layers:
        vectors = torch.stack(
            [trace.embedding(chosen, layer, kind=kind) for trace, chosen in zip(traces, words, strict=True)]
        )
        similarity.append(cosines_of(vectors))
    return Comparison(
        model=model,
        words=tuple(words),
        texts=tuple(" | ".join(trace.encoding.texts) for trace in traces),
        similarity=torch.stack(similarity).numpy(),
        others=np.array([words_alike(traces, layer, kind) for layer in layers]),
    )


def words_alike(traces: Sequence[Trace], layer: int = -1, kind: Kind | None = None) -> float:
    """The mean cosine of two different words of one text, each with a letter or a digit; NaN without two.

    Over all such pairs, counted in O(words): with u the words' embeddings at length 1, S their sum in a text
    and S_w that of the words spelled w, m and m_w of them, sum (|S|^2 - sum_w |S_w|^2) / sum (m^2 - sum_w
    m_w^2).
    """
    alike, pairs = 0.0, 0
    for trace in traces:
        encoding, rows = trace.stack(kind).encoding, trace.embeddings(layer, kind=kind).double()
        units: dict[str, list[Tensor]] = {}
        # Tokens of one word follow each other: their mean is its vector.
        for word, places in groupby(range(len(rows)), key=lambda at: encoding.tokens[at].word):
            vector = rows[list(places)].mean(dim=0)
            # Words with a letter or a digit, and a direction.
            if word is not None and is_spelled(name := encoding.words[word].text) and vector.any():
                units.setdefault(name.casefold(), []).append(vector / vector.norm())
        if len(units) > 1:
            sums = torch.stack([torch.stack(each).sum(dim=0) for each in units.values()])
            # |sum of all|^2 - sum of |each word's sum|^2: the cosines of all pairs of different words,
            # twice.
            alike += float(sums.sum(dim=0).square().sum() - sums.square().sum())
            counts = [len(each) for each in units.values()]
            # As many ordered pairs.
            pairs += sum(counts) ** 2 - sum(each**2 for each in counts)
    return alike / pairs if pairs else math.nan


def _without_nan(numbers: np.ndarray) -> Any:
    plain = numbers.astype(object)
    plain[np.isnan(numbers)] = None
    return plain.tolist()


def cosines_of(vectors: Tensor) -> Tensor:
    """float64 (n, n), the cosines between n vectors (n, d); NaN where one is zero."""
    unit = vectors.double() / vectors.double().norm(dim=1, keepdim=True)
    # Rounding may step over the ends.
    cosines: Tensor = (unit @ unit.mT).clamp(-1.0, 1.0)
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
    # Each text must have its word: the error says which.
    for number, (trace, chosen) in enumerate(zip(traces, words, strict=True), start=1):
        try:
            trace.encoding.find(chosen)
        except InputError as error:
            raise InputError(f"text {number}: {error}") from error
    return models[0], words
