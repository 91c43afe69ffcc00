"""How much memory a trace will take, told before it is made."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from regard._lens import ACTIVATED_AT_ONCE
from regard.blocks import MANY_ROWS, ROWS_AT_ONCE
from regard.core.errors import InputError
from regard.models import Loaded, Network, Transformer
from regard.tracing.record import EVERYTHING, Heap, Keeping, free_bytes, told
from regard.tracing.run._in_blocks import in_blocks
from regard.tracing.run._probes import Probe, Sample, grid, sample, short, table_rows_of


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a trace will take, in bytes over the loaded model.

    What is kept is told to the byte, what is allocated within some per cent. What the process grows by also
    depends on where the C library finds room, which differs from one process to the next.

    Args:
        kept: what the trace holds.
        forward: the most that a pass which keeps nothing has allocated at one time.
        allocated: the most that is allocated at one time while the trace is made; on a GPU what
            `torch.cuda.max_memory_allocated` tells.
        total: what a process is expected to grow by: `allocated`, on a CPU with the holes between tensors
            and what kernels use.

    Example:
        >>> Forecast(kept=944_000_000, forward=126_000_000, allocated=1_020_000_000, total=1_045_000_000)
        Forecast(996.6 MiB: 900.3 MiB kept, 120.2 MiB for a pass that keeps nothing)
    """

    kept: int
    forward: int
    allocated: int
    total: int

    def __repr__(self) -> str:
        return (
            f"Forecast({told(self.total)}: {told(self.kept)} kept, {told(self.forward)} for a pass that "
            "keeps nothing)"
        )


def forecast(
    loaded: Loaded, num_tokens: int, target_tokens: int | None = None, keeping: Keeping = EVERYTHING
) -> Forecast:
    """What a trace of so many tokens will take.

    The network runs on a few short texts, and every allocation is written down. Each is a polynomial of the
    lengths: constant, linear, and in models that are seen through the lens, some of which make N x N masks
    and biases, quadratic. Evaluated at the length asked for, the sum of what is alive after each operation is
    the course of the memory. Short texts are run as they are.

    A model with sliding windows, whose mask transformers makes only for texts as long, goes that way with
    the short ones too. A model with edits is forecast as if each wrote all of the tensors that it writes;
    where these are scores or weights, the pass makes them and the trace holds the weights, N x N.

    On the CPU `total` has something for the holes that freed tensors leave, measured on models of BERT's,
    GPT-2's, Llama's and T5's kind with glibc 2.36: see `_holes`.

    Args:
        loaded: the model.
        num_tokens: of the text.
        target_tokens: of what the decoder beside an encoder reads; by default its start token alone.
        keeping: what is kept.

    Raises:
        InputError: fewer tokens than one, or more than the model takes; a target where there is no second
            stack; or layers that the model does not have.
    """
    network, lengths = loaded.network, _lengths(loaded.network, num_tokens, target_tokens)
    keeping.check(network)
    return _told(network, lengths, keeping)


def bytes_at(loaded: Loaded, num_tokens: int, keeping: Keeping = EVERYTHING) -> int:
    """What a trace of so many tokens will hold; for an encoder-decoder, so many on either side.

    It is `forecast(...).kept`.

    Raises:
        InputError: fewer tokens than one, or more than the model takes.

    Example:
        >>> import regard
        >>> from regard.tracing import kept_bytes
        >>> model = regard.load()
        >>> bytes_at(model.loaded, 7) == kept_bytes(model.trace("time flies like an arrow"))
        True
    """
    both = num_tokens if len(loaded.network.prefixes) == 2 else None
    return _kept(loaded.network, _lengths(loaded.network, num_tokens, both), keeping)[0]


def check_fits(loaded: Loaded, keeping: Keeping, *lengths: int) -> None:
    """Refuse a trace that memory would not hold.

    Args:
        loaded: the model.
        keeping: what would be kept.
        lengths: tokens of the text, and of what a decoder beside an encoder reads.

    Raises:
        InputError: how much it takes, how much there is, and what would fit.
    """
    network = loaded.network
    roughly = 2 * _roughly(network, lengths)
    if roughly < _LITTLE:
        return  # to ask the system how much is free takes a tenth of the time of a short trace
    free = free_bytes(next(network.parameters()).device)
    if free is None or roughly < free:
        return  # far from it: a forecast takes longer than a short trace
    needed = _told(network, lengths, keeping).total
    if needed <= free:
        return
    fitting = [
        f"{each} ({told(total)})"
        for each, less in _less(network, keeping)
        if (total := _told(network, lengths, less).total) <= free
    ]
    shortest = replace(keeping, keep="qk") if keeping.values else keeping
    most = _longest(network, lengths, shortest, free)
    raise InputError(
        f"a trace of {' and '.join(map(str, lengths))} tokens of {loaded.source.name} needs {told(needed)}, "
        f"and {told(free)} of memory are free. What would fit: "
        f'{"; ".join(fitting) or "no smaller trace of this length"}; or with keep="{shortest.keep}" '
        f"{most} tokens."
    )


