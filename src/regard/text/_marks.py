"""Sets of special tokens, as families of models have them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tokenizers import processors


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Special tokens by role, in the order of their ids, and what stands around one text and around two."""

    roles: Mapping[str, str]
    single: str | None = None
    pair: str | None = None

    def around(self, id_of: Callable[[str], int | None]) -> processors.TemplateProcessing | None:
        """What puts them around texts."""
        if self.single is None or self.pair is None:
            return None
        names = sorted({part.removesuffix(":1") for part in self.pair.split()} - {"$A", "$B"})
        return processors.TemplateProcessing(
            single=self.single.split(),
            pair=self.pair.split(),
            special_tokens=[(name, id_of(name)) for name in names],
        )


MARKS: Final = {
    "gpt2": Marks(roles={"bos": "<|endoftext|>", "eos": "<|endoftext|>"}),
    "bert": Marks(
        roles={"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    ),
    "bart": Marks(
        roles={
            "bos": "<s>",
            "pad": "<pad>",
            "eos": "</s>",
            "unk": "<unk>",
            "mask": "<mask>",
            "cls": "<s>",
            "sep": "</s>",
        },
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
    ),
    "t5": Marks(
        roles={"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}, single="$A </s>", pair="$A </s> $B </s>"
    ),
    "none": Marks(roles={}),
}
"""By the family that has them, each with the ids that this family gives them by default."""
