"""What a network is trained for: one file per objective."""

from regard.training.tasks._classify import TextLabels
from regard.training.tasks._clm import NextToken
from regard.training.tasks._distil import Distillation
from regard.training.tasks._electra import ReplacedTokens
from regard.training.tasks._mlm import MaskedTokens
from regard.training.tasks._seq2seq import Translation
from regard.training.tasks._tag import WordTags
from regard.training.tasks._task import Task, TaskInputs

TASKS: dict[str, type[Task]] = {
    "mlm": MaskedTokens,
    "clm": NextToken,
    "seq2seq": Translation,
    "classify": TextLabels,
    "tag": WordTags,
    "electra": ReplacedTokens,
    "distil": Distillation,
}
"""The objectives, by the name that is typed."""