def _less(network: Network, keeping: Keeping) -> list[tuple[str, Keeping]]:
    """Traces that hold less than this one, in the words that ask for them."""
    less: list[tuple[str, Keeping]] = []
    wide = next(network.parameters()).dtype in (torch.float32, torch.float64) and keeping.dtype is None
    half = torch.bfloat16 if wide else keeping.dtype
    if wide:
        less.append(("dtype=torch.bfloat16", replace(keeping, dtype=half)))
    if keeping.keep == "all":
        less.append(('keep="qkv"', replace(keeping, keep="qkv")))
    if keeping.values:
        less.append(('keep="qk"', replace(keeping, keep="qk")))
        if wide:
            less.append(('keep="qk" with dtype=torch.bfloat16', replace(keeping, keep="qk", dtype=half)))
    if keeping.layers is None:
        less.append(("layers=[-1]", replace(keeping, layers=(-1,))))
    return less


def _longest(network: Network, lengths: tuple[int, ...], keeping: Keeping, free: int) -> int:
    """The most tokens of the text that fit, found by halving."""
    fits, too_many = 0, lengths[0]
    while too_many - fits > 1 + fits // 64:
        middle = (fits + too_many) // 2
        if _told(network, (middle, *lengths[1:]), keeping).total <= free:
            fits = middle
        else:
            too_many = middle
    return fits


# Where less than this is free, nothing else runs either.
_LITTLE = 2**28

# Bytes for a token, of each network that is alive: every trace asks.
_WIDTHS: "WeakKeyDictionary[Network, int]" = WeakKeyDictionary()


def _roughly(network: Network, lengths: tuple[int, ...]) -> int:
    """More than a trace takes: what every matrix of the network reads and writes, for every token."""
    plain = network.plain
    if plain not in _WIDTHS:
        matrices = [each for each in plain.parameters() if each.ndim > 1]
        width = sum(sum(each.shape[-2:]) * math.prod(each.shape[:-2]) for each in matrices)
        _WIDTHS[plain] = width * max((each.element_size() for each in matrices), default=4)
    written = _written_squares(network)
    squares = sum(lengths) ** 2 * network.config.num_heads * 16 * (1 + written)
    if isinstance(plain, Transformer) and not written:
        squares = min(squares, _SHARED + _OF_BLOCKS)
    return sum(lengths) * _WIDTHS[plain] + squares


def _written_squares(network: Network) -> int:
    """How many N x N tensors edits write, for each head: scores or weights of so many layers."""
    return sum(name.endswith((".scores", ".weights")) for name in network.written)


def _lengths(network: Network, num_tokens: int, target_tokens: int | None) -> tuple[int, ...]:
    if target_tokens is not None and len(network.prefixes) == 1:
        raise InputError("target_tokens must be None: this model has no decoder beside its encoder.")
    lengths: tuple[int, ...] = (num_tokens,)
    if len(network.prefixes) == 2:
        lengths = (num_tokens, 1 if target_tokens is None else target_tokens)
    for name, count, kind in zip(("num_tokens", "target_tokens"), lengths, network.prefixes, strict=False):
        limit = network.limit(kind)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"{name} must be {_range(limit)}; got {count!r}.")
        if limit is not None and count > limit:
            raise InputError(f"{name} must be {_range(limit)}; got {count}.")
    return lengths


def _range(limit: int | None) -> str:
    return "at least 1" if limit is None else f"from 1 to {limit}, the model's limit"


# In a network of regard's own, the most that layers share of a mask or bias, and what a block of one takes.
_SHARED = 4 * 2**24
_OF_BLOCKS = 2 * 4 * 2**21


