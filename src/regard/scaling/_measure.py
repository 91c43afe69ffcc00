"""Measures attentions: time in turns in this process, memory in others, and how far each is from exact."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch

from regard.core import AttentionInputs, Causal
from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.core.memory import CPU, check_room
from regard.models import Loaded, load_checkpoint
from regard.scaling._cases import Case, Shape, Softmax, case_named, names_of
from regard.scaling._memory import peaks
from regard.scaling._scaling import Scaling, costs_of
from regard.tracing.run import TraceOfRun

LENGTHS = (256, 512, 1024, 2048, 4096)
"""What is measured by default."""

# A pass is timed at least so often, and until so many seconds have passed.
_REPEATS, _ENOUGH = 5, 0.4

Advance = Callable[[int, int, str], None]
"""Called with what is done, of how much, and what comes next."""


def scaling(
    names: Sequence[str] | None = None,
    lengths: Sequence[int] = LENGTHS,
    *,
    causal: bool = False,
    heads: int = 12,
    head_dim: int = 32,
    tokens: int = 256,
    advance: Advance = lambda done, of, what: None,
) -> Scaling:
    """Measure time and memory of attentions over length, and how far each is from softmax attention.

    A forward pass without gradients over one text in float32, on the CPU with torch's threads. Times are
    medians of at least five passes after one that does not count, taken in turns, so that a slow spell of
    the machine falls on all. Peaks are of forks that do nothing else. Each answer is checked to be finite.

    Args:
        names: of attentions, by default all that have this form; softmax is always among them.
        lengths: tokens, at least two different ones for exponents.
        causal: whether a query sees only what is before it.
        heads, head_dim: those of the default model, if nothing is said.
        tokens: of the text that the errors are of; see `closeness`.
        advance: told how far it is.

    Raises:
        InputError: an unknown attention, one without this form, lengths that are none, or lengths that memory
            would not hold.

    Example:
        >>> from regard.scaling import scaling
        >>> found = scaling(["linear"], [64, 128], tokens=32)
        >>> [cost.name for cost in found.costs]
        ['softmax', 'linear']
    """
    fused = Softmax.name
    wanted = names_of(causal=causal) if names is None else names
    # Softmax first: the others are compared with it.
    cases = {name: case_named(name) for name in dict.fromkeys((fused, *wanted))}
    asked = _checked(lengths)
    for case in cases.values():
        case.check(causal=causal)
    whole("heads", heads, least=1)
    whole("head_dim", head_dim, least=2)
    shapes = [Shape(length=each, heads=heads, head_dim=head_dim, causal=causal) for each in asked]
    _check_fits(cases, shapes)
    # Steps: time and memory at each length, and closeness once, for each attention.
    every, done = len(cases) * (2 * len(shapes) + 1), 0

    def step(what: str) -> Callable[[], None]:
        def one() -> None:
            nonlocal done
            done += 1
            advance(done, every, what)

        return one

    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for shape in shapes:
        for name, median in _times(cases, shape, step(f"time at {shape.length:,} tokens")).items():
            seconds[name].append(median)
    every_one = [(name, each.length, heads, head_dim, causal) for name in cases for each in shapes]
    # In the order in which they were asked for.
    every_peak = iter(peaks(every_one, step("memory")))
    peak = {name: [next(every_peak) for _ in shapes] for name in cases}
    errors = closeness(list(cases), tokens=tokens, causal=causal, advance=step("closeness to softmax"))
    return Scaling(
        lengths=asked,
        heads=heads,
        head_dim=head_dim,
        causal=causal,
        threads=torch.get_num_threads(),
        tokens=tokens,
        costs=costs_of(asked, seconds, peak, errors, fused),
    )


def _checked(lengths: Sequence[int]) -> tuple[int, ...]:
    found = tuple(sorted(set(lengths)))
    if not found or found[0] < 2:
        raise InputError(f"lengths must be whole numbers from 2 on, at least one; got {list(lengths)}.")
    return found


def _check_fits(cases: dict[str, Case], shapes: Sequence[Shape]) -> None:
    """Refuse what memory would not hold, before anything is measured."""
    for name, case in cases.items():
        # All others are compared with the fused kernel: it is never left out.
        way, out = "give shorter lengths", "" if name == Softmax.name else f", or leave {name} out"
        # From the shortest to the longest: the message can name the longest that fits.
        for shape in shapes:
            needed = shape.record_bytes + 4 * case.numbers(shape)
            check_room(f"{name} at {shape.length:,} tokens", needed, CPU, way + out)
            way = f"give lengths up to {shape.length:,}"


def _times(cases: dict[str, Case], shape: Shape, advance: Callable[[], None]) -> dict[str, float]:
    inputs = shape.record()
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    with torch.no_grad():
        # A first pass that does not count: allocations, and compilation.
        for case in cases.values():
            case.context(inputs)
        waiting = set(cases)
        # In turns: a slow spell of the machine falls on all alike.
        while waiting:
            for name, case in cases.items():
                if name not in waiting:
                    continue
                start = time.perf_counter()
                case.context(inputs)
                seconds[name].append(time.perf_counter() - start)
                # Quick ones are timed more often.
                if len(seconds[name]) >= _REPEATS and sum(seconds[name]) >= _ENOUGH:
                    waiting.remove(name)
                    advance()
    return {name: statistics.median(times) for name, times in seconds.items()}


TEXT = (
    "The river bends twice before it reaches the town, and on the inside of the second bend the bank is soft "
    "enough that a heron can stand there for an hour without moving. Most people who walk past never notice. "
    "They are on their way to the other bank, the one with the marble counter and the slow clerks, where a "
    "loan may be refused in under a minute. "
)
"""Read over and over, as often as there are tokens to fill."""


def closeness(
    names: Sequence[str],
    *,
    tokens: int = 256,
    causal: bool = False,
    model: Loaded | None = None,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """The relative error of each attention's context, mean over all heads of all layers.

        |C - C*| / |C*|      C* = softmax(scale q k^T) v, in float64; Frobenius norms over a head's queries

    Args:
        names: of attentions.
        tokens: how long the text is.
        causal: whether a query sees only what is before it, in both.
        model: an encoder of softmax attention; None for the default model.
        advance: called after each.

    Raises:
        InputError: an unknown name, an attention without that form, or more tokens than the model takes.

    Example:
        >>> found = closeness(["softmax", "window"], tokens=64)
        >>> found["softmax"] < 1e-6, found["window"] < 0.5
        (True, True)
    """
    loaded = load_checkpoint() if model is None else model
    tokenizer = loaded.require_tokenizer()
    limit = loaded.network.limit("encoder")
    if tokens < 2 or (limit is not None and tokens > limit):
        raise InputError(f"tokens must be from 2 to {limit}, the model's limit; got {tokens}.")
    cases = {name: case_named(name) for name in names}
    for case in cases.values():
        case.check(causal=causal)
    # 64 tokens a reading, about, so that there are always enough.
    ids = tokenizer.encode(TEXT * (1 + tokens // 64)).token_ids
    # Cut, with the closing special token at the end.
    trace = TraceOfRun.of_ids(loaded, [*ids[: tokens - 1], ids[-1]])
    means: dict[str, float] = {}
    kind = trace.kinds[0]
    layers = trace.layers_of(kind)
    with torch.no_grad():
        for name, case in cases.items():
            errors = [_apart(case, trace.attention_of(each, kind).inputs, causal) for each in layers]
            means[name] = statistics.fmean(errors)
            advance()
    return means


def _apart(case: Case, inputs: AttentionInputs, causal: bool) -> float:
    """The mean over the heads of one layer."""
    # Padding and the model's own mask do not count here.
    inputs = inputs.changed(mask=Causal() if causal else None)
    q, k, v = (x.double() for x in (inputs.q, inputs.k, inputs.v))
    # (1, heads, n, n), in float64.
    scores = inputs.factor * q @ k.mT
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    exact = torch.softmax(scores, dim=3) @ v
    # Frobenius norms of each head: (1, heads).
    norms = [x.flatten(2).norm(dim=2) for x in (case.context(inputs).double() - exact, exact)]
    return float((norms[0] / norms[1]).mean())
