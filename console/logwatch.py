"""Read a server's log for its phases: each look reads on from where the last one ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from console.errors import SpecopsError
from console.model import Diagnosis, Phase, PhaseSpan
from console.phases import PhaseMachine
from console.remote import Cursor, LogSource, Remote

WHOLE_BYTES = 4 << 20
"""A log up to this size is read from its start; of a larger one its head and its end."""
HEAD_BYTES = 1 << 20
END_LINES = 2000
DIAGNOSED_BYTES = 8 << 20
"""Of a failed server's log, so much of the end is diagnosed: the last start is in it."""
KEPT_BYTES = 1 << 20
"""Of a unit's journal, which has no size to seek in, so much of the end is kept for a diagnosis."""


class LogWatch:
    """The phases of one server's log, and when it last grew."""

    def __init__(self) -> None:
        self._source: LogSource | None = None
        self._machine: PhaseMachine | None = None
        self._cursor: Cursor | None = None
        self._rest = b""
        self._end = b""
        self._grew_at: float | None = None
        self._diagnosis: tuple[object, Diagnosis] | None = None
        self.missing = True

    @property
    def phase(self) -> Phase:
        """Where the log says the server is; ``STOPPED`` where there is no log."""
        if self._machine is None or self.missing:
            return Phase.STOPPED
        return self._machine.phase

    @property
    def machine(self) -> PhaseMachine | None:
        """The machine itself, for progress and stalls."""
        return self._machine

    @property
    def spans(self) -> tuple[PhaseSpan, ...]:
        """The phases so far."""
        return tuple(self._machine.spans) if self._machine else ()

    def silent_s(self, now: float) -> float | None:
        """Seconds since the log grew, by the host's clock; ``None`` where that was never seen."""
        return None if self._grew_at is None else max(0.0, now - self._grew_at)

    async def read(self, remote: Remote, source: LogSource, engine: str | None, now: float) -> None:
        """Read what is new.

        Raises:
            HostError: the link to the host is lost.
        """
        if source != self._source or self._machine is None:
            self.__init__()  # type: ignore[misc]  # another log: forget everything
            self._source, self._machine = source, PhaseMachine(engine)
        if source.path is not None:
            (info,) = await remote.stat([source.path])
            self.missing = info.kind != "file"
            if self.missing:
                return
            self._grew_at = info.mtime
            if self._cursor is None and info.size_bytes > WHOLE_BYTES:
                head = await remote.read_file(source.path, limit=HEAD_BYTES)
                self._take(head.rpartition(b"\n")[0] + b"\n", now)
                await self._follow(remote, source, now, END_LINES)
                return
        await self._follow(remote, source, now, None if source.path else END_LINES)

    async def _follow(
        self, remote: Remote, source: LogSource, now: float, last_lines: int | None
    ) -> None:
        first = self._cursor is None
        try:
            async for chunk in remote.tail(
                source,
                cursor=self._cursor,
                last_lines=last_lines if first else None,
                follow=False,
            ):
                self.missing = False
                if chunk.data:
                    self._take(chunk.data, now)
                    if source.path is None:
                        self._grew_at = now
                self._cursor = chunk.cursor
        except SpecopsError as error:
            if error.code in ("unreachable", "auth-failed", "no-agent"):
                raise
            self.missing = True  # no such unit or container, or not ours to read

    def _take(self, data: bytes, now: float) -> None:
        assert self._machine is not None
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._machine.feed(line.decode("utf-8", "backslashreplace"), now)
        if self._rest and b"\r" in self._rest:  # a bar under way: its last state is progress
            self._machine.feed(self._rest.decode("utf-8", "backslashreplace"), now)
            self._rest = b""
        if self._source is not None and self._source.path is None:
            self._end = (self._end + data)[-KEPT_BYTES:]

    async def diagnosis(self, remote: Remote) -> Diagnosis | None:
        """What the log says went wrong; read and judged once per state of the log.

        Raises:
            HostError: the link to the host is lost.
        """
        from console.diagnosis import diagnose  # noqa: PLC0415 - the rules are read on first use

        if self._source is None or self.missing:
            return None
        key = (self._cursor, self._grew_at)
        if self._diagnosis is not None and self._diagnosis[0] == key:
            return self._diagnosis[1]
        data: Sequence[bytes] = [self._end]
        if self._source.path is not None:
            data = await read_end(remote, self._source.path)
        found = await asyncio.to_thread(diagnose, list(data))
        self._diagnosis = (key, found)
        return found


async def read_end(remote: Remote, path: str, limit: int = DIAGNOSED_BYTES) -> list[bytes]:
    """The end of a file on a host, in blocks that the agent may send at once."""
    (info,) = await remote.stat([path])
    at = max(0, info.size_bytes - limit)
    out: list[bytes] = []
    while block := await remote.read_file(path, offset=at, limit=1 << 20):
        out.append(block)
        at += len(block)
    return out
