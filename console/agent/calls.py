"""What a verb gets and how it fails."""

from __future__ import annotations

import collections
import threading
from typing import Any, Callable, Dict

from console.agent import wire
from console.agent.link import Cancelled, Link


class VerbError(Exception):
    """A clear failure for the operator. ``kind``: refused, failed, usage, os or format."""

    def __init__(self, kind: str, message: str, hint: str = "", errno: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.errno = errno

    def describe(self) -> dict[str, Any]:
        """The error as it travels."""
        return {
            "kind": self.kind,
            "message": self.message,
            "hint": self.hint,
            "errno": self.errno,
        }


class Call:
    """One request in progress: its arguments, its way back and, for streams, what comes in."""

    def __init__(self, number: int, args: dict[str, Any], link: Link) -> None:
        self.id = number
        self.args = args
        self.cancelled = threading.Event()
        self._link = link
        self._inbox: collections.deque[bytes | None] = collections.deque()
        self._arrived = threading.Condition()

    def text(self, name: str, default: str | None = None) -> str:
        """A string argument; raises ``VerbError`` when it is missing or not one."""
        value = self.args.get(name, default)
        if not isinstance(value, str) or "\0" in value:
            raise VerbError("usage", "argument {} must be a string without NUL".format(name))
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """An integer argument."""
        value = self.args.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise VerbError("usage", "argument {} must be an integer".format(name))
        return value

    def seconds(self, name: str, default: float) -> float:
        """A duration in seconds, 0 to a day."""
        value = self.args.get(name, default)
        if not isinstance(value, (int, float)) or not 0 <= value <= 86400:
            raise VerbError("usage", "argument {} must be seconds up to a day".format(name))
        return float(value)

    def words(self, name: str) -> list[str]:
        """A list of strings without NUL."""
        value = self.args.get(name)
        if not isinstance(value, list):
            raise VerbError("usage", "argument {} must be a list".format(name))
        if any(not isinstance(word, str) or "\0" in word for word in value):
            raise VerbError("usage", "argument {} must hold strings without NUL".format(name))
        return value

    def variables(self, name: str) -> dict[str, str]:
        """A mapping of environment variables; names without ``=``, no NUL."""
        value = self.args.get(name) or {}
        if not isinstance(value, dict):
            raise VerbError("usage", "argument {} must be a mapping".format(name))
        for key, item in value.items():
            if not key or "=" in key or "\0" in key or not isinstance(item, str) or "\0" in item:
                raise VerbError("usage", "{!r} cannot be an environment variable".format(key[:80]))
        return value

    @property
    def piece(self) -> int:
        """Bytes that one frame may hold on this link, as it is now."""
        return self._link.piece

    def send(self, data: bytes, meta: dict[str, Any] | None = None, most: int = wire.CHUNK) -> None:
        """Send stream data in frames of ``most`` bytes, as credit allows; raises ``Cancelled``."""
        first = True
        for start in range(0, len(data), most) or (0,):
            piece = data[start : start + most]
            self._link.bulk(self.id, "data", piece, meta if first else None, self.cancelled)
            first = False

    def answer(self, value: Any) -> None:
        """Send the result; a long one travels as bulk, in parts."""
        payload = wire.dumps(value)
        if len(payload) <= wire.CHUNK:
            self._link.control(self.id, "reply", payload)
            return
        last = (len(payload) - 1) // wire.CHUNK * wire.CHUNK
        for start in range(0, last, wire.CHUNK):
            piece = payload[start : start + wire.CHUNK]
            self._link.bulk(self.id, "part", piece, None, self.cancelled)
        self._link.bulk(self.id, "reply", payload[last:], None, self.cancelled)

    def fail(self, error: VerbError) -> None:
        """Send a failure."""
        self._link.control(self.id, "error", wire.dumps(error.describe()))

    def finish(self) -> None:
        """End a stream, after everything already sent on it."""
        self._link.bulk(self.id, "end", b"", None, self.cancelled)

    def feed(self, data: bytes | None) -> None:
        """Stream data has come in; ``None`` is its end."""
        with self._arrived:
            self._inbox.append(data)
            self._arrived.notify_all()

    def receive(self) -> bytes | None:
        """The next data of the client; ``None`` at its end. Raises ``Cancelled``."""
        with self._arrived:
            while not self._inbox:
                if self.cancelled.is_set():
                    raise Cancelled
                self._arrived.wait(1.0)
            return self._inbox.popleft()

    def consumed(self, size: int) -> None:
        """Tell the client that ``size`` bytes of its data were passed on."""
        self._link.control(self.id, "credit", b"", {"n": size})

    def cancel(self) -> None:
        """Nobody waits for this call any more."""
        self.cancelled.set()
        with self._arrived:
            self._arrived.notify_all()
        self._link.wake()


Verb = Callable[[Call], Any]
Verbs = Dict[str, Verb]

STREAMED = object()
"""What a verb returns when it has sent a stream instead of a result."""
