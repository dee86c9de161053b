"""Several logs of one server as one: by their stamps, each line marked with where it is from. Pure.

A line without a stamp stays behind the one above it, so that a traceback is not torn apart. Files
are read at their own speeds: a line waits until every other file has one, is read to its end, or
has said nothing for a while; what comes later still is shown where it comes. Nothing is lost.
"""

from __future__ import annotations

import re
import sys
from calendar import timegm
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from time import gmtime

from console.phases import parse

HOLD_S = 0.5
"""How long a line waits for older ones of other files that are read to their ends."""

STALL_S = 2.0
"""A file that has more to read and gives nothing for so long is not waited for."""

_STAMP = re.compile(rb"\[?(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_YEAR_S = 366 * 86_400


@lru_cache(maxsize=4096)
def _second(*parts: bytes) -> float | None:
    year, month, day, hour, minute, second = (int(part) for part in parts)
    try:
        return float(timegm((year, month, day, hour, minute, second)))
    except ValueError:  # no such day
        return None


def stamp_of(line: bytes) -> float | None:
    """When a line was written, in seconds on the log's own clock."""
    if line[:1] in (b"", b" ", b"\t"):
        return None
    match = _STAMP.match(line)
    if match is not None:
        *parts, fraction = match.groups()
        second = _second(*parts)
        return second + float(b"0." + fraction) if fraction and second is not None else second
    return parse(line[:512].decode("utf-8", "replace")).time


@dataclass(slots=True)
class _Record:
    """A line with a stamp and those without one that follow it."""

    stamp: float
    grown_at: float
    data: bytearray


@dataclass(slots=True)
class _Part:
    """One log. ``behind`` says that there is more of it to read at once."""

    label: bytes
    heard_at: float
    records: deque[_Record] = field(default_factory=deque)
    rest: bytes = b""
    shown: bytes = b""  # of ``rest``, where it stands as the live line
    told: bytes = b""  # of ``rest``, what was shown of it last
    grown_at: float = 0.0
    stamp: float = 0.0
    behind: bool = True
    ended: bool = False

    @property
    def held_bytes(self) -> int:
        return sum(len(record.data) for record in self.records) + len(self.rest)


class Merger:
    """Feed it pieces of each log, take merged lines. ``now`` are seconds on any one clock.

    A bar or another line that has not ended is given as a live one: behind a carriage return,
    without a line feed, to be drawn over.
    """

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._live: _Part | None = None
        self._full = 0.0

    def add(self, name: str, label: str, now: float) -> None:
        """One more log; lines of it begin with the label, as compose would mark them."""
        self._parts[name] = _Part(f"{label} | ".encode(), now)

    def feed(self, name: str, data: bytes, now: float, *, behind: bool = False) -> None:
        """Bytes of a log as they came; ``behind``: more is there to be read."""
        part = self._parts[name]
        part.heard_at, part.behind = now, behind
        if not data:
            return
        part.grown_at = now
        *lines, part.rest = (part.rest + data).split(b"\n")
        for line in lines:
            self._take_in(part, line, now)
        if b"\r" in part.rest:  # of a bar its newest state
            body = part.rest.rstrip(b"\r")
            part.rest = b"\r" + body.rpartition(b"\r")[2] + part.rest[len(body) :]

    def _take_in(self, part: _Part, line: bytes, now: float) -> None:
        text = line.rstrip(b"\r").rpartition(b"\r")[2]
        stamp = stamp_of(text)
        if stamp is not None and stamp >= _YEAR_S:
            self._full = stamp
        elif stamp is not None and self._full:  # vLLM's lines name no year
            stamp += timegm((gmtime(self._full).tm_year, 1, 1, 0, 0, 0))
        head = part.label
        if part is self._live and part.shown:
            head, part.shown = b"\r" + part.label, b""  # it ends the live line that is shown
        whole = head + text + b"\n"
        if part.records and stamp is None:
            part.records[-1].data += whole
            part.records[-1].grown_at = now
            return
        part.stamp = part.stamp if stamp is None else stamp
        part.records.append(_Record(part.stamp, now, bytearray(whole)))

    def end(self, name: str, now: float) -> None:
        """Nothing more will come of this log."""
        part = self._parts[name]
        if part.rest:
            self._take_in(part, part.rest, now)
            part.rest = b""
        part.ended = True

    def note(self, name: str, text: str, now: float) -> None:
        """Something happened to this log here."""
        part = self._parts[name]
        part.records.append(_Record(part.stamp, now, bytearray(f"── {text} ──\n".encode())))

    def held_bytes(self, name: str) -> int:
        """Bytes of a log that wait for others."""
        return self._parts[name].held_bytes

    def take(self, now: float, most: int = sys.maxsize, *, wait: bool = True) -> bytes:
        """The lines whose turn has come, in order; at most so many with a stamp.

        Without ``wait`` the turn of all that are here has come.
        """
        out = bytearray()
        for _ in range(most):
            part = self._due(now, wait)
            if part is None:
                return bytes(out + self._live_line(now))
            data = part.records.popleft().data
            if self._live is not None:
                if part is not self._live or not data.startswith(b"\r"):
                    out += b"\n"
                    self._live.shown = b""
                self._live = None
            out += data
        return bytes(out)

    def _due(self, now: float, wait: bool) -> _Part | None:
        """The log whose next record is the oldest, if it need not wait."""
        ready = [part for part in self._parts.values() if part.records]
        if not ready:
            return None
        first = min(ready, key=lambda part: part.records[0].stamp)
        if not wait:
            return first
        record = first.records[0]
        held = now - record.grown_at >= HOLD_S
        if len(first.records) == 1 and not first.ended and not held:
            return None  # more of the same record may be under way
        for part in self._parts.values():
            if part.records or part.ended:
                continue
            stalled = now - part.heard_at >= STALL_S
            if not stalled and (part.behind or not held):
                return None
        return first

    def _live_line(self, now: float) -> bytes:
        """The newest line that has not ended: a bar at once, another after a while."""
        open_ = [
            part
            for part in self._parts.values()
            if part.rest and not part.records and part.rest != part.told
            and (b"\r" in part.rest or part.shown or now - part.grown_at >= HOLD_S)
        ]  # fmt: skip
        if not open_:
            return b""
        part = max(open_, key=lambda part: part.grown_at)
        head = b""
        if self._live is not None and self._live is not part:
            self._live.shown, head = b"", b"\n"
        self._live, part.shown, part.told = part, part.rest, part.rest
        return head + b"\r" + part.label + part.rest.replace(b"\r", b"")


def labels(paths: Sequence[str]) -> list[str]:
    """Short names that tell files apart: stems where these differ, else the folders that differ."""
    split = [path.strip("/").split("/") for path in paths]
    stems = [parts[-1].rpartition(".")[0] or parts[-1] for parts in split]
    if len(set(stems)) < len(stems):
        length = max(len(parts) for parts in split)
        padded = [[""] * (length - len(parts)) + parts[:-1] + [stem]
                  for parts, stem in zip(split, stems, strict=True)]  # fmt: skip
        varied = [at for at in range(length) if len({parts[at] for parts in padded}) > 1]
        stems = ["-".join(parts[at] for at in varied if parts[at]) for parts in padded]
    words = [re.sub(r"[^\w.-]", "_", stem)[-24:] for stem in stems]
    width = max((len(word) + 4 * word[:1].isdigit() for word in words), default=0)
    return [(f"rank{word}" if word[:1].isdigit() else word or "log").ljust(width) for word in words]


def merge(logs: Iterable[tuple[str, bytes]]) -> bytes:
    """Whole logs, or ends of them, by label."""
    merger = Merger()
    for label, data in logs:
        merger.add(label, label, 0.0)
        merger.feed(label, data, 0.0)
        merger.end(label, 0.0)
    return merger.take(0.0)
