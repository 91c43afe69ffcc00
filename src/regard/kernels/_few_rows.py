"""Products of a few rows with a weight that is read once, as it lies; in LLVM's representation.

A token that a decoder writes reads every weight and computes next to nothing: its time is that of reading.
So the weight is not packed: a column of the product reads a row of the weight as it lies.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels._ir import (
    BF16,
    F32,
    I8,
    I16,
    I32,
    I64,
    PTR,
    WIDTH,
    add_bfloat16,
    exported,
    fetch,
    filled,
    fma,
    internal,
    load,
    loop,
    picked,
    place,
    portions,
    store,
    summing,
    tiles,
    transposed,
    vector,
    whole,
    zeros,
)
from regard.kernels._target import ADDRESS, Target, compiled, here

JOB: Final = ("next", "x", "weight", "scales", "bias", "out", "rows", "width", "depth")
"""What the kernel is told, int64 each; the first counts the portions that have been taken."""

PARTS: Final = 4
"""A row alone is read in so many registers at a time: its depth has to be a multiple of them."""

_COLUMNS: Final = 4  # of a tile of several rows: what is read of x is used so many times
_ROWS: Final = {8: 3, 16: 4}  # of a tile, by lanes: 12 sums in AVX2's 16 registers, 16 in AVX-512's 32
_DEPTH: Final = 1024  # of a tile with AVX2: seven rows of floats, 28 KiB, stay in the first cache
_ASKING: Final = 16  # rows that all fetch the next columns; of more, fetching again drives out the own ones


@dataclass(frozen=True, slots=True)
class Stored:
    """How the entries of a weight are stored, and multiplied."""

    element: Any  # the type of one entry
    ahead: int  # how many before it is needed, an entry is asked for; chosen on an AMD Zen 4
    widened: Callable[[Any, Any], Any] | None = None  # what writes the floats of a register of them
    scaled: bool = False  # whether every row of the weight has a factor
    given: Any = F32  # the type of an entry of x
    in_lane: int = 1  # products that one lane of a sum takes up at a time
    added: Callable[..., Any] = fma  # what writes a sum, of the factors and the sum so far


def _of_bfloat16(b: Any, loaded: Any) -> Any:
    wide = vector(I32, loaded.type.count)
    # A bfloat16 is the upper half of a float32.
    return b.bitcast(b.shl(b.zext(loaded, wide), filled(wide, 16)), vector(F32, wide.count))


def _of_int8(b: Any, loaded: Any) -> Any:
    return b.sitofp(b.sext(loaded, vector(I32, loaded.type.count)), vector(F32, loaded.type.count))


FLOAT32: Final = Stored(F32, 1024)
BFLOAT16: Final = Stored(I16, 512, _of_bfloat16)
PAIRS: Final = Stored(BF16, 512, given=BF16, in_lane=2, added=add_bfloat16)
INT8: Final = Stored(I8, 8192, _of_int8, scaled=True)


def kernels(target: Target, stored: Stored) -> Any:
    """The module, to be compiled, with the function

        product(job)        out[i, o] = bias[o] + scales[o] sum over j of x[i, j] weight[o, j]

    job: int64 (9,), as `JOB` names them. x (rows, depth), as `stored` has it given; weight (width, depth),
    depth a multiple of `PARTS` registers; scales and bias: float32 (width,); out: float32 (rows, width). All
    without gaps.

    Every thread that is to work calls it with the same job; it returns when nothing is left to take.
    """
    module = ir.Module()
    most = _ROWS[target.lanes]
    # A tile for each number of rows that can be left over, of one column of the weight and of several.
    tile_of = {
        (rows, columns): _tile(module, target, stored, rows, columns)
        for rows in range(1, most + 1)
        for columns in (1, _COLUMNS)
    }
    function, b = exported(module, "product", PTR)
    (job,) = function.args
    job_of = {name: load(b, job, whole(at), I64) for at, name in enumerate(JOB)}
    x, weight, scales, bias, out = (
        b.inttoptr(job_of[name], PTR) for name in ("x", "weight", "scales", "bias", "out")
    )
    rows, width, depth = job_of["rows"], job_of["width"], job_of["depth"]

    def columns(count: int, first: Any, begin: Any, size: Any) -> None:
        # The product adds up in pieces of the depth: from `begin` on, `size` entries.
        own = place(b, weight, b.add(b.mul(first, depth), begin), stored.element)
        # The first piece begins with the bias, which has no rows (step 0); later ones with what is in
        # `out`.
        is_first = b.icmp_signed("==", begin, whole(0))

        def tile(of: int, row: Any) -> None:
            rows_of_x = place(b, x, b.add(b.mul(row, depth), begin), stored.given)
            to = place(b, out, b.add(b.mul(row, width), first), F32)
            base = b.select(is_first, place(b, bias, first, F32), to)  # or what there is of the sum
            step, at = b.select(is_first, whole(0), width), place(b, scales, first, F32)
            # Many rows: only the first tile has the next columns brought, not each tile again.
            asks = b.or_(b.icmp_signed("<=", rows, whole(_ASKING)), b.icmp_signed("==", row, whole(0)))
            ahead = b.select(asks, b.mul(depth, whole(count)), whole(0))
            b.call(tile_of[of, count], [rows_of_x, own, at, base, to, step, width, depth, size, ahead])

        tiles(b, rows, most, tile)

    with portions(b, job, width) as (start, stop):
        # Columns in fours, then one by one.
        full = b.sub(stop, b.srem(b.sub(stop, start), whole(_COLUMNS)))
        # One row alone reads the weight from its first entry to its last.
        alone = b.icmp_signed("==", rows, whole(1))
        full = b.select(alone, start, full)
        # With AVX-512 the whole depth at once; with AVX2 so much that x stays in the first cache.
        some = depth if target.lanes > 8 else b.select(alone, depth, whole(_DEPTH))
        with loop(b, whole(0), depth, some) as begin:
            left = b.sub(depth, begin)
            size = b.select(b.icmp_signed("<", left, some), left, some)
            with loop(b, start, full, whole(_COLUMNS)) as first:
                columns(_COLUMNS, first, begin, size)
            with loop(b, full, stop, whole(1)) as first:
                columns(1, first, begin, size)
    b.ret_void()
    return module


def _tile(module: Any, target: Target, stored: Stored, rows: int, columns: int) -> Any:
    """`rows` of x by `columns` rows of the weight, each `size` long, added to what stands at `base`."""
    read = stored.in_lane * target.lanes
    line = 64 // WIDTH[stored.element]  # entries of a cache line
    of_x_type, entries = vector(stored.given, read), vector(stored.element, read)
    # One row and one column: several sums, so that an addition does not wait for the one before.
    parts = PARTS // stored.in_lane if rows == columns == 1 else 1
    turns = 16 // target.lanes if parts == 1 else 1  # a cache line of floats is asked for once
    function, b = internal(module, f"tile{rows}x{columns}", *[PTR] * 5, *[I64] * 5)
    x, weight, scales, base, out, step, width, depth, size, ahead = function.args
    # (rows, depth) of x, (columns, depth) of the weight: where each begins.
    of_x = [place(b, x, b.mul(whole(row), depth), stored.given) for row in range(rows)]
    of_weight = [place(b, weight, b.mul(whole(column), depth), stored.element) for column in range(columns)]
    # One register of sums for each part, row and column.
    starts = [zeros(vector(F32, target.lanes))] * (parts * rows * columns)
    with summing(b, size, turns * parts * read, starts) as (first, sums, added):
        for turn, part in product(range(turns), range(parts)):
            at = b.add(first, whole((turn + part) * read))
            factors = [load(b, row_of_weight, at, of_x_type) for row_of_weight in of_x]
            for row_of_weight in of_weight:
                if columns > 1 and turn == 0:
                    # Several rows at a time are not what the processor foresees: the next ones are asked for.
                    fetch(module, b, place(b, row_of_weight, b.add(at, ahead), stored.element))
                elif rows == columns == 1 and part * read % line == 0:
                    # One row it foresees, but not far enough.
                    fetch(module, b, place(b, row_of_weight, b.add(at, whole(stored.ahead)), stored.element))
                # What is stored in fewer bits becomes float32 here, in registers.
                wide = load(b, row_of_weight, at, entries)
                wide = wide if stored.widened is None else stored.widened(b, wide)
                for row in factors:
                    added.append(stored.added(module, b, wide, row, sums[len(added)]))
            # Several turns a round: what went out of one comes into the next.
            if turn < turns - 1:
                sums, added[:] = list(added), []
    for row in range(rows):
        # The sums of neighbouring columns side by side, as they are stored.
        # The parts of each column's sum; then one register in which columns take turns.
        own = [reduce(b.fadd, added[rows * column + row :: rows * columns]) for column in range(columns)]
        total = reduce(b.fadd, transposed(b, own))
        # Halves are added until each column has one lane.
        distance = target.lanes // 2
        while distance >= columns:
            lanes = list(range(distance))
            halves = [picked(b, total, total, [lane + first for lane in lanes]) for first in (0, distance)]
            total, distance = b.fadd(*halves), distance // 2
        total = b.fmul(total, load(b, scales, whole(0), total.type)) if stored.scaled else total
        # The bias, or what is in `out`; a step of 0 gives all rows the bias.
        begun = load(b, base, b.mul(whole(row), step), total.type)
        store(b, b.fadd(total, begun), out, b.mul(whole(row), width))
    b.ret_void()
    return function


MOST_ROWS: Final = 64
"""More rows go to torch. (Beyond 16 the time is that of computing; torch's product takes twice as long on an
AMD Zen 5, also of 128 rows. On other processors it may do better.)"""

# The kernel's form for each type in which a weight can be kept.
_STORED: Final = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16, torch.int8: INT8}
# -127..127, symmetric about 0; -128 is left out.
_LARGEST: Final = 127
# Weights are widened so many at a time, 8 MB: larger pieces go through the system every time.
_ENTRIES: Final = 2**21

_Job = ctypes.c_int64 * len(JOB)


class FewRowsLinear(nn.Module):
    """y = x W^T + b in float32, W as it is or stored in fewer bits.

        bfloat16    W and x rounded to 8 bits of significand, their products summed in float32
        int8        t_o = max_j |W_oj| / 127,  W_oj = t_o round(W_oj / t_o)

    Up to `MOST_ROWS` rows go to a kernel that reads every weight once, in all threads of torch, and more to
    torch; in bfloat16, where the processor multiplies it, more go to the kernel too, so many at a time. In
    float32 the weight is the one that was handed in, not a copy; where it lies transposed, as of GPT-2's
    files, it is laid out anew in its own parameter, once.

    Args:
        linear: in float32, on the CPU, one that this `takes`.
        stored: torch.float32, torch.bfloat16 or torch.int8.

    Example:
        >>> linear = nn.Linear(64, 5).requires_grad_(False)
        >>> x = torch.randn(3, 64)
        >>> torch.allclose(FewRowsLinear(linear, torch.float32)(x), linear(x), atol=1e-5)
        True

    Source: codes of 8 bits with a scale for each row: Dettmers et al. 2022, arXiv 2208.07339, section 2.1.
    """

    def __init__(self, linear: "nn.Linear | FewRowsLinear", stored: torch.dtype) -> None:
        super().__init__()
        self.in_features: int = linear.in_features
        self.out_features: int = linear.out_features
        weight: Tensor = linear.weight
        self.bias: Tensor | None = linear.bias
        self.stored = stored
        self.weight: Tensor  # in int8 there is none, so that nobody takes codes for weights
        self.codes: Tensor
        self.scales: Tensor | None = None
        if stored == torch.int8:
            wide = weight.detach()
            # The smallest normal float instead of 0: a row of zeros gets codes 0, not NaN.
            self.scales = wide.abs().amax(dim=1).clamp_(min=torch.finfo(torch.float32).tiny) / _LARGEST
            self.codes = (wide / self.scales[:, None]).round_().to(torch.int8).contiguous()
        else:
            if stored == torch.float32 and not weight.is_contiguous():
                # In its own parameter: a model that shares it, or saves it, sees the same numbers.
                weight.data = weight.data.contiguous()
            self.weight = weight if stored == torch.float32 else weight.detach().to(stored).contiguous()
        self._base = torch.zeros(self.out_features) if self.bias is None else self.bias.detach()
        # Parameters of modules are slow to ask for; these keep their memory alive.
        read = self.codes if stored == torch.int8 else self.weight.detach()
        self._kept = [read, self._base if self.scales is None else self.scales, self._base]
        self._addresses = [each.data_ptr() for each in self._kept]
        self._is_in_pairs = stored == torch.bfloat16 and here().pairs
        # In pairs only where AVX-512 multiplies bfloat16; else each is widened to float32 in registers.
        self._kernel = _compiled(here(), PAIRS if self._is_in_pairs else _STORED[stored])

    @staticmethod
    def takes(linear: "nn.Linear | FewRowsLinear") -> bool:
        """Whether its sizes and its type are those that the kernels know."""
        if isinstance(linear, FewRowsLinear) and linear.stored != torch.float32:
            return False
        weight = linear.weight
        fits = weight.dtype == torch.float32 and weight.device.type == "cpu"
        # The kernel has no tail: a row has to fill whole registers, `PARTS` at a time.
        return fits and linear.in_features % (PARTS * here().lanes) == 0

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features), float32."""
        rows = x.numel() // self.in_features
        # In pairs any number of rows goes to the kernel, MOST_ROWS at a time.
        most = rows if self._is_in_pairs else MOST_ROWS
        if self.stored == torch.bfloat16:
            # Rounded and back: the other form of the kernel reads x in float32.
            x = x.bfloat16() if self._is_in_pairs else x.bfloat16().float()
        # No rows, too many of them, or a gradient is wanted: torch knows how.
        if not 0 < rows <= most or (torch.is_grad_enabled() and self._wants_gradient(x)):
            return self._by_torch(x.float())
        # The kernel gets nothing but addresses.
        assert x.dtype == (torch.bfloat16 if self._is_in_pairs else torch.float32), x.dtype
        x = x.contiguous()
        out = torch.empty(*x.shape[:-1], self.out_features)
        for first in range(0, rows, MOST_ROWS):
            x_address = x.data_ptr() + first * self.in_features * x.element_size()
            out_address = out.data_ptr() + first * self.out_features * out.element_size()
            sizes = min(rows - first, MOST_ROWS), self.out_features, self.in_features
            job = _Job(0, x_address, *self._addresses, out_address, *sizes)
            _in_threads()(self._kernel, job, torch.get_num_threads(), 0)
        return out

    def _wants_gradient(self, x: Tensor) -> bool:
        return x.requires_grad or (self.stored == torch.float32 and self.weight.requires_grad)

    def _by_torch(self, x: Tensor) -> Tensor:
        if self.stored == torch.float32:
            return F.linear(x, self.weight, self.bias)
        out = x.new_empty(*x.shape[:-1], self.out_features)
        # In pieces of the weight: (_ENTRIES / in_features) rows of it are widened at a time.
        for start in range(0, self.out_features, step := max(1, _ENTRIES // self.in_features)):
            part = slice(start, start + step)
            wide = self._kept[0][part].float()
            wide = wide if self.scales is None else wide.mul_(self.scales[part, None])
            out[..., part] = F.linear(x, wide, self._base[part])
        return out


@cache
def _compiled(target: Target, stored: Stored) -> int:
    """The kernel's address; compiled once a process, which takes some 0.1 s."""
    made: Any = compiled(lambda: kernels(target, stored), "product", ADDRESS)
    return ctypes.cast(made, ctypes.c_void_p).value or 0


@cache
def _in_threads() -> Callable[..., None]:
    """call(function, its argument, threads, 0) in the threads that torch keeps; in one, where it has others.

    Threads of our own would wait for a core while torch's still look for work.
    """
    # torch's wheel brings its own libgomp; another one in the process would have other threads.
    own = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    # No libgomp, as on macOS: the kernel runs in this thread alone.
    if not own:
        return lambda function, job, threads, flags: ctypes.CFUNCTYPE(None, ADDRESS)(function)(job)
    parallel = ctypes.CDLL(str(own[0])).GOMP_parallel
    parallel.argtypes, parallel.restype = [ADDRESS, ADDRESS, ctypes.c_uint, ctypes.c_uint], None
    call: Callable[..., None] = parallel
    return call
