"""The client's end of the wire: many calls and streams over one channel."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

from console.agent import wire
from console.errors import AgentError, HostError, SpecopsError, UsageError
from console.text import clean
from console.transport.base import Channel, lost
from console.transport.said import remote_error, start_error
from console.turns import TURNS

NOISE_LIMIT = 64 * 1024
"""Bytes of login noise before the sentinel that are put up with."""
START_S = 10.0
"""Seconds the host has to start the agent."""
GRACE_S = 5.0
"""Seconds beyond a call's own bound before the link is suspected."""


BULK = 4096
"""Bytes of a frame that is not one of a stream of single words, such as a completion's."""
PAY_S = 0.005
"""For so long receipts are gathered; each frame of them is a system call here and there."""


class Stream:
    """One streaming call: what the agent sends, in order, with credit given as it is consumed."""

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self.id = number
        self._frames: deque[tuple[Mapping[str, Any], bytes] | SpecopsError | None] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._unread = 0
        self._done = False

    def push(self, item: tuple[Mapping[str, Any], bytes] | SpecopsError | None) -> None:
        """Called by the client: data, an error or the end."""
        self._frames.append(item)
        self._news.set()
        self._room.set()

    @property
    def ended(self) -> bool:
        """Whether the agent's end is closed or something unasked for has come."""
        return self._done or bool(self._frames)

    def credit(self, size: int) -> None:
        """Called by the client: the agent has passed on what was sent."""
        self._unread = max(0, self._unread - size)
        self._room.set()

    async def next(self) -> tuple[Mapping[str, Any], bytes] | None:
        """The next piece, ``None`` at the end; raises what the agent reported."""
        while not self._frames:
            if self._done:
                return None
            self._news.clear()
            await self._news.wait()
        item = self._frames.popleft()
        if item is None or isinstance(item, SpecopsError):
            self._done = True
            self._client.forget(self.id)
            if item is not None:
                raise item
            return None
        if item[1]:
            self._client.owe(self.id, "credit", len(item[1]))
        return item

    async def __aiter__(self) -> AsyncIterator[tuple[Mapping[str, Any], bytes]]:
        """All pieces; closing the iterator closes the stream."""
        try:
            while (item := await self.next()) is not None:
                yield item
        finally:
            self.close()

    async def send(self, data: bytes) -> None:
        """Send data as the agent's credit allows; raises ``HostError``."""
        for start in range(0, len(data), wire.CHUNK):
            piece = data[start : start + wire.CHUNK]
            while self._unread and self._unread + len(piece) > wire.STREAM_CREDIT:
                if self._done or self._client.error is not None:
                    raise self._client.error or lost(self._client.host, "the stream has ended")
                self._room.clear()
                await self._room.wait()
            self._unread += len(piece)
            await self._client.send(self.id, "data", piece)

    def close(self) -> None:
        """End the call on the host, if it has not ended."""
        if not self._done:
            self._done = True
            self._client.forget(self.id)
            self._client.post(self.id, "cancel")
            self._news.set()