def _told(network: Network, lengths: tuple[int, ...], keeping: Keeping) -> Forecast:
    kept, surplus = _kept(network, lengths, keeping)
    forward = _peak(network, lengths, None)
    allocated = max(kept, _peak(network, lengths, keeping) - surplus)
    total = allocated
    if next(network.parameters()).device.type == "cpu":
        total += _holes(allocated - kept, given_back=_given_back(network, lengths, keeping))
    return Forecast(kept=kept, forward=forward, allocated=allocated, total=total)


def _given_back(network: Network, lengths: tuple[int, ...], keeping: Keeping) -> bool:
    """Whether a trace is long enough for its `Heap` to give anything back."""
    samples = _samples(network, lengths, keeping)
    held = np.array([found.held for _, found in samples], dtype=np.float64)
    weights = np.array([float(each.weight) for each, _ in samples])
    return Heap().is_due((weights @ held).astype(int).tolist())


def _holes(passing: int, *, given_back: bool) -> int:
    """What a process grows by beyond what is allocated, where so much of that is freed again.

    Tensors that pass leave holes in the C library's heap between those that stay: what comes later fits in
    some of them, and some are given back. The shares are measured (`benchmarks/bench_forecast.py`).
    """
    if not given_back:
        return min(7 * passing // 4, _MOST_IN_HOLES)
    return min(passing // 4, _MOST_IN_HOLES) + min(passing, _INSIDE * torch.get_num_threads())


# Tensors of 32 MiB and more leave none: glibc maps each by itself (DEFAULT_MMAP_THRESHOLD_MAX).
_MOST_IN_HOLES = 2**24
# On each core: parts of matrices put in order, blocks of scores. With one thread BERT's and GPT-2's kind of
# 768 dimensions took 2 to 3 MB less than with two.
_INSIDE = 3 * 2**20


def _samples(
    network: Network, lengths: tuple[int, ...], keeping: Keeping | None
) -> list[tuple[Probe, Sample]]:
    """What short passes take, all in the way that one of these lengths goes."""
    sizes = sample(network, short(lengths), keeping).sizes
    beyond = frozenset(size for size in sizes if size <= max(lengths))
    return [(each, sample(network, each.lengths, keeping, beyond)) for each in grid(lengths)]


def _kept(network: Network, lengths: tuple[int, ...], keeping: Keeping) -> tuple[int, int]:
    """What a trace holds, and how much less that is than if everything in it grew as at short lengths."""
    samples = _samples(network, lengths, keeping)
    straight = sum(each.weight * found.kept for each, found in samples)
    # A table with a row for each distance that occurs: beyond some distance there are no more (DeBERTa).
    tables = sum(each.weight * found.tables for each, found in samples)
    _, first = samples[0]
    rows = Fraction(table_rows_of(network, lengths), table_rows_of(network, samples[0][0].lengths))
    kept = straight - tables + first.tables * rows
    return int(kept), int(straight - kept)


def _peak(network: Network, lengths: tuple[int, ...], keeping: Keeping | None) -> int:
    """The most that is alive at one time: without listeners where keeping is None."""
    samples = _samples(network, lengths, keeping)
    courses = [found.course for _, found in samples]
    if len({len(course) for course in courses}) > 1:  # other operations at other lengths
        courses = [((*max(course, key=lambda each: sum(each[:3]))[:3], 0),) for course in courses]
    rows, few = _few(network, samples, lengths)
    outside, inside, output, _ = np.moveaxis(np.array(courses, dtype=np.float64), 2, 0)
    weights = np.array([float(each.weight) for each, _ in samples])
    total = weights @ outside + few @ inside
    if rows != lengths:
        total += weights @ output
    if isinstance(network.plain, Transformer) and not _written_squares(network):
        square = np.array([float(each.square) for each, _ in samples]) @ outside
        total -= square - in_blocks(network, lengths) * square
    return int(total.max().round())


def _few(
    network: Network, samples: list[tuple[Probe, Sample]], lengths: tuple[int, ...]
) -> tuple[tuple[int, ...], NDArray[np.float64]]:
    """How many rows are worked with at a time where that is by rows, and the part that each sample has then.

    Feed-forward networks of long texts hold what is between their projections for so many rows, and through
    the lens what an activation makes.
    """
    many, once = MANY_ROWS, ROWS_AT_ONCE
    if not isinstance(network.plain, Transformer):
        many = once = ACTIVATED_AT_ONCE
    rows = tuple(once if length > many else length for length in lengths)
    parts = {each.lengths: float(each.weight) for each in grid(rows)}
    return rows, np.array([parts.get(each.lengths, 0.0) for each, _ in samples])
