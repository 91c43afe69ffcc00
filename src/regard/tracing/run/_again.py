"""Running a network on texts, and again on those of a trace."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from regard.core import Taps
from regard.core.errors import InputError
from regard.models import Network, Output, StackKind
from regard.text import Encoding
from regard.tracing.record import Trace
from regard.tracing.run._batches import Given, padded


def run(
    network: Network, given: Sequence[Given], *, logits: bool = False, taps: Taps | None = None
) -> Output:
    """One pass over one text or several.

    Args:
        network: in evaluation mode.
        given: what it reads.
        logits, taps: as in `Network.forward`.
    """
    device = next(network.parameters()).device
    encodings = [encoding for encoding, _ in given]
    ids, types, real = padded(encodings, device)
    arguments: dict[str, Tensor] = {}
    # Of ids alone nothing is said, which is not for every network the same as types that are all 0.
    if network.config.num_token_types and (all(each.texts for each in encodings) or bool(types.any())):
        arguments["token_types"] = types
    # What follows a text is no key of a decoder's queries, which see what is before them.
    if real is not None and "encoder" in network.prefixes:
        arguments["mask"] = real
    targets = [target for _, target in given if target is not None]
    if targets:
        arguments["decoder_token_ids"], _, _ = padded(targets, device)
    output: Output = network(ids, logits=logits, taps=taps, **arguments)
    return output


def rerun(
    trace: Trace,
    network: Network,
    *,
    batch: int = 1,
    logits: bool = False,
    taps: Taps | None = None,
    instead: Mapping[StackKind, Encoding] | None = None,
) -> Output:
    """The forward pass that a trace is of.

    Args:
        trace: whose tokens.
        network: what runs.
        batch: how many copies of them.
        logits, taps: as in `Network.forward`.
        instead: what stacks read in the place of their tokens, as many.
    """
    encodings = {kind: trace.passage(kind).encoding for kind in network.prefixes}
    source, *targets = (encodings | dict(instead or {})).values()
    given = (source, targets[0] if targets else None)
    return run(network.for_texts(encodings), [given] * batch, logits=logits, taps=taps)


def check_traced(network: Network) -> None:
    """Raise InputError if a network cannot be traced, with the reason."""
    if network.untraced is not None:
        raise InputError(f"model must be one that can be traced; of this one {network.untraced}.")


def check_mode(network: Network) -> None:
    """Raise InputError if a network is in training mode, or cannot be traced at all."""
    check_traced(network)
    if network.training:
        raise InputError(
            "the network must be in evaluation mode: in training mode, dropout changes every pass; "
            "call model.network.eval()."
        )
