"""A TCP proxy that behaves like a bad network, changed while it runs.

    async with Proxy("192.0.2.10", 22) as proxy:
        ...connect to proxy.address, proxy.port...
        proxy.down.latency_s = 0.2        # server to client
        proxy.up.bytes_per_s = 64_000     # client to server
        proxy.both(stalled=True)          # nothing moves, nothing is lost
        proxy.down.dropped = True         # one way is black
        proxy.down.reset_after = 100      # 100 bytes on, both ends get a reset
        proxy.half_open()                 # the server is gone, the client is not told

Bytes are counted in each direction: taken from the sender, given to the receiver, thrown away.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

CHUNK = 64 * 1024
# How much of one direction may be on its way before the sender is held back, as a network's queues.
IN_FLIGHT = 1024 * 1024
SLICE_S = 0.01  # a capped direction sends this long's worth of bytes at a time


class _Cut(Exception):
    """This connection ends now; ``reset`` says how."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__("reset" if reset else "closed")
        self.reset = reset


@dataclass
class Direction:
    """The faults of one direction, for all connections; set any of them at any time.

    ``latency_s`` and up to ``jitter_s`` more are added to each chunk, order kept.
    ``bytes_per_s`` caps each connection; None is no cap.
    ``stalled`` holds bytes back, ``dropped`` throws them away; neither tells anyone.
    ``corrupt_every`` flips one bit in each so many bytes; None is never.
    ``reset_after`` and ``close_after``: after so many more bytes the connection that carries the
    last of them is reset or closed, and the number goes back to None.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    stalled: bool = False
    dropped: bool = False
    corrupt_every: int | None = None
    reset_after: int | None = None
    close_after: int | None = None
    taken: int = 0
    given: int = 0
    thrown: int = 0
    _since_flip: int = field(default=0, repr=False)

    async def moving(self) -> None:
        """Return when the direction is not stalled."""
        while self.stalled:
            await asyncio.sleep(0.005)

    def until_cut(self) -> int | None:
        """How many bytes may still pass, or None for any number."""
        limits = [n for n in (self.reset_after, self.close_after) if n is not None]
        return min(limits) if limits else None

    def passed(self, count: int) -> None:
        """Count bytes against the limits.

        Raises:
            _Cut: a limit is reached.
        """
        if self.reset_after is not None:
            self.reset_after -= count
            if self.reset_after <= 0:
                self.reset_after = None
                raise _Cut(reset=True)
        if self.close_after is not None:
            self.close_after -= count
            if self.close_after <= 0:
                self.close_after = None
                raise _Cut(reset=False)

    def corrupted(self, data: bytes) -> bytes:
        """``data`` with its share of flipped bits."""
        if self.corrupt_every is None:
            return data
        changed = bytearray(data)
        for at in self._flips(len(data), self.corrupt_every):
            changed[at] ^= 0x20
        return bytes(changed)

    def _flips(self, count: int, every: int) -> Iterator[int]:
        first = every - 1 - self._since_flip
        self._since_flip = (self._since_flip + count) % every
        return iter(range(max(first, 0), count, every))


class _Pump:
    """One direction of one connection: take, wait, give."""

    def __init__(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        faults: Direction,
        chance: random.Random,
    ) -> None:
        self._source = source
        self._sink = sink
        self._faults = faults
        self._random = chance
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued = 0
        self._moved = asyncio.Condition()
        self._last_due = 0.0

    async def take(self) -> None:
        """Read until the sender's end, holding it back when too much is on its way."""
        while True:
            async with self._moved:
                await self._moved.wait_for(lambda: self._queued < IN_FLIGHT)
            data = await self._source.read(CHUNK)
            self._faults.taken += len(data)
            wait = self._faults.latency_s + self._random.random() * self._faults.jitter_s
            self._last_due = max(self._last_due, asyncio.get_running_loop().time() + wait)
            async with self._moved:
                self._queue.append((self._last_due, data))
                self._queued += len(data)
                self._moved.notify_all()
            if not data:
                return

    async def give(self) -> None:
        """Write what is due, with the faults of the moment."""
        while True:
            async with self._moved:
                await self._moved.wait_for(lambda: bool(self._queue))
                due, data = self._queue.popleft()
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            await self._faults.moving()
            if not data:
                if not self._faults.dropped:
                    self._sink.write_eof()
                return
            await self._send(data)
            async with self._moved:
                self._queued -= len(data)
                self._moved.notify_all()

    async def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            await self._faults.moving()
            faults = self._faults
            if faults.dropped:
                faults.thrown += len(rest)
                return
            size = len(rest)
            if faults.bytes_per_s is not None:
                size = min(size, max(1, int(faults.bytes_per_s * SLICE_S)))
            limit = faults.until_cut()
            if limit is not None:
                size = min(size, max(limit, 1))
            part, rest = bytes(rest[:size]), rest[size:]
            self._sink.write(faults.corrupted(part))
            await self._sink.drain()
            faults.given += size
            faults.passed(size)
            if faults.bytes_per_s is not None:
                await asyncio.sleep(size / faults.bytes_per_s)


