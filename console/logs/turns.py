"""Bulk work on the event loop that lets keys and drawing have their turn."""

from __future__ import annotations

import asyncio
import time

WORK_S = 0.003
"""How long all bulk work together may hold the loop."""

REST_S = 0.003
"""How long it then leaves the loop to others. One turn of the loop would not do: from a key to its
drawing there are dozens, and bulk work in each of them would make that half a second."""


class Turns:
    """Asked between two pieces of work: gives the loop away when the time of all is over."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._rest_until = 0.0

    async def give(self) -> None:
        """Let others run, if bulk work has run long enough."""
        now = time.monotonic()
        if self._rest_until <= now and now - self._since >= WORK_S:
            self._rest_until = self._since = now + REST_S
        left = self._rest_until - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)


TURNS = Turns()
"""The one that everything shares which takes in or looks through a log."""
