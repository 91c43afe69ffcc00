"""What a file of a family says of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import KeyMap
from regard.models._transformer import Transformer


@dataclass(frozen=True)
class Family:
    """How checkpoints of one architecture become a network, and back.

    Args:
        name: `model_type` in config.json.
        config: the class of its configs, which reads config.json and writes it.
        build: from the config to the network, its parameters not yet set; InputError for sizes that no
            network can have, or that do not divide.
        keys: the map between the names on disk and the network's own.
        read_by: the class of transformers that reads its files of a tokenizer, where they state none; "" for
            the family's own.
        heads_divide: its class in transformers 5 refuses a hidden size that the heads do not divide, even
            with a `head_dim`.
        pruned_by_code: transformers 5 takes it with heads removed, by `modeling_regard_pruned`.
        pruned_in_4: transformers 4 cuts the heads of `pruned_heads` when it loads: tried with 4.57.1.
        live: the page runs it, by `static/live`.
    """

    name: str
    config: type[Any]
    build: Callable[[Any], Transformer]
    keys: KeyMap
    read_by: str = ""
    heads_divide: bool = False
    pruned_by_code: bool = True
    pruned_in_4: bool = False
    live: bool = False

    @property
    def tokenizer_class(self) -> str:
        """The name in transformers of the class for its files of a tokenizer that state none."""
        return self.read_by or f"{self.config.STEMS[self.name]}Tokenizer"