class _Link:
    """One client connection and the server connection behind it."""

    def __init__(
        self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._reader = reader
        self._client = writer
        self._server: asyncio.StreamWriter | None = None
        self._reset = False
        self._deaf = False
        self._task = asyncio.ensure_future(self._run())

    @property
    def task(self) -> asyncio.Task[None]:
        """Ends with the connection."""
        return self._task

    def cut(self, *, reset: bool) -> None:
        """End both sides."""
        self._reset = reset
        self._task.cancel()

    def half_open(self) -> None:
        """End the server's side; the client's stays and leads nowhere."""
        self._deaf = True
        self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._carry()
        except asyncio.CancelledError:
            if not self._deaf:
                raise
            self._task.uncancel()
            if self._server is not None:
                _end(self._server, reset=True)
            await self._swallow()
        finally:
            for side in (self._client, self._server):
                if side is not None:
                    _end(side, reset=self._reset)
                    with suppress(OSError):
                        await side.wait_closed()

    async def _carry(self) -> None:
        try:
            answer, self._server = await asyncio.open_connection(*self._proxy.target)
            up = _Pump(self._reader, self._server, self._proxy.up, self._proxy.random)
            down = _Pump(answer, self._client, self._proxy.down, self._proxy.random)
            async with asyncio.TaskGroup() as group:
                for part in (up.take(), up.give(), down.take(), down.give()):
                    group.create_task(part)
        except* _Cut as cut:
            self._reset = any(isinstance(e, _Cut) and e.reset for e in cut.exceptions)
        except* OSError:
            self._reset = True  # one side was reset or is not there: the other learns it so

    async def _swallow(self) -> None:
        with suppress(OSError):
            while data := await self._reader.read(CHUNK):
                self._proxy.up.taken += len(data)
                self._proxy.up.thrown += len(data)


def _end(side: asyncio.StreamWriter, *, reset: bool) -> None:
    if not reset:
        side.close()
        return
    handle = side.get_extra_info("socket")
    with suppress(OSError):  # it may be closed already
        # Linger for 0 s: close sends RST instead of FIN.
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    side.transport.abort()


class Proxy:
    """Listens on 127.0.0.1 and carries every connection to ``(host, port)``.

    ``up`` is client to server, ``down`` server to client. ``connections`` counts all ever accepted,
    ``alive`` those that are there now. ``seed`` fixes the jitter.
    """

    address = "127.0.0.1"

    def __init__(self, host: str, port: int, *, seed: int = 0) -> None:
        self.target = (host, port)
        self.up = Direction()
        self.down = Direction()
        self.connections = 0
        self.port = 0
        self.random = random.Random(seed)
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.refuse()
        tasks = [link.task for link in self._links]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def alive(self) -> int:
        """Connections that are there now."""
        return len(self._links)

    async def listen(self) -> None:
        """Accept connections (again), on the same port as before."""
        self._server = await asyncio.start_server(self._accept, self.address, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """No new connections: the port is closed. Those that are open go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def both(self, **faults: float | bool | None) -> None:
        """Set the same faults in both directions."""
        for direction in (self.up, self.down):
            for name, value in faults.items():
                if not hasattr(direction, name):
                    raise AttributeError(f"no fault {name!r}")
                setattr(direction, name, value)

    def reset_all(self) -> None:
        """Both ends of every connection get a reset."""
        for link in self._links:
            link.cut(reset=True)

    def close_all(self) -> None:
        """Both ends of every connection get an orderly end."""
        for link in self._links:
            link.cut(reset=False)

    def half_open(self) -> None:
        """Every server side is reset; the clients hear nothing and their bytes are swallowed."""
        for link in self._links:
            link.half_open()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        link = _Link(self, reader, writer)
        self._links.add(link)
        link.task.add_done_callback(lambda _: self._links.discard(link))
