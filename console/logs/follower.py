"""A server's log read as it grows: phases, silence, and where reading stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from console.model import Phase, Run, Server
from console.phases import PhaseMachine
from console.phases.events import ENDS
from console.remote import Cursor, HostFileError, LogSource, Remote
from console.text import clean
from console.turns import TURNS
from console.watch.silence import Silence, is_work

FIRST_LINES = 20_000
"""Of a log longer than :data:`WHOLE_BYTES`, so many last lines are read at first."""
WHOLE_BYTES = 16 << 20
BEHIND_BYTES = 1 << 20
LATEST_LINES = 2000
"""A server that serves and writes more than that between two looks is read at its end only: its
last lines say whether it still does, and the operator's link is for the log on the screen."""
WRITTEN_BYTES = 4 << 20
_LINE_BYTES = 64 * 1024
_FIELD = re.compile(r"\{(\w+)\}")


def source_of(server: Server, run: Run | None) -> LogSource | None:
    """Where a server writes: its run record says, else the configuration; ``None``: nobody does."""
    own = _own(server, run)
    if not server.logs:
        return own
    words = {"server": server.name, **({"run": run.run_id} if run else {})}
    also = (_FIELD.sub(lambda field: words.get(field[1], "*"), path) for path in server.logs)
    return replace(own or LogSource(), also=tuple(also))


def _own(server: Server, run: Run | None) -> LogSource | None:
    """The log that the server's output goes to."""
    if run is not None and run.log:
        return LogSource(path=run.log)
    if server.runner.kind == "systemd":
        return LogSource(unit=server.runner.unit)
    if server.runner.kind == "docker":
        return LogSource(container=server.runner.container)
    if server.log and "{" not in server.log:
        return LogSource(path=server.log)
    return None


async def _read(remote: Remote, path: str, begin: int, end: int) -> bytes:
    out = bytearray()
    at = max(begin, end - WRITTEN_BYTES)
    while at < end:
        block = await remote.read_file(path, offset=at, limit=1 << 20)
        if not block:
            break
        out += block
        at += len(block)
    return bytes(out)


class LogFollower:
    """Feeds a phase machine from a log on a host; each :meth:`update` reads what is new.

    ``silent_s`` is how long the server has written nothing of its own, by the host's clock (lines
    that only record a health check or a look at its metrics do not count); ``None``: unknown.
    ``skip`` bytes at its start are of earlier runs that wrote to the same file, as is what a
    journal holds up to ``after``.
    """

    def __init__(self, source: LogSource, engine: str, skip: int = 0, after: str = "") -> None:
        self.source = source
        self.skip = skip
        self.after = after
        self.machine = PhaseMachine(engine)
        self.silent_s: float | None = None
        self.missing = False
        self._engine = engine
        self._cursor = Cursor(journal=after) if after else None
        self._rest = b""
        self._silence = Silence()

    @property
    def stand(self) -> Cursor | None:
        """How far the log was read."""
        return self._cursor

    async def written(self, remote: Remote) -> bytes:
        """What the present run has written, at most its last 4 MiB.

        Raises:
            HostError: the link is lost.
            HostFileError: it cannot be read.
        """
        start, last = Cursor(journal=self.after) if self.after else None, None
        if self.source.path is None:
            last = None if start else FIRST_LINES
        else:
            (info,) = await remote.stat([self.source.path])
            begin = self.skip if self.skip < info.size_bytes else 0
            return await _read(remote, self.source.path, begin, info.size_bytes)
        out = bytearray()
        async for chunk in remote.tail(self.source, cursor=start, last_lines=last, follow=False):
            out += chunk.data
            del out[:-WRITTEN_BYTES]
        return bytes(out)

    @property
    def phase(self) -> Phase | None:
        """The phase the log tells of, or ``None`` where it tells nothing yet."""
        return self.machine.phase if self.machine.steps else None

    async def update(self, remote: Remote, now: float) -> None:
        """Read what was added. ``now`` is the host's clock, seconds since 1970.

        Raises:
            HostError: the link is lost; the next update goes on where this one stood.
        """
        grew_at = await self.read_on(remote, lambda data: self._feed(data, now))
        self.silent_s = None if self.missing else self._silence.seconds(now, grew_at)

    async def read_on(self, remote: Remote, take: Callable[[bytes], None]) -> float | None:
        """Give ``take`` what was added; the time of the file's last change, where it is a file.

        Raises:
            HostError: the link is lost.
        """
        last: int | None = None
        start = self._cursor
        grew_at: float | None = None
        if self.source.path is not None:
            (info,) = await remote.stat([self.source.path])
            self.missing = info.kind == "missing"
            if self.missing:
                return None
            grew_at = info.mtime
            if self._cursor is None and info.size_bytes > WHOLE_BYTES:
                last = FIRST_LINES
            elif start and self._floods(info.size_bytes - start.offset):
                start, last, self._rest = None, LATEST_LINES, b""
        elif self._cursor is None:
            last = FIRST_LINES
        try:
            async for chunk in remote.tail(
                self.source, cursor=start, last_lines=last, follow=False
            ):
                if chunk.event in ("truncated", "refilled"):
                    self.machine = PhaseMachine(self._engine)
                    self._rest, self.skip = b"", 0
                early = max(0, self.skip - (chunk.cursor.offset - len(chunk.data)))
                take(chunk.data[early:])
                self._cursor = chunk.cursor
                await TURNS.give()
        except HostFileError as error:
            if not error.missing:
                raise
            self.missing = True
        return grew_at

    def _floods(self, grown_bytes: int) -> bool:
        """Whether a server that serves writes more than is worth reading."""
        return grown_bytes > BEHIND_BYTES and self.phase is Phase.READY

    def _last(self, lines: list[bytes]) -> list[bytes]:
        """Of what a server writes while it serves: its last stamped line of work, and the rest.

        A busy one writes tens of thousands a second, and no other of them tells anything.
        """
        at = len(lines) - 1
        while at > 0 and not is_work(clean(lines[at], limit=_LINE_BYTES)):
            at -= 1
        self.machine.skip(max(0, at))
        return lines[max(0, at) :]

    def _feed(self, data: bytes, now: float) -> None:
        data = self._rest + data
        *whole, self._rest = data.split(b"\n")
        if self.machine.phase is Phase.READY and not any(end in data for end in ENDS):
            whole = self._last(whole)
        for line in whole:
            text = clean(line.rsplit(b"\r", 1)[-1], limit=_LINE_BYTES)
            self._silence.take(text, now)
            self.machine.feed(text, now)
        if b"\r" in self._rest:  # a progress bar redraws its line and ends it only when it is full
            *_, state, rest = self._rest.split(b"\r")
            if state:
                self._silence.take("", now)
                self.machine.feed(clean(state, limit=_LINE_BYTES), now)
            self._rest = rest
        if len(self._rest) > _LINE_BYTES:
            self._rest = self._rest[-_LINE_BYTES:]
