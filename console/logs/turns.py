"""Bulk work on the event loop that lets keys and drawing have their turn."""

from __future__ import annotations

import asyncio
import time

WORK_S = 0.003
"""CPU time of the loop's thread after which bulk work leaves it to others."""

REST_S = 0.003
"""For how long. One turn of the loop would not do: from a key to its drawing there are dozens, and
bulk work in each of them would make that half a second."""


class Turns:
    """Asked between two pieces of work: gives the loop away when the time of all is over.

    CPU time, not time: a reader that waited for its log, or a machine whose cores are taken, has
    done no work meanwhile.
    """

    def __init__(self) -> None:
        self._since = 0.0
        self._rest_until = 0.0

    async def give(self) -> None:
        """Let others run, if bulk work has run long enough."""
        left = self._rest_until - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        elif time.thread_time() - self._since >= WORK_S:
            self._rest_until = time.monotonic() + REST_S
            await asyncio.sleep(REST_S)
            self._since = time.thread_time()


TURNS = Turns()
"""The one that everything shares which takes in or looks through a log."""
