"""How much memory a trace will take, told before it is made."""

import math
import re
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

from regard.blocks import learned
from regard.core import Taps
from regard.core.displayable import Tabular
from regard.core.errors import InputError
from regard.core.memory import check_room, has_room, human_bytes
from regard.models import Loaded, Network
from regard.models.families.deberta import DistanceTerm, RelativePositions
from regard.text import Encoding
from regard.tracing.record import EVERYTHING, KeepPolicy, kept_bytes, places
from regard.tracing.run._listening import Listening
from regard.tracing.run._passes import check_traced, run


@dataclass(frozen=True, kw_only=True)
class Forecast(Tabular):
    """What a trace will take, in bytes over the loaded model.

    Args:
        kept: what the trace holds, to the byte.
        peak: the most that is expected while it is made: what it holds, and the layer at work.

    Example:
        >>> from regard.tracing import Forecast
        >>> Forecast(kept=944_000_000, peak=1_045_000_000)
        Forecast(900.3 MiB kept, 996.6 MiB while it is made)
    """

    kept: int
    peak: int

    def to_rows(self) -> list[dict[str, Any]]:
        """One row: bytes kept, and at the peak."""
        return [asdict(self)]

    def __repr__(self) -> str:
        return f"Forecast({human_bytes(self.kept)} kept, {human_bytes(self.peak)} while it is made)"


def forecast(
    loaded: Loaded, num_tokens: int, target_tokens: int | None = None, keeping: KeepPolicy = EVERYTHING
) -> Forecast:
    """Estimate the memory of a trace before it is made.

    What is kept is a polynomial of the lengths, of degree 2: most tensors have a row for each token; through
    the lens some models make N x N biases, and edits of weights or scores leave N x N weights. Its
    coefficients are those of traces of at most three tokens, and so exact.

    What the process grows by beside it is estimated, from above:

        16 MiB + f n w,    f = 3, and 6 through the lens

    where n w are the bytes of n tokens at the widest matrix of a layer, its inputs and its outputs; and N x N
    once more through the lens, four times for edits of scores or weights. docs/howto/traces.md says how it
    was measured.

    Args:
        loaded: the model.
        num_tokens: of the text.
        target_tokens: of what the decoder beside an encoder reads; by default its start token alone.
        keeping: what is kept.

    Raises:
        InputError: a model that cannot be traced; fewer tokens than one, or more than the model takes; a
            target where there is no second stack; or layers that the model does not have.
    """
    check_traced(loaded.network)
    lengths = _lengths(loaded.network, num_tokens, target_tokens)
    keeping.check(loaded.network)
    return _by_lengths(loaded.network, lengths, keeping)


def check_fits(loaded: Loaded, keeping: KeepPolicy, *lengths: int) -> None:
    """Refuse a trace that memory would not hold."""
    network = loaded.network
    device = next(network.parameters()).device
    # To ask the system how much is free takes a tenth of the time of a short trace; a forecast runs passes.
    # A rough upper bound first, which costs nothing.
    roughly = _more_than(network, lengths)
    if roughly < _LITTLE or has_room(roughly, device):
        return
    check_room(
        f"a trace of {' and '.join(map(str, lengths))} tokens of {loaded.source.name}",
        _by_lengths(network, lengths, keeping).peak,
        device,
        "ask for less by keep=, layers= or dtype=, or give a shorter text; model.forecast says what each "
        "takes",
    )


# Where less than this is free, nothing else runs either.
_LITTLE = 2**28


def _more_than(network: Network, lengths: tuple[int, ...]) -> int:
    """More than a trace takes, without a pass: 32 numbers of 8 bytes for each entry of a hidden state, and
    N x N of every head, for each tap that is written once more."""
    config, tokens = network.config, sum(lengths)
    # Eight more states for embeddings, norms and what a pass has beside them.
    depth = sum(network.depth(kind) for kind in network.prefixes) + 8
    squares = 16 * config.num_heads * tokens**2 * (1 + len(network.written))
    return 256 * tokens * depth * config.d_model + squares


def _lengths(network: Network, num_tokens: int, target_tokens: int | None) -> tuple[int, ...]:
    if target_tokens is not None and len(network.prefixes) == 1:
        raise InputError("target_tokens must be None: this model has no decoder beside its encoder.")
    # Without a target the decoder reads its start token.
    lengths = (num_tokens, 1 if target_tokens is None else target_tokens)[: len(network.prefixes)]
    for name, count, kind in zip(("num_tokens", "target_tokens"), lengths, network.prefixes, strict=False):
        limit = network.limit(kind)
        wanted = "at least 1" if limit is None else f"from 1 to {limit}, the model's limit"
        # type() is: True is an int.
        if type(count) is not int or not 1 <= count <= (limit or count):
            raise InputError(f"{name} must be {wanted}; got {count!r}.")
    return lengths


