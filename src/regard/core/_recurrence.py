"""The elementwise recurrence of a simple recurrent unit: all products are made before it, at once."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.errors import InputError


def simple_recurrence(
    forget: Tensor, candidate: Tensor, weight: Tensor, start: Tensor, carried: Tensor | None = None
) -> Tensor:
    """The states c of every position, in O(N): nothing in it but multiplications entry by entry.

        f[t] = sigmoid(forget[t] + weight * c[t-1])
        c[t] = f[t] * c[t-1] + (1 - f[t]) * candidate[t]

    Where `forget` is infinite the state passes through unchanged, as it does through padding.

    Args:
        forget: (batch, N, d), what the gate gets from its own position.
        candidate: (batch, N, d), what a position adds to the state.
        weight: (d,), of the state in the gate.
        start: (batch, d), the state before the first position.
        carried: bool (batch, N), False where a state begins anew: where c[t-1] counts as 0. None for
            everywhere True.

    Returns:
        (batch, N, d), c[0] .. c[N-1]. It can be differentiated once.

    Raises:
        InputError: shapes that do not fit.

    Example:
        >>> never = torch.full((1, 3, 2), -torch.inf)  # a gate that keeps nothing
        >>> simple_recurrence(never, torch.ones(1, 3, 2), torch.ones(2), torch.zeros(1, 2))[0].tolist()
        [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]

    Source: Lei et al. 2018 (SRU), arXiv 1709.02755, section 3, and Lei 2021, arXiv 2102.12459.
    """
    batch, length, size = forget.shape
    if candidate.shape != forget.shape or weight.shape != (size,) or start.shape != (batch, size):
        raise InputError(
            f"candidate, weight and start must have the shapes {(batch, length, size)}, {(size,)} and "
            f"{(batch, size)} where forget has {(batch, length, size)}; got {tuple(candidate.shape)}, "
            f"{tuple(weight.shape)} and {tuple(start.shape)}."
        )
    # Positions first: a step reads and writes rows that lie together.
    steps = [each.transpose(0, 1).contiguous() for each in (forget, candidate)]
    # (positions, batch, 1): 0 where a new text begins.
    mask = None if carried is None else carried.mT.unsqueeze(-1).to(forget.dtype)
    states: Tensor = _Recurrence.apply(*steps, weight, start, mask)  # type: ignore[no-untyped-call]
    return states.transpose(0, 1)


class _Recurrence(torch.autograd.Function):
    """The loop, and backwards a shorter one.

    With g[t] the gradient that reaches c[t] from outside, and D[t] all of it,

        D[t]  = g[t] + M[t+1] D[t+1],     M[t] = dc[t]/dc[t-1] = f[t] + weight * P[t]
        P[t]  = dc[t]/d forget[t] = f[t] (1 - f[t]) (c[t-1] - candidate[t])
    """

    @staticmethod
    def forward(
        ctx: Any, forget: Tensor, candidate: Tensor, weight: Tensor, start: Tensor, carried: Tensor | None
    ) -> Tensor:
        states, gates = torch.empty_like(candidate), torch.empty_like(candidate)
        state = start
        # No product of matrices in the loop: each step is a few operations of (batch, d).
        for step in range(len(forget)):
            if carried is not None:
                state = state * carried[step]
            # f = sigmoid(forget + weight * c[t-1])
            torch.sigmoid(torch.addcmul(forget[step], weight, state), out=gates[step])
            # c = candidate + f * (c[t-1] - candidate)
            state = torch.lerp(candidate[step], state, gates[step], out=states[step])
        ctx.save_for_backward(states, gates, candidate, weight, start, carried)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        states, gates, candidate, weight, start, carried = ctx.saved_tensors
        # c[t-1] of every step, as the loop had it.
        before = torch.cat((start[None], states[:-1]))
        if carried is not None:
            before = before * carried
        # dc/d(gate's argument) = f (1 - f) (c[t-1] - candidate)
        of_gate = gates * (1.0 - gates) * (before - candidate)
        # dc[t]/dc[t-1] = f + weight * of_gate: directly, and by the gate.
        through = torch.addcmul(gates, weight, of_gate)
        if carried is not None:
            through = through * carried
        # The whole gradient of each c[t]: its own, and what comes from later states.
        total = torch.empty_like(upstream)
        later = torch.zeros_like(start)
        for step in reversed(range(len(total))):
            torch.add(upstream[step], later, out=total[step])
            later = total[step] * through[step]
        # The rest needs no loop: all steps at once.
        of_forget = total * of_gate
        # dc/dcandidate = 1 - f; weight meets every step; start gets what is left at the end.
        return of_forget, total * (1.0 - gates), (of_forget * before).sum((0, 1)), later, None


class RecurrentState:
    """The states of the last positions that a recurrent layer has read.

    Args:
        back: how many positions can be taken back by `cut` at any time.

    Attributes:
        length: how many positions have been read.

    Example:
        >>> state = RecurrentState(back=1)
        >>> state.extend(torch.tensor([[[1.0], [2.0], [3.0]]]))
        >>> state.cut(2)
        >>> state.last().tolist()
        [[2.0]]
    """

    def __init__(self, *, back: int = 0) -> None:
        self.back, self.length = back, 0
        self._held: Tensor | None = None

    def last(self) -> Tensor | None:
        """(batch, d), after the last position; None before the first."""
        return self._held[:, -1] if self._held is not None and self.length else None

    def extend(self, states: Tensor) -> None:
        """Take in the states of the next positions, (batch, new, d)."""
        self.length += states.shape[1]
        held = states if self._held is None else torch.cat((self._held, states), dim=1)
        # The last state, and `back` more for `cut`.
        self._held = held[:, -1 - self.back :]

    def pick(self, rows: Tensor) -> None:
        """Put other rows of the batch in the places of these, as `KeyValueCache.pick`."""
        if self._held is not None:
            self._held = self._held.index_select(0, rows)

    def cut(self, length: int) -> None:
        """Forget the last positions.

        Raises:
            InputError: more than there are, or so many that their states are gone.
        """
        held = 0 if self._held is None else self._held.shape[1]
        # All states are held: even the empty state can be gone back to.
        least = 0 if held == self.length else self.length - held + 1
        if not least <= length <= self.length:
            raise InputError(f"length must be from {least} to {self.length}; got {length}.")
        kept = held - (self.length - length)
        self._held = self._held[:, :kept] if self._held is not None and kept else None
        self.length = length
