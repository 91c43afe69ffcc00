"""What one attention layer keeps of the positions that it has read: their keys and values."""

import torch
from torch import Tensor

from regard.core.errors import InputError

# Room that is made at a time, in positions: as much, or a sixteenth of what is there.
_ROOM = 32


class KeyValueCache:
    """The keys and values of the positions read so far, so that the next ones need not read them again.

    A query attends to keys and values, never to earlier queries: with these kept, a new token costs one row
    of attention, O(N), where a pass over the whole sequence costs O(N^2).

    Memory grows in blocks, so that a token is written into its place and nothing else is moved. With a window
    what no later query can see is let go.

    Args:
        window: how many positions before its own a query sees (`Window.left`); None for all.
        back: how many positions can be taken back by `cut` at any time, and a window keeps so many more.

    Attributes:
        length: how many positions have been read.

    Raises:
        InputError: a window below 0.

    Example:
        >>> import torch
        >>> from regard.core import KeyValueCache
        >>> cache = KeyValueCache()
        >>> for token in range(3):
        ...     k, v = cache.append(torch.randn(1, 2, 1, 5), torch.randn(1, 2, 1, 5))
        >>> cache.length, k.shape
        (3, torch.Size([1, 2, 3, 5]))

    Source: Shazeer 2019, arXiv 1911.02150, section 2.4 ("incremental"); the window: Jiang et al. 2023, arXiv
    2310.06825, section 2.
    """

    def __init__(self, *, window: int | None = None, back: int = 0) -> None:
        if window is not None and window < 0:
            raise InputError(f"window must be at least 0, or None for no limit; got {window}.")
        self.window, self.back = window, back
        self.length = 0
        # (batch, kv_heads, room, dim): `length` - `_base` positions are filled, the rest is room.
        self._held: tuple[Tensor, Tensor] | None = None
        self._base = 0  # the position of the first key in `_held`

    @property
    def first(self) -> int:
        """The position of the first key that the next query sees; 0 without a window."""
        return 0 if self.window is None else max(0, self.length - self.window)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of the next positions.

        Args:
            k: (batch, kv_heads, new, head_dim), as they enter the scores.
            v: (batch, kv_heads, new, v_dim).

        Returns:
            Those that the new queries may attend to, (batch, kv_heads, keys, ..), the new ones last; key 0
            stands at the position that `first` was before. Views, until the next call.

        Raises:
            InputError: other sizes or another type than before, or tensors that want a gradient: they would
                be written over.
        """
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            raise InputError(
                "k and v must not want a gradient: a cache writes over what it holds. "
                "Call under torch.no_grad(), or without a cache."
            )
        # Before the new ones: their first query sees from here on.
        start, new = self.first, k.shape[2]
        if self._held is None:
            self._held = k, v  # most often the only ones, or many: not copied until more come
        else:
            self._check(k, v)
            # No room behind the last key.
            if self.length - self._base + new > self._held[0].shape[2]:
                self._make_room(new)
            # Written in place: one position costs one row, not a copy of all.
            for held, added in zip(self._held, (k, v), strict=True):
                held.narrow(2, self.length - self._base, new).copy_(added)
        self.length += new
        return self.since(start)

    def since(self, position: int) -> tuple[Tensor, Tensor]:
        """The keys and values of a position and all after it, as views.

        Raises:
            InputError: nothing has been read, or the position's have been let go.
        """
        if self._held is None or not self._base <= position <= self.length:
            raise InputError(f"position must be from {self._base} to {self.length}; got {position}.")
        k, v = self._held
        # From positions of the text to places in `_held`.
        begin, count = position - self._base, self.length - position
        return k.narrow(2, begin, count), v.narrow(2, begin, count)

    def pick(self, rows: Tensor) -> None:
        """Put other rows of the batch in the places of these: beams that go on, texts that are finished.

        Args:
            rows: int64 (new batch,), which row each one continues; a row may go on several times, or never.
        """
        if self._held is not None:
            k, v = self._held
            # Only what is filled is copied.
            filled = self.length - self._base
            self._held = _picked(k, rows, filled), _picked(v, rows, filled)

    def cut(self, length: int) -> None:
        """Forget the last positions.

        Args:
            length: how many positions stay.

        Raises:
            InputError: more than there are, or so few that the window would want keys that were let go.
        """
        # What was let go cannot be brought back: a window needs its keys.
        least = self._base + (self.window or 0) if self._base else 0
        if not least <= length <= self.length:
            window = f" (a window of {self.window} has let go of the rest)" if least else ""
            raise InputError(f"length must be from {least} to {self.length}{window}; got {length}.")
        self.length = length
        if length == 0:
            self._held = None
        if self._held is not None:
            # Without room behind it: what stood there may be somebody else's tensor.
            k, v = self._held
            self._held = k[:, :, : length - self._base], v[:, :, : length - self._base]

    def _make_room(self, new: int) -> None:
        # Keys that no query will see are let go here; `back` more stay, for `cut`.
        start = max(self._base, self.first - self.back)
        kept = self.length - start
        # Room in proportion to the length: the cost of moving, per position, stays bounded.
        room = kept + new + max(_ROOM, kept // 16)
        k, v = self.since(start)
        self._held = _moved(k, room), _moved(v, room)
        self._base = start

    def _check(self, k: Tensor, v: Tensor) -> None:
        for name, held, added in zip("kv", self._held or (), (k, v), strict=True):
            if held.dtype != added.dtype or _sizes(held) != _sizes(added):
                raise InputError(
                    f"{name} must go on from what is kept, {held.dtype} with batch, heads and size "
                    f"{_sizes(held)}; got {added.dtype} with {_sizes(added)}."
                )


def _picked(held: Tensor, rows: Tensor, filled: int) -> Tensor:
    # What stands in the room behind is nobody's: most often there is more of it than of keys.
    picked = held.new_empty(len(rows), *held.shape[1:])
    torch.index_select(held[:, :, :filled], 0, rows, out=picked[:, :, :filled])
    return picked


def _moved(held: Tensor, room: int) -> Tensor:
    batch, heads, kept, size = held.shape
    # The room is not cleared: nothing reads it before it is written.
    larger = held.new_empty(batch, heads, room, size)
    larger.narrow(2, 0, kept).copy_(held)
    return larger


def _sizes(tensor: Tensor) -> tuple[int, int, int]:
    return tensor.shape[0], tensor.shape[1], tensor.shape[3]