# Longer texts are not run. A polynomial of degree 2 follows from its values at three lengths, whichever they
# are: the shortest cost least, and give all families and all models of the lens to the byte.
_SHORT = (1, 2, 3)


def _by_lengths(network: Network, lengths: tuple[int, ...], keeping: KeepPolicy) -> Forecast:
    # Axes of the polynomial: one, or two with a decoder beside an encoder.
    axes = [_SHORT if length > _SHORT[-1] else (length,) for length in lengths]
    # As many lengths as coefficients: of 1, n, n^2, and with a decoder beside an encoder m, m^2, n m.
    powers = [each for each in product(*(range(len(axis)) for axis in axes)) if sum(each) <= 2]
    short = [tuple(axis[step] for axis, step in zip(axes, each, strict=True)) for each in powers]

    def terms(of: tuple[int, ...]) -> list[int]:
        return [math.prod(n**power for n, power in zip(of, each, strict=True)) for each in powers]

    sizes = [_kept(network, each, lengths, keeping) for each in short]
    # As many equations as coefficients: one pass of short texts each.
    factors = np.linalg.solve(np.array([terms(each) for each in short], dtype=np.float64), np.array(sizes))
    # Each term at the lengths that were asked for, in whole bytes.
    parts = [round(each) * term for each, term in zip(factors, terms(lengths), strict=True)]
    # What grows with n squared: a pass through the lens holds it once more.
    squares = sum(part for part, each in zip(parts, powers, strict=True) if sum(each) == 2)
    return Forecast(kept=sum(parts), peak=sum(parts) + _passing(network, lengths, squares))


def _passing(network: Network, lengths: tuple[int, ...], squares: int) -> int:
    """What a pass takes beside what is kept: the factors are measured, see `forecast`."""
    plain, config, tokens = network.plain, network.config, sum(lengths)
    # Layers are numbered, and so the names of what is in them.
    numbered = (
        each.shape for each in learned(plain) if len(each.shape) > 1 and re.search(r"\.\d+\.", each.name)
    )
    # The largest layer: inputs and outputs of its matrix.
    width = max((sum(each[-2:]) for each in numbered), default=5 * config.d_model)
    # Measured: three tensors of that width at one time, six through the lens.
    entries = (6 if plain.foreign else 3) * tokens * width
    # Logits of every position, where the model cannot leave them out.
    if not plain.spares_logits:
        entries += tokens * config.vocab_size
    # Written scores or weights are worked out as matrices: four of them.
    if any(name.endswith((".scores", ".weights")) for name in network.written):
        entries += 4 * config.num_heads * max(lengths) ** 2
    size = next(plain.parameters()).element_size()
    return 2**24 + entries * size + (squares if plain.foreign else 0)


def _kept(network: Network, short: tuple[int, ...], lengths: tuple[int, ...], keeping: KeepPolicy) -> int:
    """What a trace of short texts holds, with DeBERTa's tables of distances as large as the long texts need.

    A table has a row for each distance up to the largest, and stops growing there, so it is no polynomial.

    The network without edits runs, and all of each tensor that they write is written: their words and
    positions are those of the text, not of a short one.
    """
    listening = Listening(network, keeping)
    # Edits make a pass keep matrices: they are listened to as edits would write them.
    taps = Taps(dict.fromkeys(network.written, torch.clone)).then(listening.taps())
    texts = [Encoding.from_ids([0] * length) for length in short]
    with torch.no_grad():
        run(network.plain, [(texts[0], texts[1] if len(texts) > 1 else None)], taps=taps)
    stacks = tuple(listening.stack(*each) for each in zip(network.prefixes, texts, strict=True))
    layers = (traced.attention[place] for traced in stacks for place in places(traced.attention))
    terms = [getattr(layer.inputs.bias, name, None) for layer in layers for name in ("c2p", "p2c")]
    tables = kept_bytes(tuple(term.table for term in terms if isinstance(term, DistanceTerm)))
    relative = [each for each in network.modules() if isinstance(each, RelativePositions)]
    # DeBERTa's tables grow with the length in steps: what the long texts need is asked of it.
    now, then = (sum(len(each.of_length(of[0])[0]) for each in relative) for of in (short, lengths))
    return kept_bytes(stacks) - tables + tables * then // max(1, now)
