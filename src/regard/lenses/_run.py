"""One forward pass through the lens: taps offered where the survey found them."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.core import Mask, Taps, reference_attention
from regard.core.errors import RegardError
from regard.lenses._arguments import Masks, read_inputs
from regard.lenses._implementations import Call, listening, listens
from regard.lenses._points import OF_ATTENTION, Layout, Point, Site
from regard.lenses._survey import Execution, main_input, main_output, with_main_input, with_main_output


class Run:
    """Listens to one forward pass over `batch` rows of tokens."""

    def __init__(self, layout: Layout, taps: Taps, batch: int = 1) -> None:
        self._taps = taps
        self._batch = batch
        self._masks = Masks()
        self._sites = {site.execution: site for site in layout.sites}
        self._left = set(self._sites)
        self._counts: dict[nn.Module, int] = defaultdict(int)
        self._executed: dict[tuple[nn.Module, str], int] = defaultdict(int)
        self._points: dict[nn.Module, dict[tuple[int, str], list[Point]]] = {}
        for point in layout.points.values():
            if taps.wants(point.name):
                at = (point.execution.occurrence, point.side)
                self._points.setdefault(point.execution.module, {}).setdefault(at, []).append(point)

    @contextmanager
    def listening(self, configs: list[Any]) -> Iterator[None]:
        """For the time of the forward pass; everything is put back at the end, also after an exception."""
        handles = []
        try:
            for module, points in self._points.items():
                sides = {side for _, side in points}
                if "input" in sides:
                    handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
                if "output" in sides:
                    handles.append(module.register_forward_hook(self._after))
            with listening(configs, self):
                yield
        finally:
            for handle in handles:
                handle.remove()
        if self._left:
            missing = ", ".join(sorted(self._sites[key].name for key in self._left))
            raise RegardError(
                f"the model ran without calling {missing}, which it called on the first look: it attends "
                "otherwise on this input, so nothing is shown."
            )

    def made(self, values: Tensor, mask: Mask | None) -> None:
        """See `Listener`."""
        self._masks.made(values, mask)

    def attention(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """See `Listener`."""
        site = self._next(call.module)
        taps = self._taps.at(site.name)
        wanted = {name for name in OF_ATTENTION if taps.wants(name)}
        if not wanted:
            return call.original()
        if not wanted.isdisjoint("qkv"):
            q, k, v = taps.offer("q", call.q), taps.offer("k", call.k), taps.offer("v", call.v)
            call = replace(call, q=q, k=k, v=v)
        step_by_step = "scores" in wanted or "weights" in wanted
        inputs = None
        if step_by_step or "inputs" in wanted:
            inputs = read_inputs(call, self._masks)
            taps.offer_readonly("inputs", inputs)
        context, weights = call.original()
        if step_by_step:
            assert inputs is not None
            watch = _Watch(taps)
            written = reference_attention(inputs, watch.listeners())
            # Looking alone leaves the kernel's own result, bit for bit.
            if watch.written:
                context = written.context.transpose(1, 2).contiguous()
                if weights is not None:
                    weights = written.weights[..., : call.k.shape[2]].to(weights.dtype)
        if "context" in wanted:
            by_head = context.transpose(1, 2)
            offered = taps.offer("context", by_head)
            if offered is not by_head:
                context = offered.transpose(1, 2).contiguous()
        return context, weights

    def _next(self, module: nn.Module) -> Site:
        key = Execution(module, self._counts[module])
        self._counts[module] += 1
        if key not in self._sites:
            raise RegardError(
                f"{type(module).__name__} called attention {key.occurrence + 1} times, which it did not on "
                "the first look: the model attends otherwise on this input, so nothing is shown."
            )
        self._left.discard(key)
        return self._sites[key]

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        if kwargs is None:  # a pass of another thread; see `_Watcher.enter`
            return None
        points = self._points_at(module, "input")
        value = main_input(args, kwargs) if points else None
        offered = None if value is None else self._offer(points, value)
        return None if offered is None or offered is value else with_main_input(args, kwargs, offered)

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        points = self._points_at(module, "output")
        value = main_output(output) if points else None
        offered = None if value is None else self._offer(points, value)
        return None if offered is None or offered is value else with_main_output(output, offered)

    def _points_at(self, module: nn.Module, side: Literal["input", "output"]) -> list[Point]:
        """The taps at this execution of a module; none of a pass of another thread."""
        if not listens(self):
            return []
        count = self._executed[module, side]
        self._executed[module, side] += 1
        return self._points[module].get((count, side), [])

    def _offer(self, points: list[Point], value: Tensor) -> Tensor:
        is_flat = points[0].is_flat
        if is_flat:
            value = value.view(self._batch, -1, value.shape[-1])
        for point in points:
            value = self._taps.offer(point.name, value)
        return value.flatten(0, 1) if is_flat else value


class _Watch:
    """Taps at scores and weights that know whether anything was written."""

    def __init__(self, taps: Taps) -> None:
        self.written = False
        self._taps = taps

    def listeners(self) -> Taps:
        """At scores and weights; see `Listening.taps` for why they are not kept."""
        wanted = (name for name in ("scores", "weights") if self._taps.wants(name))
        return Taps({name: partial(self._listen, name) for name in wanted})

    def _listen(self, name: str, value: Tensor) -> Tensor:
        # Inference tensors count no versions; a listener may write in place all the same.
        before = value.clone() if value.is_inference() else value._version
        offered = self._taps.offer(name, value)
        in_place = not torch.equal(before, value) if isinstance(before, Tensor) else before != value._version
        self.written = self.written or in_place or offered is not value
        return offered
