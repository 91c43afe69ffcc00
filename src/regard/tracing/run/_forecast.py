"""How much memory a trace will take, told before it is made."""

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch

from regard._lens import LensNetwork, accepted
from regard.core import Taps
from regard.core.errors import InputError
from regard.models import Loaded, Network
from regard.models.deberta import DistanceTerm, RelativePositions
from regard.text import Encoding
from regard.tracing.record import (
    EVERYTHING,
    Keeping,
    Passage,
    free_bytes,
    kept_bytes,
    places,
    told,
)
from regard.tracing.run._again import run
from regard.tracing.run._listening import Listening


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a trace will take, in bytes over the loaded model.

    Args:
        kept: what the trace holds, to the byte.
        peak: the most that is expected while it is made: what it holds, and the layer at work.

    Example:
        >>> Forecast(kept=944_000_000, peak=1_045_000_000)
        Forecast(900.3 MiB kept, 996.6 MiB while it is made)
    """

    kept: int
    peak: int

    def __repr__(self) -> str:
        return f"Forecast({told(self.kept)} kept, {told(self.peak)} while it is made)"


def forecast(
    loaded: Loaded, num_tokens: int, target_tokens: int | None = None, keeping: Keeping = EVERYTHING
) -> Forecast:
    """What a trace of so many tokens will take.

    What is kept is a polynomial of the lengths, of degree 2: most tensors have a row for each token; through
    the lens some models make N x N biases, and edits of weights or scores leave N x N weights. Its
    coefficients are those of traces of at most six tokens, and so exact.

    What the process grows by beside it is estimated, from above:

        16 MiB + f n w,    f = 3, and 6 through the lens

    where n w are the bytes of n tokens at the widest matrix of a layer, its inputs and its outputs; and N x N
    once more through the lens, four times for edits of scores or weights. It was measured (VmHWM, Linux,
    glibc 2.36) with 12 layers of GPT-2's, BERT's, Llama's, T5's and ModernBERT's kind at 512 and 2,048
    tokens, keep="qk" and "all": a process grew by 0.74 to 0.98 of `peak`; through the lens by 0.61 to 1.02.

    Args:
        loaded: the model.
        num_tokens: of the text.
        target_tokens: of what the decoder beside an encoder reads; by default its start token alone.
        keeping: what is kept.

    Raises:
        InputError: fewer tokens than one, or more than the model takes; a target where there is no second
            stack; or layers that the model does not have.
    """
    lengths = _lengths(loaded.network, num_tokens, target_tokens)
    keeping.check(loaded.network)
    return _Growth(loaded.network, lengths, keeping).at(lengths)


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
    # To ask the system how much is free takes a tenth of the time of a short trace.
    roughly = _more_than(network, lengths)
    free = None if roughly < _LITTLE else free_bytes(next(network.parameters()).device)
    if free is None or roughly < free:
        return
    growth = _Growth(network, lengths, keeping)
    needed = growth.at(lengths).peak
    if needed <= free:
        return
    fitting = []
    for words, less in _LESS.items():
        smaller = replace(keeping, **less)
        if smaller != keeping and (peak := _Growth(network, lengths, smaller).at(lengths).peak) <= free:
            fitting.append(f"{words} ({told(peak)})")
    shorter = range(1, lengths[0])
    fits = bisect_right(shorter, free, key=lambda count: growth.at((count, *lengths[1:])).peak)
    raise InputError(
        f"a trace of {' and '.join(map(str, lengths))} tokens of {loaded.source.name} needs {told(needed)}, "
        f"and {told(free)} of memory are free. What would fit: "
        f"{'; '.join([*fitting, f'{fits} tokens' if fits else 'no text'])}."
    )


_LESS: dict[str, dict[str, Any]] = {
    "dtype=torch.bfloat16": {"dtype": torch.bfloat16},
    'keep="qk"': {"keep": "qk"},
    'keep="qk" with dtype=torch.bfloat16': {"keep": "qk", "dtype": torch.bfloat16},
    "layers=[-1]": {"layers": (-1,)},
}

# Where less than this is free, nothing else runs either.
_LITTLE = 2**28


def _more_than(network: Network, lengths: tuple[int, ...]) -> int:
    """More than a trace takes, without a pass: 32 numbers of 8 bytes for each entry of a hidden state."""
    config, tokens = network.config, sum(lengths)
    depth = sum(network.depth(kind) for kind in network.prefixes) + 8
    squares = 0
    if isinstance(network.plain, LensNetwork) or network.written:
        squares = 16 * config.num_heads * tokens**2 * (1 + len(network.written))
    return 256 * tokens * depth * config.d_model + squares


def _lengths(network: Network, num_tokens: int, target_tokens: int | None) -> tuple[int, ...]:
    if target_tokens is not None and len(network.prefixes) == 1:
        raise InputError("target_tokens must be None: this model has no decoder beside its encoder.")
    lengths: tuple[int, ...] = (num_tokens,)
    if len(network.prefixes) == 2:
        lengths = (num_tokens, 1 if target_tokens is None else target_tokens)
    for name, count, kind in zip(("num_tokens", "target_tokens"), lengths, network.prefixes, strict=False):
        limit = network.limit(kind)
        wanted = "at least 1" if limit is None else f"from 1 to {limit}, the model's limit"
        fits = isinstance(count, int) and not isinstance(count, bool)
        if not fits or not 1 <= count <= (limit or count):
            raise InputError(f"{name} must be {wanted}; got {count!r}.")
    return lengths


# Lengths of the texts that are run, where the text is longer.
_SHORT = (4, 5, 6)


class _Growth:
    """What traces of a network take, as a function of their lengths.

    Args:
        network: which.
        lengths: the longest; those of at most six tokens are taken for fixed.
        keeping: what is kept.
    """

    def __init__(self, network: Network, lengths: tuple[int, ...], keeping: Keeping) -> None:
        self._network = network
        axes = [_SHORT if length > _SHORT[-1] else (length,) for length in lengths]
        # As many lengths as coefficients: of 1, n, n^2, and with a decoder beside an encoder m, m^2, n m.
        self._powers = [each for each in product(*(range(len(axis)) for axis in axes)) if sum(each) <= 2]
        at = [tuple(axis[step] for axis, step in zip(axes, each, strict=True)) for each in self._powers]
        samples = [_kept(network, each, keeping) for each in at]
        sizes = np.array([kept - rows * row_bytes for kept, rows, row_bytes in samples])
        self._row_bytes = samples[0][2]
        found = np.linalg.solve(np.array([self._terms(each) for each in at], dtype=np.float64), sizes)
        self._coefficients = [round(each) for each in found]

    def at(self, lengths: tuple[int, ...]) -> Forecast:
        """What a trace of these lengths takes."""
        terms = self._terms(lengths)
        parts = [each * term for each, term in zip(self._coefficients, terms, strict=True)]
        squares = sum(part for part, powers in zip(parts, self._powers, strict=True) if sum(powers) == 2)
        kept = sum(parts) + _rows(self._network, lengths) * self._row_bytes
        return Forecast(kept=kept, peak=kept + _passing(self._network, lengths, squares))

    def _terms(self, lengths: tuple[int, ...]) -> list[int]:
        return [
            math.prod(length**power for length, power in zip(lengths, each, strict=True))
            for each in self._powers
        ]


def _passing(network: Network, lengths: tuple[int, ...], squares: int) -> int:
    """What a pass takes beside what is kept: the factors are measured, see `forecast`."""
    plain = network.plain
    # Layers are numbered, and so the names of what is in them.
    numbered = [
        each for name, each in plain.named_parameters() if each.ndim > 1 and re.search(r"\.\d+\.", name)
    ]
    width = max((sum(each.shape[-2:]) for each in numbered), default=5 * network.config.d_model)
    size = next(plain.parameters()).element_size()
    passing = 2**24 + (6 if isinstance(plain, LensNetwork) else 3) * sum(lengths) * width * size
    if isinstance(plain, LensNetwork):
        passing += squares
        if "logits" in plain.tap_names() and "logits_to_keep" not in accepted(plain.hf_model):
            passing += sum(lengths) * network.config.vocab_size * size
    if any(name.endswith((".scores", ".weights")) for name in network.written):
        passing += 4 * network.config.num_heads * max(lengths) ** 2 * size
    return passing


def _kept(network: Network, lengths: tuple[int, ...], keeping: Keeping) -> tuple[int, int, int]:
    """What a trace of these lengths holds; rows of its tables of relative positions, and bytes of a row.

    The network without edits runs, and all of each tensor that they write is written: their words and
    positions are those of the text, not of a short one.
    """
    listening = Listening(network, keeping)
    taps = listening.taps()
    if network.written:
        taps = Taps(dict.fromkeys(network.written, torch.clone)).then(taps)
    texts = [Encoding.from_ids([0] * length) for length in lengths]
    with torch.no_grad():
        run(network.plain, [(texts[0], texts[1] if len(texts) > 1 else None)], taps=taps)
    passages = tuple(listening.passage(*each) for each in zip(network.prefixes, texts, strict=True))
    tables = kept_bytes(tuple(term.table for term in _terms(passages)))
    rows = _rows(network, lengths)
    return kept_bytes(passages), rows, tables // max(1, rows)


def _terms(passages: tuple[Passage, ...]) -> list[DistanceTerm]:
    layers = [passage.attention[place] for passage in passages for place in places(passage.attention)]
    terms = [getattr(layer.inputs.bias, name, None) for layer in layers for name in ("c2p", "p2c")]
    return [term for term in terms if isinstance(term, DistanceTerm)]


def _rows(network: Network, lengths: tuple[int, ...]) -> int:
    """Rows of DeBERTa's tables of relative positions: beyond some distance there are no more."""
    tables = [module for module in network.modules() if isinstance(module, RelativePositions)]
    return sum(len(table.of_length(lengths[0])[0]) for table in tables)
