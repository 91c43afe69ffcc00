"""Models of transformers, tiny and saved once a session, for every test in this folder that asks for them."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

import regard
from parity.families import ENTRIES
from parity.families_entry import Saved, save


class Workshop:
    """Makes each model when it is first asked for."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._made: dict[Any, Saved] = {}
        self._loaded: dict[Any, regard.Model] = {}

    def saved(
        self, entry: str, label: str = "base", dtype: torch.dtype = torch.float32, **fields: Any
    ) -> Saved:
        """A class of an entry in some type, some fields of its configuration otherwise, in its folder."""
        key = (entry, label, dtype, *sorted(fields.items()))
        if key not in self._made:
            family = ENTRIES[entry]
            model = family.build(label, dtype=dtype, **fields)
            folder = self._factory.mktemp("saved") / entry
            self._made[key] = save(model, family.shape_of(label), folder)
        return self._made[key]

    def model(
        self, entry: str, label: str = "base", dtype: torch.dtype = torch.float32, **fields: Any
    ) -> regard.Model:
        """What regard makes of that folder; for tests that change nothing."""
        key = (entry, label, dtype, *sorted(fields.items()))
        if key not in self._loaded:
            self._loaded[key] = regard.load(self.saved(entry, label, dtype, **fields).folder)
        return self._loaded[key]

    def network(self, *of: Any, **fields: Any) -> Any:
        """Its network."""
        return self.model(*of, **fields).network


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without progress bars and reports on stderr, and in one thread, the fastest for tiny models."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    verbosity = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    yield
    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity(verbosity)
    transformers.utils.logging.enable_progress_bar()
