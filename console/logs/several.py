"""Reads several logs of one server from a host and merges them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from console.errors import HostError
from console.logs.follower import WRITTEN_BYTES, LogFollower
from console.logs.merge import Merger, labels, merge, stamp_of
from console.logs.store import EVENTS
from console.phases import PhaseMachine
from console.remote import MOST_HITS, Cursor, HostFileError, LogChunk, LogSource, Remote
from console.turns import TURNS

MOST = 64
"""Files that are followed at once; a node has 8 or 16 ranks."""

LOOK_S = 5.0
"""How often patterns are looked at again: ranks make their files when they start."""

HELD_BYTES = 1 << 20
"""Bytes of one file that may wait for the others; then it is not read on."""

TICK_S = 0.1

AT_ONCE = 500
"""Stamped lines given at a time: a few milliseconds of the event loop."""

_WILD = re.compile(r"[*?\[]")

Open = Callable[[LogSource], AsyncIterator[LogChunk]]


async def expand(remote: Remote, patterns: Sequence[str]) -> list[str]:
    """The files that patterns name on a host, in the order of their numbers.

    Raises:
        HostError: the link is lost.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        if not _WILD.search(pattern):
            found[pattern] = None
            continue
        first, *rest = PurePosixPath(pattern).parts
        paths = [first]
        for part in rest:
            paths = [path for folder in paths for path in await _inside(remote, folder, part)]
        found.update(dict.fromkeys(sorted(paths, key=_by_number)))
    return list(found)[:MOST]


async def _inside(remote: Remote, folder: str, part: str) -> list[str]:
    if not _WILD.search(part):
        return [f"{folder.rstrip('/')}/{part}"]
    try:
        entries = await remote.list_dir(folder)
    except HostFileError:
        return []
    names = [(entry.path, entry.path.rpartition("/")[2]) for entry in entries]
    return [
        path
        for path, name in names
        if fnmatchcase(name, part) and (not name.startswith(".") or part.startswith("."))
    ]


def _by_number(path: str) -> list[tuple[int, str]]:
    return [(int(word), "") if word.isdigit() else (-1, word) for word in re.split(r"(\d+)", path)]


async def parts_of(remote: Remote, source: LogSource) -> list[LogSource]:
    """The single logs that a source of several stands for, the server's own first."""
    own = LogSource(source.path, source.unit, source.container)
    first = [own] if own != LogSource() else []
    paths = await expand(remote, source.also)
    return first + [LogSource(path=path) for path in paths if path != source.path]


def name_of(source: LogSource) -> str:
    """What a source is called."""
    own = source.path or source.unit or source.container
    return " + ".join([*([own] if own else []), *source.also]) or "?"


