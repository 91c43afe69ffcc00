"""Everything that a run of word2vec or FastText is a function of, with the defaults."""

from dataclasses import dataclass, field
from typing import Literal

from regard.data import Csv
from regard.words import Ngrams

WORD_OBJECTIVES = ("word2vec", "fasttext")
"""What has settings of this kind."""


@dataclass(frozen=True, kw_only=True)
class WordDataSettings:
    """Where the texts are, and what a word of them is.

    Args:
        train: files.
        unit: what one text is, of plain text: a line, a paragraph between blank lines, or all of a file. No
            word is in the window of another text's word.
        text: the column of CSV, JSONL and Parquet.
        csv: of CSV and TSV: `delimiter`, `escape` (such as a backslash), `header` (whether there is one).
        encoding: of text, JSON lines and CSV, such as "cp1252".
        words: "unicode", by the word boundaries of UAX #29, where a punctuation mark is a word; or "blanks",
            what stands between white space, for texts that are cut into words already.
        lowercase: whether capitals are lost.
    """

    train: tuple[str, ...] = ()
    unit: Literal["line", "paragraph", "file"] = "line"
    text: str = "text"
    csv: Csv = field(default_factory=Csv)
    encoding: str = "utf-8"
    words: Literal["unicode", "blanks"] = "unicode"
    lowercase: bool = False


@dataclass(frozen=True, kw_only=True)
class WordSettings:
    """A whole run of word2vec or FastText. Sections are mappings in a file: `[data]`, `[ngrams]`.

    Args:
        objective: "word2vec" or "fasttext".
        architecture: "skip-gram", where a word predicts each word of its window; or "cbow", where the mean of
            the window predicts the word.
        size: of a vector.
        window: the most words on each side; for each word anew, from 1 to so many are drawn.
        negatives: words drawn at random for each that is predicted, by their counts to the power .75.
        min_count: words that occur less often are left out before windows are laid.
        subsample: t; of a word that is the share f of all, the share (sqrt(f / t) + 1) t / f is kept, if that
            is below 1. 0 keeps all.
        rate: of learning, in the beginning; None for .2 of word2vec's cbow, .05 of fasttext, else .025.
        floor: what it falls to, in a straight line.
        epochs: how often all of the texts are read.
        data: see there.
        ngrams: of fasttext: the parts of words that have vectors too.
        seed: of everything that is drawn.
        save_every: steps of some 16,000 words between two checkpoints.
    """

    objective: str
    architecture: Literal["skip-gram", "cbow"] = "skip-gram"
    size: int = 100
    window: int = 5
    negatives: int = 5
    min_count: int = 5
    subsample: float = 1e-3
    rate: float | None = None
    floor: float = 1e-4
    epochs: int = 5
    data: WordDataSettings = field(default_factory=WordDataSettings)
    ngrams: Ngrams = field(default_factory=Ngrams)
    seed: int = 0
    save_every: int = 250
