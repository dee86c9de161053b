"""Keys and values of the running requests.

Every request owns one slot, a fixed run of rows, one row a token. The running requests always
occupy slots 0 … n-1, so that a batch reads its keys as a view and copies nothing: when one leaves,
the last one moves into its place. Rolling back rejected tokens needs no work at all, because what a
request may see is decided by its length and rows past it are overwritten.
"""

from __future__ import annotations

import math
import mmap

import torch
from torch import Tensor


def _zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Zeros, not garbage: a masked row still takes part as 0 · value, and 0 · NaN is NaN.

    On a CPU they are fresh pages of the kernel, which take memory only once they are written.
    """
    if device.type != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    return torch.frombuffer(pages, dtype=dtype).view(shape)


class KVCache:
    """The pool of one model.

    Args:
        layers: of the model.
        slots: requests that can run at once.
        rows: tokens per slot.
        heads: key-value heads.
        head_dim: width of a head.
    """

    def __init__(
        self, *, layers: int, slots: int, rows: int, heads: int, head_dim: int,
        device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        self.slots, self.rows = slots, rows
        shape = (layers, slots, rows, 2, heads, head_dim)
        self.data = _zeros(shape, device, dtype)
        self._flat = self.data.view(layers, slots * rows, 2 * heads * head_dim)
        self.keys = self.data[:, :, :, 0].transpose(2, 3)
        self.values = self.data[:, :, :, 1].transpose(2, 3)

    @property
    def bytes(self) -> int:
        """Size of the pool."""
        return self.data.numel() * self.data.element_size()

    def index(self, first: int, rows: Tensor) -> Tensor:
        """Flat row numbers for ``rows`` [batch, tokens] of the slots from ``first`` on."""
        begin = torch.arange(first, first + rows.shape[0], device=rows.device) * self.rows
        return (rows + begin[:, None]).flatten()

    def write(self, layer: int, index: Tensor, keys_values: Tensor) -> None:
        """Store rotated keys and values side by side, [batch · tokens, 2 · heads · head_dim]."""
        self._flat[layer].index_copy_(0, index, keys_values)

    def compact(self, slot: int, begin: int, offsets: list[int]) -> None:
        """Move an accepted path, the rows ``begin + offsets`` of a slot, to ``begin`` and on."""
        if offsets != list(range(len(offsets))):
            source = [begin + offset for offset in offsets]
            self.data[:, slot, begin : begin + len(offsets)] = self.data[:, slot, source]

    def move(self, source: int, target: int, rows: int) -> None:
        """Copy the first ``rows`` of one slot over another."""
        self.data[:, target, :rows] = self.data[:, source, :rows]
