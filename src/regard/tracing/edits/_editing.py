"""From a model and edits to a model of its own, for the time of a block."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from regard.core.errors import InputError
from regard.models import Loaded
from regard.tracing.edits._edit import Edit
from regard.tracing.edits._network import EditedNetwork, EditPlan


@contextmanager
def edited(loaded: Loaded, edits: Sequence[Edit]) -> Iterator[Loaded]:
    """The model with edits; the model itself is left as it is: see `regard.Model.edit`.

    Raises:
        InputError: an edit that the model has no place for; at the end of the block, one that was never made
            since the model was not run.
    """
    plan = EditPlan(loaded.network, edits, loaded.tokenizer)
    network = EditedNetwork(loaded.network, plan)
    source = replace(loaded.source, name=f"{loaded.source.name} (edited)")
    yield replace(loaded, network=network, source=source)
    # Not after an exception, which says more.
    if not plan.ran:
        raise InputError(
            "the edited model was not run inside the with block, so no edit was made; call `edited`, or its "
            "trace, rather than the model."
        )