class Client:
    """Multiplexes calls over a channel. ``error`` is set once and for all when the link is lost."""

    def __init__(self, channel: Channel, host: str) -> None:
        self.host = host
        self.error: HostError | None = None
        self.lost = asyncio.Event()
        self._channel = channel
        self._next = 1
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._parts: dict[int, bytearray] = {}
        self._streams: dict[int, Stream] = {}
        self._heard = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self._buffer = bytearray()
        self._owed: dict[tuple[int, str], int] = {}

    # ---- starting

    async def start(self, mark: str, message: bytes, first: bytes = b"") -> dict[str, Any]:
        """Wait for the sentinel, send the agent, return its hello; raises ``AgentError``."""
        try:
            async with asyncio.timeout(START_S):
                if first:
                    self._channel.write(first)
                await self._skip_noise(mark.encode())
                self._channel.write(message)
                await self._channel.drain()
                header, payload = await self._frame()
        except TimeoutError:
            raise AgentError(
                "the agent did not start in 10 s",
                place=self.host,
                hint="does the login's shell start-up wait for input?",
            ) from None
        except wire.WireError as error:
            raise AgentError(
                f"the agent speaks another protocol: {error}", place=self.host
            ) from None
        hello = wire.loads(payload)
        if header.stream != "hello" or not isinstance(hello, dict):
            raise AgentError("the agent did not introduce itself", place=self.host)
        self._tasks = [
            asyncio.create_task(self._receive(), name=f"specops receive {self.host}"),
            asyncio.create_task(self._beat(), name=f"specops heartbeat {self.host}"),
        ]
        return hello

    async def _skip_noise(self, mark: bytes) -> None:
        noise = 0
        line = mark + b"\n"
        keep = len(line) - 1
        while True:
            at = self._buffer.find(line)
            noise += at if at >= 0 else max(0, len(self._buffer) - keep)
            if noise > NOISE_LIMIT:  # also where all of it came at once, the sentinel behind it
                raise AgentError(
                    "the login prints more than 64 kB before a command starts",
                    place=self.host,
                    hint="make the shell's start-up files quiet for logins without a terminal",
                )
            if at >= 0:
                break
            del self._buffer[:-keep]
            await self._more()
        del self._buffer[: at + len(line)]

    async def _more(self) -> None:
        data = await self._channel.read(256 * 1024)
        if not data:
            raise self._ended()
        self._buffer += data

    def _ended(self) -> HostError:
        """The error for a channel that has ended, with the last words of the command."""
        words = [line for line in self._channel.errors().splitlines() if line.strip()]
        said = clean(words[-1], limit=300) if words else ""
        if not self._tasks:
            return start_error(self.host, said, self._channel.errors().decode("utf-8", "replace"))
        return lost(self.host, f"the agent ended{': ' + said if said else ''}")

    # ---- frames

    async def _frame(self) -> tuple[wire.Header, bytes]:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > wire.MAX_HEADER:
                raise wire.WireError("a header is too long")
            await self._more()
        header = wire.parse_header(bytes(self._buffer[:end]))
        size = end + 1 + header.length
        while len(self._buffer) < size:
            await self._more()
        payload = bytes(self._buffer[end + 1 : size])
        del self._buffer[:size]
        return header, payload

    async def _receive(self) -> None:
        try:
            while True:
                header, payload = await self._frame()
                self._heard = time.monotonic()
                self._handle(header, payload)
                if header.stream == "data" and len(payload) >= BULK:
                    await TURNS.stand_aside()  # a log that pours in: a key comes first
        except wire.WireError as error:
            self.fail(AgentError(f"the agent sent something else: {error}", place=self.host))
        except HostError as error:
            self.fail(error)
        except OSError as error:
            self.fail(lost(self.host, error.strerror or "the connection broke off"))

    def _handle(self, header: wire.Header, payload: bytes) -> None:
        number, stream = header.id, header.stream
        bulk = stream in ("data", "part", "reply", "end")
        if bulk and payload:
            self.owe(0, "received", len(payload))
        if stream == "data" and number in self._streams:
            self._streams[number].push((header.meta, payload))
        elif stream == "end" and number in self._streams:
            self._streams[number].push(None)
        elif stream == "credit" and number in self._streams:
            count = header.meta.get("n")
            self._streams[number].credit(count if isinstance(count, int) else 0)
        elif stream == "part" and number in self._replies:
            parts = self._parts.setdefault(number, bytearray())
            parts += payload
            self.owe(number, "credit", len(payload))
            if len(parts) > wire.MAX_ANSWER:
                raise wire.WireError("an answer is too long")
        elif stream == "reply" and number in self._replies:
            value = wire.loads(bytes(self._parts.pop(number, b"")) + payload)
            self._settle(number, value)
        elif stream == "error":
            self._settle(number, remote_error(self.host, wire.loads(payload)))

    def _settle(self, number: int, value: Any) -> None:
        future = self._replies.pop(number, None)
        self._parts.pop(number, None)
        if future is not None and not future.done():
            if isinstance(value, SpecopsError):
                future.set_exception(value)
            else:
                future.set_result(value)
        elif isinstance(value, SpecopsError) and number in self._streams:
            self._streams[number].push(value)

    async def _beat(self) -> None:
        """Ping; three silent intervals are a lost host, however alive its sshd may be."""
        while True:
            self.post(0, "ping")
            await asyncio.sleep(wire.HEARTBEAT_S)
            silent = time.monotonic() - self._heard
            if silent > 3 * wire.HEARTBEAT_S:
                self.fail(lost(self.host, f"no answer for {silent:.0f} s"))
                return

    def fail(self, error: HostError) -> None:
        """The link is lost: everybody who waits is told."""
        if self.error is None:
            self.error = error
            self.lost.set()
        for future in self._replies.values():
            if not future.done():
                future.set_exception(self.error)
        self._replies.clear()
        for stream in list(self._streams.values()):
            stream.push(self.error)

    # ---- for the session

    def post(
        self, number: int, stream: str, payload: bytes = b"", meta: dict[str, Any] | None = None
    ) -> None:
        """Queue a small frame without waiting; nothing happens on a lost link."""
        if self.error is None:
            self._channel.write(wire.frame(number, stream, payload, meta))

    def owe(self, number: int, stream: str, size: int) -> None:
        """Give credit for bytes that were taken: what a burst brings is answered in one frame."""
        if not self._owed:
            asyncio.get_running_loop().call_later(PAY_S, self._pay)
        self._owed[number, stream] = self._owed.get((number, stream), 0) + size

    def _pay(self) -> None:
        owed, self._owed = self._owed, {}
        if self.error is None:
            frames = (wire.frame(to, kind, meta={"n": size}) for (to, kind), size in owed.items())
            self._channel.write(b"".join(frames))

    async def send(self, number: int, stream: str, payload: bytes) -> None:
        """Send a frame, waiting while the channel is full; raises ``HostError``."""
        if self.error is not None:
            raise self.error
        self._channel.write(wire.frame(number, stream, payload))
        await self._channel.drain()

    def forget(self, number: int) -> None:
        """A stream has ended here."""
        self._streams.pop(number, None)

    async def call(self, verb: str, args: Mapping[str, Any], *, timeout_s: float = 30.0) -> Any:
        """One request and its answer; raises what the agent reported, or ``HostError``."""
        number, request = self._begin(verb, args)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._replies[number] = future
        try:
            async with asyncio.timeout(timeout_s + GRACE_S):
                await self.send(number, "call", request)
                return await future
        except TimeoutError:
            raise lost(self.host, f"{verb}: no answer in {timeout_s + GRACE_S:.0f} s") from None
        finally:
            if self._replies.pop(number, None) is not None and not future.done():
                self._parts.pop(number, None)
                self.post(number, "cancel")
            elif future.done() and not future.cancelled():
                future.exception()  # read, so that a lost link is reported once

    def _begin(self, verb: str, args: Mapping[str, Any]) -> tuple[int, bytes]:
        number, self._next = self._next, self._next + 1
        request = wire.dumps({"verb": verb, "args": dict(args)})
        if len(request) > wire.MAX_PAYLOAD:
            raise UsageError(f"{verb}: the request is larger than 1 MiB", place=self.host)
        return number, request

    async def stream(self, verb: str, args: Mapping[str, Any]) -> Stream:
        """Start a streaming call."""
        number, request = self._begin(verb, args)
        stream = self._streams[number] = Stream(self, number)
        await self.send(number, "call", request)
        return stream

    async def close(self) -> None:
        """End the agent: its input is closed, it leaves at once."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.fail(lost(self.host, "the session is closed"))
        await self._channel.close()
