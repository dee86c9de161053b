"""Bulk work on the event loop that lets keys and drawing have their turn."""

from __future__ import annotations

import asyncio
import time

WORK_S = 0.003
"""CPU time of the loop's thread after which bulk work leaves it to others."""

REST_S = 0.003
"""For how long. One turn of the loop would not do: from a key to its drawing there are dozens, and
bulk work in each of them would make that half a second."""

KEY_S = 0.03
"""How long bulk work stands aside for a key: about until it is drawn."""

AGAIN_S = 0.02
"""How soon after that it does so again: a key held down does not stop a log that pours in."""

BEHIND = 1 << 20
"""Bytes that a log may be ahead of its reader before that reads on whatever is typed."""


class Turns:
    """Asked between two pieces of work: gives the loop away when the time of all is over.

    CPU time, not time: a reader that waited for its log, or a machine whose cores are taken, has
    done no work meanwhile.
    """

    def __init__(self) -> None:
        self._since = 0.0
        self._rest_until = 0.0
        self._key_until = 0.0
        self._key_again = 0.0
        self.pressed_at = -KEY_S
        """When the last key was pressed, on the monotonic clock."""
        self.lag_bytes = 0
        """How far the log that is shown is ahead of its reader."""

    def key(self) -> None:
        """A key was pressed: what it does comes before bulk work."""
        now = self.pressed_at = time.monotonic()
        if now >= self._key_again and self.lag_bytes < BEHIND:
            self._key_until = now + KEY_S
            self._key_again = self._key_until + AGAIN_S

    @property
    def aside(self) -> bool:
        """Whether a key is on its way to the screen."""
        return time.monotonic() < self._key_until

    @property
    def quiet_s(self) -> float:
        """Since when no key was pressed."""
        return time.monotonic() - self.pressed_at

    @property
    def answering(self) -> bool:
        """Whether a key was pressed just now, whatever else is urgent."""
        return self.quiet_s < KEY_S

    async def stand_aside(self) -> None:
        """Wait while a key is on its way to the screen."""
        if (left := self._key_until - time.monotonic()) > 0:
            await asyncio.sleep(left)

    async def give(self) -> None:
        """Let others run, if bulk work has run long enough or a key was pressed."""
        left = max(self._rest_until, self._key_until) - time.monotonic()
        if left <= 0 and time.thread_time() - self._since >= WORK_S:
            self._rest_until, left = time.monotonic() + REST_S, REST_S
        while left > 0:
            await asyncio.sleep(left)
            self._since = time.thread_time()
            left = self._key_until - time.monotonic()


TURNS = Turns()
"""The one that everything shares which takes in or looks through a log."""
