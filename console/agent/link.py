"""The agent's side of the wire: what is sent next, and how much may be under way.

Control frames always go before bulk ones. Bulk (logs, HTTP bodies, long answers) is bounded twice:
each stream by what its reader consumed, and all together by a window that follows the delay of
the link, so that a flooded slow link never holds up the answer to a kill.
"""

from __future__ import annotations

import collections
import os
import threading
import time
from typing import Any

from console.agent import wire

MIN_WINDOW = 2 * wire.CHUNK
MAX_WINDOW = wire.STREAM_CREDIT
GROW_BELOW_S = 0.1
SHRINK_ABOVE_S = 0.3
"""Delay above the link's smallest one at which the window grows or shrinks."""


class Cancelled(Exception):
    """The client no longer wants this answer, or the link has ended."""


class Window:
    """Bytes of bulk under way on the link; sized by how late receipts come. Not thread-safe."""

    def __init__(self) -> None:
        self.limit = MIN_WINDOW
        self.under_way = 0
        self._sent: collections.deque[tuple[int, float]] = collections.deque()
        self._least: float | None = None

    def room(self, size: int) -> bool:
        """Whether ``size`` more bytes may be sent; one frame always may on an idle link."""
        return self.under_way == 0 or self.under_way + size <= self.limit

    def sent(self, size: int, now: float) -> None:
        """Note a frame as sent."""
        self.under_way += size
        self._sent.append((size, now))

    @property
    def piece(self) -> int:
        """Bytes of a frame that hold up the next one for no longer than the link's delay allows."""
        return max(wire.CHUNK, min(wire.PIECE, self.limit // 4))

    def received(self, size: int, now: float) -> None:
        """The client has received ``size`` more bytes: learn from how long they took."""
        while size > 0 and self._sent:
            length, when = self._sent.popleft()
            taken = min(length, size)
            size -= taken
            self.under_way -= taken
            if taken < length:
                self._sent.appendleft((length - taken, when))
                return
            delay = now - when
            self._least = delay if self._least is None else min(self._least, delay)
            if delay < self._least + GROW_BELOW_S:
                self.limit = min(MAX_WINDOW, self.limit + length)
            elif delay > self._least + SHRINK_ABOVE_S:
                self.limit = max(MIN_WINDOW, self.limit * 3 // 4)


class Link:
    """Sends frames from any thread, control first; one writer thread owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        self._control: collections.deque[bytes] = collections.deque()
        self._bulk: collections.deque[bytes] = collections.deque()
        self._changed = threading.Condition()
        self._window = Window()
        self._unread: dict[int, int] = {}
        self.closed = False

    def control(
        self, call: int, stream: str, payload: bytes = b"", meta: dict[str, Any] | None = None
    ) -> None:
        """Queue a control frame; never waits."""
        with self._changed:
            self._control.append(wire.frame(call, stream, payload, meta))
            self._changed.notify_all()

    def bulk(
        self,
        call: int,
        stream: str,
        payload: bytes,
        meta: dict[str, Any] | None,
        cancelled: threading.Event,
    ) -> None:
        """Queue a bulk frame as soon as its stream's credit and the window allow it.

        Raises ``Cancelled`` when the call or the link ends meanwhile.
        """
        size = len(payload)
        with self._changed:
            while not self._may_send(call, size):
                if cancelled.is_set() or self.closed:
                    raise Cancelled
                self._changed.wait(1.0)
            if cancelled.is_set() or self.closed:
                raise Cancelled
            self._unread[call] = self._unread.get(call, 0) + size
            self._window.sent(size, time.monotonic())
            self._bulk.append(wire.frame(call, stream, payload, meta))
            self._changed.notify_all()

    def _may_send(self, call: int, size: int) -> bool:
        unread = self._unread.get(call, 0)
        return self._window.room(size) and (unread == 0 or unread + size <= wire.STREAM_CREDIT)

    @property
    def piece(self) -> int:
        """Bytes that a stream may put into one frame now: the fewer frames, the less work."""
        return self._window.piece

    def credit(self, call: int, size: int) -> None:
        """The client's reader of a stream has consumed ``size`` bytes."""
        with self._changed:
            if call in self._unread:
                self._unread[call] = max(0, self._unread[call] - size)
            self._changed.notify_all()

    def received(self, size: int) -> None:
        """The client's end of the link has received ``size`` bytes of bulk."""
        with self._changed:
            self._window.received(size, time.monotonic())
            self._changed.notify_all()

    def forget(self, call: int) -> None:
        """A call has ended: its credit is void, and waiting senders look again."""
        with self._changed:
            self._unread.pop(call, None)
            self._changed.notify_all()

    def wake(self) -> None:
        """Let waiting senders look at their cancel flags."""
        with self._changed:
            self._changed.notify_all()

    def write_forever(self) -> None:
        """Send queued frames until the other end is gone."""
        while True:
            with self._changed:
                while not self._control and not self._bulk:
                    self._changed.wait()
                queue = self._control or self._bulk
                data = memoryview(queue.popleft())
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                with self._changed:
                    self.closed = True
                    self._changed.notify_all()
                return