class _Reading:
    """The logs that are read, each by a task of its own, into one merger."""

    def __init__(self, open_: Open) -> None:
        self.merger = Merger()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.lag: dict[str, int] = {}
        self.gap_bytes = 0
        self.unreadable: list[HostFileError] = []
        self.news = asyncio.Event()
        self._open = open_
        self._room = asyncio.Event()

    def begin(self, sources: Sequence[LogSource]) -> None:
        """Read those that are not read yet."""
        names = [name_of(source) for source in sources]
        for name, label, source in zip(names, labels(names), sources, strict=True):
            if name not in self.tasks:
                self.merger.add(name, label, time.monotonic())
                self.tasks[name] = asyncio.create_task(self._read(name, source))

    async def _read(self, name: str, source: LogSource) -> None:
        try:
            async for chunk in self._open(source):
                now = time.monotonic()
                self.gap_bytes += chunk.gap_bytes
                if chunk.event:
                    self.merger.note(
                        name, f"{name}: log {EVENTS.get(chunk.event, chunk.event)}", now
                    )
                self.lag[name] = chunk.lag_bytes
                self.merger.feed(name, chunk.data, now, behind=chunk.lag_bytes > 0)
                self.news.set()
                while self.merger.held_bytes(name) > HELD_BYTES:
                    self._room.clear()
                    await self._room.wait()
        except HostFileError as error:
            self.unreadable.append(error)
        finally:
            self.merger.end(name, time.monotonic())
            self.news.set()

    def take(self) -> LogChunk | None:
        """What is due now."""
        data = self.merger.take(time.monotonic(), AT_ONCE)
        self._room.set()
        gap, self.gap_bytes = self.gap_bytes, 0
        if not data and not gap:
            return None
        return LogChunk(data, Cursor(), gap, None, sum(self.lag.values()))

    @property
    def done(self) -> bool:
        """Whether every log was read to its end."""
        return all(task.done() for task in self.tasks.values())

    def failure(self) -> BaseException | None:
        """Why a reader ended that should not have."""
        ended = [task for task in self.tasks.values() if task.done() and not task.cancelled()]
        return next((task.exception() for task in ended if task.exception()), None)

    async def stop(self) -> None:
        """End every reader."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def tail_all(
    parts: Callable[[], Awaitable[Sequence[LogSource]]], open_: Open, *, follow: bool = True
) -> AsyncIterator[LogChunk]:
    """All logs as one. ``open_`` tails one of them, ``parts`` names them anew when asked.

    Raises:
        HostError: the link is lost and ``open_`` does not wait for it.
        HostFileError: none of them can be read.
    """
    reading, looked = _Reading(open_), -LOOK_S
    try:
        while True:
            if time.monotonic() - looked >= LOOK_S and (follow or not reading.tasks):
                with contextlib.suppress(*([HostError] if reading.tasks else [])):
                    reading.begin(await parts())
                looked = time.monotonic()
            done = reading.done
            if (chunk := reading.take()) is not None:
                yield chunk
                await TURNS.give()
                continue
            if (error := reading.failure()) is not None:
                raise error
            if done and not follow:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await reading.news.wait()
            reading.news.clear()
    finally:
        await reading.stop()
    if reading.unreadable and len(reading.unreadable) == len(reading.tasks):
        raise reading.unreadable[0]


async def tail(
    remote: Remote, source: LogSource, *, last_lines: int | None, follow: bool
) -> AsyncIterator[LogChunk]:
    """A server's log over one connection, be it one or several.

    The last lines of several are counted together; when followed, about so many.

    Raises:
        HostError: the link is lost.
        HostFileError: it cannot be read.
    """
    if not source.also:
        async for chunk in remote.tail(source, last_lines=last_lines, follow=follow):
            yield chunk
        return
    count = len(await parts_of(remote, source)) if follow else 1
    each = None if last_lines is None else -(-last_lines // max(1, count))

    def open_(one: LogSource) -> AsyncIterator[LogChunk]:
        return remote.tail(one, last_lines=each, follow=follow)

    held: list[bytes] = []
    async for chunk in tail_all(lambda: parts_of(remote, source), open_, follow=follow):
        if follow or last_lines is None:
            yield chunk
            continue
        held += chunk.data.splitlines(keepends=True)
        del held[: len(held) - last_lines]
    if held:
        yield LogChunk(b"".join(held), Cursor())


async def grep(
    remote: Remote, source: LogSource, pattern: str | Sequence[str], *, last: int | None = None
) -> AsyncIterator[tuple[int, str, bytes]]:
    """Lines that match, searched on the host: offset in their file, its label, line.

    ``pattern`` is a regular expression, or several words of which a line holds one. ``last``: the
    newest so many, else the first :data:`MOST_HITS`. Of several files they come in the order of
    their stamps.
    """
    most, newest = (MOST_HITS, False) if last is None else (last, True)
    if not source.also:
        async for offset, line in remote.grep(source, pattern, max_lines=most, newest=newest):
            yield offset, "", line
        return
    found: list[tuple[float, int, str, bytes]] = []
    parts = await parts_of(remote, source)
    for label, one in zip(labels([name_of(one) for one in parts]), parts, strict=True):
        stamp = 0.0
        with contextlib.suppress(HostFileError):
            async for offset, line in remote.grep(one, pattern, max_lines=most, newest=newest):
                stamp = stamp_of(line) or stamp
                found.append((stamp, offset, label, line))
    found.sort(key=lambda hit: hit[0])
    for _, offset, label, line in found[-most:] if newest else found[:most]:
        yield offset, label, line


class Followers(LogFollower):
    """Feeds a phase machine from several logs of one server; see :class:`LogFollower`."""

    def __init__(self, source: LogSource, engine: str, skip: int = 0, after: str = "") -> None:
        super().__init__(source, engine, skip, after)
        self._each: dict[str, LogFollower] = {}
        self._merger = Merger()
        self._parts: list[LogSource] = []
        self._looked = -LOOK_S

    @property
    def stand(self) -> Cursor | None:
        """How far the logs were read, all together."""
        stands = [one.stand for one in self._each.values() if one.stand is not None]
        if not stands:
            return None
        return Cursor(
            offset=sum(stand.offset for stand in stands),
            generation=sum(stand.generation for stand in stands),
            journal=" ".join(stand.journal or "" for stand in stands),
        )

    async def _look(self, remote: Remote) -> list[LogFollower]:
        if time.monotonic() - self._looked >= LOOK_S:
            self._parts, self._looked = await parts_of(remote, self.source), time.monotonic()
        names = [name_of(source) for source in self._parts]
        for name, label, source in zip(names, labels(names), self._parts, strict=True):
            if name not in self._each:
                self._merger.add(name, label, 0.0)
                own = source.path is None or source.path == self.source.path
                skip, after = (self.skip, self.after) if own else (0, "")
                self._each[name] = LogFollower(source, self._engine, skip, after)
        return [self._each[name_of(source)] for source in self._parts]

    async def written(self, remote: Remote) -> bytes:
        """What the present run has written to all of them, merged; of each the end."""
        followers = await self._look(remote)
        ends: list[bytes] = []
        for one in followers:
            try:
                data = await one.written(remote)
            except HostFileError:
                data = b""
            ends.append(data[-WRITTEN_BYTES // max(1, len(followers)) :])
        names = labels([name_of(one.source) for one in followers])
        return merge(zip(names, ends, strict=True))

    async def update(self, remote: Remote, now: float) -> None:
        """Read what was added to each, by time."""
        times: list[float] = []
        for at, one in enumerate(await self._look(remote)):
            before, name = one.machine, name_of(one.source)

            def take(data: bytes, name: str = name) -> None:
                self._merger.feed(name, data, now)

            grew_at = await one.read_on(remote, take)
            if one.machine is not before and at == 0:  # the server's own log began anew
                self.machine = PhaseMachine(self._engine)
            times += [] if grew_at is None else [grew_at]
        self.missing = bool(self._each) and all(one.missing for one in self._each.values())
        self._feed(self._merger.take(now, wait=False), now)
        self.silent_s = self._silence.seconds(now, max(times, default=None))
