"""What closed screens leave is collected in the moments when no key is on its way.

Left to itself, Python does it for several of them at once, 40 ms, and often upon a key.
"""

from __future__ import annotations

import gc
import time

from console.turns import TURNS

NEVER = 1 << 30
FEW, MANY = 3, 30
"""Rounds of small collections, which Python goes on to make by itself, after which a whole one is
due: some 5 ms for the first, 15 ms for the second, for who types without a pause."""
REST_S = 0.1
"""Without a key for so long, the next one is not on its way."""
SHARE = 50
"""Where there is much to look through, that is done for at most a fiftieth of the time."""


class Garbage:
    """Asked twice a second and after keys."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def begin(self) -> None:
        """Everything is imported: collect from now on, but never look through all that again.

        Imports make objects that stay; collecting among them costs a tenth of the way to the first
        frame, and later some 50 ms at a time, on the loop.
        """
        if not gc.isenabled():
            gc.freeze()
            gc.set_threshold(*gc.get_threshold()[:2], NEVER)
            gc.enable()

    def collect(self) -> None:
        """Collect all, if that is due and nobody waits."""
        rounds, now = gc.get_count()[2], time.monotonic()
        if rounds < MANY and (rounds < FEW or TURNS.quiet_s < REST_S or now < self._free_at):
            return
        if gc.isenabled():
            gc.collect()
            self._free_at = now + SHARE * (time.monotonic() - now)


GARBAGE = Garbage()
"""The process has one."""
