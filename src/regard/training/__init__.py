"""Training: from raw text, pairs or labels to a transformer, exactly resumable, on one machine or many."""

from regard.training._checkpoints import last_checkpoint
from regard.training._configuration import (
    AnySettings,
    as_mapping,
    as_toml,
    read_settings,
    read_word_settings,
)
from regard.training._journal import curves, film, read_journal
from regard.training._losses import NOT_A_TARGET, cross_entropy, kl_divergence, smoothed_entropy
from regard.training._ranks import is_first_process
from regard.training._result import Result
from regard.training._scoring import Scored, score
from regard.training._settings import (
    BatchSettings,
    DataSettings,
    OptimiserSettings,
    Settings,
    TokenizerSettings,
    WordDataSettings,
    WordSettings,
)
from regard.training._train import train
from regard.training.words import train_words, words_step

__all__ = [
    "NOT_A_TARGET",
    "BatchSettings",
    "DataSettings",
    "OptimiserSettings",
    "Result",
    "Scored",
    "Settings",
    "TokenizerSettings",
    "WordDataSettings",
    "WordSettings",
    "cross_entropy",
    "curves",
    "film",
    "kl_divergence",
    "read_settings",
    "read_word_settings",
    "score",
    "smoothed_entropy",
    "train",
    "train_words",
]
