"""Running a trace's model again on the same tokens."""

from typing import Any

import torch

from regard.core import Taps
from regard.core.errors import InputError
from regard.models import Network, Output, StackKind
from regard.tracing.record import Trace


def run_again(
    trace: Trace,
    network: Network,
    *,
    batch: int = 1,
    logits: bool = False,
    taps: Taps | None = None,
    all_ids: tuple[StackKind, int] | None = None,
) -> Output:
    """The forward pass that a trace is of.

    Args:
        trace: whose tokens.
        network: what runs.
        batch: how many copies of them.
        logits, taps: as in `Network.forward`.
        all_ids: a stack, and an id that all its tokens are for this pass.
    """
    encodings = {kind: trace.passage(kind).encoding for kind in network.prefixes}
    ids = {kind: list(each.token_ids) for kind, each in encodings.items()}
    if all_ids is not None:
        kind, id = all_ids
        ids[kind] = [id] * len(ids[kind])
    device = next(network.parameters()).device
    given = [torch.tensor([each] * batch, device=device) for each in ids.values()]
    arguments: dict[str, Any] = {}
    if network.config.num_token_types and trace.encoding.texts:
        arguments["token_types"] = torch.tensor([trace.encoding.type_ids] * batch, device=device)
    if len(given) == 2:
        arguments["decoder_token_ids"] = given[1]
    network = network.for_texts(encodings)
    output: Output = network(given[0], logits=logits, taps=taps, **arguments)
    return output


def check_mode(network: Network) -> None:
    """Raise InputError if a network is in training mode."""
    if network.training:
        raise InputError(
            "the network must be in evaluation mode: in training, dropout makes every pass another; "
            "call model.network.eval()."
        )
