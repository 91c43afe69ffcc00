"""Everything that a run is a function of, with the defaults and the limits: of a transformer, or of words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from regard.core.arguments import BelowOne, Count, Natural, NotNegative, Positive, Share, check_fields, wholes
from regard.core.errors import InputError
from regard.data import Csv
from regard.words import Ngrams

WORD_OBJECTIVES = ("word2vec", "fasttext")
"""The objectives with `WordSettings`."""

FormName = Literal["rows", "packed", "blocks"]
"""How texts become rows of a batch."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where the texts are.

    Args:
        train: files.
        train_target: for parallel files, the other side of `train`, in the same order.
        valid, valid_target: files to score on while training; none: a part of the others.
        valid_share: how large a part, where no files are given: rows drawn with the seed; of whole files,
            their ends. 0 for none.
        unit: what one text is, of plain text: a line, a paragraph between blank lines, or all of a file. None
            for the objective's own: clm reads whole files, the others lines.
        text, target, label: columns of CSV, JSONL and Parquet; None for the objective's own: text, target and
            label; for tag words and tags.
        csv: of CSV and TSV: `delimiter`, `escape` (such as a backslash), `header` (whether there is one).
        encoding: of text, JSON lines and CSV, such as "cp1252".
        longer: what becomes of a text that is longer than `batch.length`: "split" into several (mlm, clm),
            "cut" at the end, "drop", or "refuse". None for the objective's own way.
    """

    train: tuple[str, ...] = ()
    train_target: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    valid_target: tuple[str, ...] = ()
    valid_share: BelowOne = 0.05
    unit: Literal["line", "paragraph", "file"] | None = None
    text: str | None = None
    target: str | None = None
    label: str | None = None
    csv: Csv = field(default_factory=Csv)
    encoding: str = "utf-8"
    longer: Literal["split", "cut", "drop", "refuse"] | None = None


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """Which tokenizer, where neither a file nor a checkpoint gives one: it is trained on the data.

    Args:
        path: a tokenizer.json, or a folder with one.
        kind: "bpe", "wordpiece", "unigram" or "characters"; None for the objective's own.
        size: entries of the vocabulary, at most.
        lowercase: whether capitals are lost.
    """

    path: str | None = None
    kind: Literal["bpe", "wordpiece", "unigram", "characters"] | None = None
    size: int = 8000
    lowercase: bool = False


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """How much is read before each step.

    Args:
        tokens: positions of a micro-batch, padding included: (longest text) x (texts). None to count rows.
        rows: rows of a micro-batch, where `tokens` is None.
        length: the most positions of a row.
        form: "rows", a text each, texts of like length together; "packed", several whole texts in a row that
            do not see each other; "blocks", all texts as one, cut into rows of equal length. None for the
            objective's own.
        accumulate: micro-batches a step and rank.
    """

    tokens: Count | None = None
    rows: Count = 32
    length: Count = 128
    form: FormName | None = None
    accumulate: Count = 1


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """How the parameters move.

    Args:
        name: "adamw", or "muon" for the matrices inside the layers and AdamW for the rest.
        lr: the peak of AdamW's learning rate.
        muon_lr: the peak of Muon's; None for `lr`, since its updates are scaled to the size of AdamW's.
        floor: what the learning rate falls to after the last step, as a share of its peak.
        schedule: "constant", "cosine", "inverse-sqrt", "linear" or "stable"; None for the objective's own.
        warmup: steps that it rises over; None for a tenth of all.
        betas, eps: AdamW's.
        weight_decay: of matrices and tables; norms and biases have none.
        clip: the largest norm of the gradient; None for no clipping.
    """

    name: Literal["adamw", "muon"] = "adamw"
    lr: Positive = 5e-4
    muon_lr: Positive | None = None
    floor: Share = 0.0
    schedule: Literal["constant", "cosine", "inverse-sqrt", "linear", "stable"] | None = None
    warmup: Natural | None = None
    betas: tuple[BelowOne, BelowOne] = (0.9, 0.98)
    eps: Positive = 1e-8
    weight_decay: NotNegative = 0.01
    clip: Positive | None = 1.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A whole run. Sections are mappings in a file: `[batch]`, `[optimiser]`, ...

    Args:
        objective: "mlm", "clm", "seq2seq", "electra", "distil", "classify" or "tag".
        start: a checkpoint to train on from; None for a new network.
        family: of a new network, one of `regard.models.FAMILIES`; None for the objective's own.
        model: fields of its config, such as {"d_model": 256}; a checkpoint takes other dropout.
        task: what the objective itself can be told, such as {"masked": 0.3}.
        data, tokenizer, batch, optimiser: see there.
        steps: of the optimiser, in all; None for 2,000, or as `epochs` says.
        epochs: how often all of the data is read, in place of `steps`.
        evaluate_every: steps between two scores on the validation set.
        save_every: steps between two checkpoints, beside those at each score.
        keep: how many of the last checkpoints stay; the best stays too.
        average: the last checkpoints, at most `keep`, whose mean is scored at the end and kept if it is
            better; 0 for none.
        patience: scores without a better one before training stops; None for never.
        best: the score that decides, such as "loss" or "bleu"; None for the objective's own.
        precision: "float32", or "bfloat16" for the matrix products.
        shard: whether parameters are divided among the processes (FSDP2), not copied to each (DDP).
        seed: of everything that is drawn.
        watch: texts to trace while training.
        watch_every: steps between two traces; None for some 60 in all.
    """

    objective: str
    start: str | None = None
    family: str | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=dict)
    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    steps: Count | None = None
    epochs: Positive | None = None
    evaluate_every: Count = 250
    save_every: Count = 250
    keep: Count = 3
    average: Natural = 0
    patience: Count | None = None
    best: str | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    shard: bool = False
    seed: Natural = 0
    watch: tuple[str, ...] = ()
    watch_every: Count | None = None


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
        size: numbers of a vector.
        window: the most words on each side; for each word a number from 1 to this one is drawn.
        negatives: words drawn at random for each that is predicted, by their counts to the power .75.
        min_count: words that occur less often are left out before windows are laid.
        subsample: t; a word that makes up the share f of all is kept with the probability
            (sqrt(f / t) + 1) t / f, if that is below 1. 0 keeps all.
        rate: the learning rate at the beginning; None for .2 of word2vec's cbow, .05 of fasttext, else .025.
        floor: what the rate falls to, in a straight line.
        epochs: how often all of the texts are read.
        data: see there.
        ngrams: of fasttext: the parts of words that have vectors too.
        seed: of everything that is drawn.
        save_every: steps of some 16,000 words between two checkpoints.
    """

    objective: str
    architecture: Literal["skip-gram", "cbow"] = "skip-gram"
    size: Annotated[int, wholes(1, 1024)] = 100
    window: Annotated[int, wholes(1, 100)] = 5
    negatives: Annotated[int, wholes(1, 63)] = 5  # as many as the kernel takes
    min_count: Count = 5
    subsample: NotNegative = 1e-3
    rate: Positive | None = None
    floor: NotNegative = 1e-4
    epochs: Count = 5
    data: WordDataSettings = field(default_factory=WordDataSettings)
    ngrams: Ngrams = field(default_factory=Ngrams)
    seed: Natural = 0
    save_every: Count = 250


def check_limits(settings: Settings) -> None:
    """Refuse numbers out of range, and settings that contradict each other."""
    data, batch = settings.data, settings.batch
    # First each field by itself, then what they say together.
    _check_each(settings)
    if "-" in (*data.train, *data.train_target):
        raise InputError("data.train must be files: - is read once, and training reads its texts again.")
    if settings.steps is not None and settings.epochs is not None:
        raise InputError("steps must be None where epochs says how long to train; give one of them.")
    if batch.tokens is not None and batch.tokens < batch.length:
        raise InputError(
            f"batch.tokens must be at least batch.length, {batch.length}, so that the longest text fits; "
            f"got {batch.tokens}."
        )
    # Texts to score on, by files or by a share.
    is_scored = bool(data.valid) or data.valid_share > 0.0
    for name in () if is_scored else ("best", "patience", "average"):
        if getattr(settings, name):
            raise InputError(
                f"{name} must be left out where data.valid_share is 0: it needs texts to score on."
            )
    # Only checkpoints that are kept can be averaged.
    if settings.average > settings.keep:
        raise InputError(f"average must be at most keep, {settings.keep}; got {settings.average}.")


def check_word_limits(settings: WordSettings) -> None:
    """The same of word2vec and FastText."""
    _check_each(settings)
    if settings.objective != "fasttext" and settings.ngrams != Ngrams():
        raise InputError(f"ngrams are of fasttext; {settings.objective} has none. Leave them out.")


def _check_each(settings: Settings | WordSettings) -> None:
    if not settings.data.train:
        raise InputError("data.train must name at least one file.")
    check_fields(settings)
