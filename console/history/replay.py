"""Play a recording: the same views and logs, at any speed, from any moment, with nothing to press.

:class:`Replay` stands in for the fleet and for the actions, so every screen works unchanged; every
change is refused.
"""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from console.actions.codec import decode
from console.config import Config
from console.errors import ConfigError, Refused, SpecopsError
from console.history.recording import FORMAT
from console.model import Finding, Host, HostState, HostView, Plan, Preset, StepResult
from console.planning.measuring import Load
from console.remote import Cursor, LogChunk, LogSource
from console.screens.ports import Output

if TYPE_CHECKING:
    from console.bench import Level

TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a recording after the header."""

    t: float
    host: str
    data: Mapping[str, Any]


def read_recording(path: Path) -> tuple[float, list[Frame]]:
    """When a recording began (seconds since 1970) and its frames in order.

    A last line cut off by a crash is left out.

    Raises:
        ConfigError: not a recording, of a newer format, or damaged; ``place`` is ``file:line``.
    """
    try:
        raw = path.read_bytes()
        data = _gunzip(raw) if raw[:2] == b"\x1f\x8b" else raw
    except OSError as error:
        raise ConfigError(error.strerror or str(error), place=str(path)) from error
    began, frames = 0.0, []
    rows = data.split(b"\n")
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        try:
            document = json.loads(row)
            if number == 1:
                began = _header(document, path)
            else:
                frames.append(Frame(float(document["t"]), str(document["host"]), document))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(rows):  # no line feed after it: the console died while writing
                break
            raise ConfigError("not a recording", place=f"{path}:{number}") from error
    if not frames:
        raise ConfigError("holds no frames", place=str(path))
    return began, frames


def _gunzip(raw: bytes) -> bytes:
    """As much as can be unpacked: a file that was never closed lacks its end."""
    import zlib  # noqa: PLC0415 - only compressed recordings need it

    unpacker = zlib.decompressobj(wbits=31)
    try:
        return unpacker.decompress(raw)
    except zlib.error as error:
        raise OSError(0, f"damaged: {error}") from error


def _header(document: Mapping[str, Any], path: Path) -> float:
    if document.get("kind") != "specops-recording":
        raise ConfigError("not a recording of specops", place=f"{path}:1")
    if document["format"] > FORMAT:
        hint = "update specops"
        raise ConfigError(f"format {document['format']} is newer", place=f"{path}:1", hint=hint)
    return float(document["began_at"])


class Replay:
    """A recording as the fleet and as the actions of the console.

    :meth:`now` is the clock to give the console, so that every age is what it was then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.began_at, self._frames = read_recording(path)
        self._times = [frame.t for frame in self._frames]
        self.duration = self._times[-1]
        self.position = 0.0
        self.speed = 1.0
        self.paused = False
        self._next = 0
        self._processes: dict[str, dict[int, Any]] = {}
        self._views: dict[str, HostView] = {}
        self._hosts: dict[str, Host] = {}
        self._callbacks: list[Callable[[HostView], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._apply(self._times[0], publish=False)

    # -- the fleet

    @property
    def views(self) -> Mapping[str, HostView]:
        """The view of each host at the position."""
        return self._views

    def subscribe(self, callback: Callable[[HostView], None]) -> Callable[[], None]:
        """Call back with each view as the position passes it; returns what ends it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def start(self) -> None:
        """Begin to play."""
        self._task = asyncio.create_task(self._play(), name="replay")

    async def stop(self) -> None:
        """Stop playing."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def refresh(self, host: str | None = None) -> None:
        """Publish what is there again."""
        for name, view in self._views.items():
            if host in (None, name):
                self._publish(view)

    def configure(self, config: Config) -> None:
        """Nothing: a recording has the hosts that it has."""

    # -- the player

    def now(self) -> float:
        """The time at the position, in seconds since 1970."""
        return self.began_at + self.position

    def status(self) -> str:
        """Position, length, and how it goes: ``0:12 of 1:40 ▶ 2x``."""
        at, end = (f"{int(t) // 60}:{int(t) % 60:02}" for t in (self.position, self.duration))
        ended = self.position >= self.duration
        sign = "■" if ended else "‖" if self.paused else "▶"
        return f"{at} of {end} {sign} {self.speed:g}x"

    def hosts(self) -> dict[str, Host]:
        """Every host that was recorded."""
        found = self._hosts
        for frame in () if found else self._frames:
            if "view" in frame.data and frame.host not in found:
                place = f"{self.path}: {frame.host}"
                found[frame.host] = decode(Host, frame.data["view"]["host"], place=place)
        return dict(found)

    def seek(self, position: float) -> None:
        """Go to a moment, in seconds from the start; clipped to the recording."""
        position = min(max(position, 0.0), self.duration)
        self._next = self._key_before(position)
        self._processes.clear()
        self._views = {name: HostView(host, HostState.CONNECTING)
                       for name, host in self.hosts().items()}  # fmt: skip
        self._apply(position, publish=False)
        self.position = position
        self._moved.set()
        self.refresh()

    def pause(self, paused: bool) -> None:
        """Hold, or go on."""
        self.paused = paused

    async def _play(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            if not self.paused and self.position < self.duration:
                self._apply(self.position + (now - last) * self.speed, publish=True)
            last = now

    def _key_before(self, position: float) -> int:
        """The first frame to read so that every host is whole at a position."""
        end = bisect_right(self._times, position)
        wanted = {frame.host for frame in self._frames[:end]}
        for index in range(end - 1, -1, -1):
            frame = self._frames[index]
            if frame.data.get("key"):
                wanted.discard(frame.host)
            if not wanted:
                return index
        return 0

    def _apply(self, position: float, *, publish: bool) -> None:
        self.position = min(position, self.duration)
        end = bisect_right(self._times, self.position)
        while self._next < end:
            frame = self._frames[self._next]
            self._next += 1
            if "view" in frame.data:
                view = self._view(frame)
                self._views[frame.host] = view
                if publish:
                    self._publish(view)

    def _view(self, frame: Frame) -> HostView:
        processes = {} if frame.data["key"] else self._processes.setdefault(frame.host, {})
        for pid in frame.data["gone"]:
            processes.pop(pid, None)
        processes.update({p["id"]["pid"]: p for p in frame.data["processes"]})
        self._processes[frame.host] = processes
        data = dict(frame.data["view"])
        if data.get("snapshot"):
            data["snapshot"] = {**data["snapshot"], "processes": list(processes.values())}
        try:
            return decode(HostView, data, place=f"{self.path}: {frame.host}")
        except SpecopsError as error:
            raise ConfigError(error.message, place=error.place) from error

    def _publish(self, view: HostView) -> None:
        for callback in list(self._callbacks):
            callback(view)

    # -- the actions, all refused

    def _refuse(self) -> NoReturn:
        raise Refused("this is a recording", place=str(self.path), hint="nothing can be changed")

    async def plan(self, action: str, host: str, server: str | None = None, **options: Any) -> Plan:
        """Refused."""
        del action, host, server, options
        self._refuse()

    def execute(self, plan: Plan) -> AsyncIterator[StepResult]:
        """Refused."""
        del plan
        self._refuse()

    def preflight_stream(self, plan: Plan) -> AsyncIterator[Finding]:
        """Refused."""
        del plan
        self._refuse()

    def bench(self, server: str, load: Load) -> AsyncIterator[Level]:
        """Refused."""
        del server, load
        self._refuse()

    async def check_preset(self, server: str, preset: Preset) -> tuple[Finding, ...]:
        """Refused."""
        del server, preset
        self._refuse()

    async def run_command(self, line: str) -> Output:
        """Refused."""
        del line
        self._refuse()

    async def audit(self, limit: int = 500) -> list[Mapping[str, Any]]:
        """Nothing: what was done is in the audit file of the console that did it."""
        del limit
        return []

    async def tail(
        self, host: str, source: LogSource, *, last_lines: int | None = None
    ) -> AsyncIterator[LogChunk]:
        """The log as it was followed, up to the position and on with it."""
        del last_lines
        name = source.path or source.unit or source.container or ""
        at = 0
        while True:
            end = bisect_right(self._times, self.position)
            for frame in self._frames[at:end]:
                if frame.host == host and frame.data.get("log") == name:
                    data = str(frame.data["data"]).encode()
                    yield LogChunk(data, Cursor(), gap_bytes=int(frame.data.get("gap", 0)))
            at = max(at, end)
            await asyncio.sleep(TICK_S)
