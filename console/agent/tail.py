"""The tail verb: a file, a unit's journal or a container's log, in pieces with a cursor each."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import subprocess
from typing import Any, Iterator

from console.agent import child
from console.agent.calls import STREAMED, Call, VerbError, Verbs
from console.agent.files import absolute
from console.agent.follow import Follower, Piece

POLL_S = 0.1
"""Seconds between two looks at a quiet file; inotify does not work on NFS and overlays."""

_STAMP = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+)$")
"""Before each line of a container's log, and never before what docker says itself."""


def tail(call: Call) -> Any:
    """The verb."""
    source = call.args.get("source")
    if not isinstance(source, dict):
        raise VerbError("usage", "source must be an object")
    if source.get("path"):
        return _tail_file(call, absolute(str(source["path"])))
    if source.get("unit"):
        return _tail_command(call, Journal(str(source["unit"])))
    if source.get("container"):
        return _tail_command(call, Docker(str(source["container"])))
    raise VerbError("usage", "a log source is a path, a unit or a container")


def _cursor(call: Call) -> dict[str, Any] | None:
    cursor = call.args.get("cursor")
    if cursor is None:
        return None
    numbers = ("device", "inode", "generation", "offset", "head_len")
    if not isinstance(cursor, dict) or any(
        not isinstance(cursor.get(name), int) or cursor[name] < 0 for name in numbers
    ):
        raise VerbError("usage", "the cursor is damaged")
    if cursor["head_len"] > 4096 or not isinstance(cursor.get("head_sha"), str):
        raise VerbError("usage", "the cursor is damaged")
    return cursor


def _lines(call: Call) -> int | None:
    return None if call.args.get("last_lines") is None else call.number("last_lines")


def _tail_file(call: Call, path: str) -> Any:
    follow = bool(call.args.get("follow", True))
    follower = Follower(path)
    try:
        follower.begin(_cursor(call), _lines(call))
        if follower.missing and not follow:
            raise VerbError("os", "{}: No such file or directory".format(path), errno=2)
        told = not follow
        while not call.cancelled.is_set():
            most = call.piece
            piece = follower.step(follow=follow, most=most)
            if piece is None and not told:
                piece = Piece(b"")  # nothing yet: say where, or a lost link loses the place
            told = True
            if piece is None:
                if not follow:
                    break
                call.cancelled.wait(POLL_S)
                continue
            meta = {
                "cursor": follower.cursor(),
                "gap_bytes": piece.gap,
                "event": piece.event,
                "lag_bytes": follower.lag,
            }
            call.send(piece.data, meta, most)
    finally:
        follower.close()
    return STREAMED


class Journal:
    """A unit's log as ``journalctl`` prints it; the cursor is journald's own."""

    def __init__(self, unit: str) -> None:
        if unit.startswith("-") or not unit:
            raise VerbError("usage", "{!r} cannot be a unit".format(unit[:80]))
        self.unit = unit
        self._expect: str | None = None

    def command(self, cursor: str | None, lines: int | None, follow: bool) -> list[str]:
        """The program to read from. Starting *at* the cursor shows whether it still exists."""
        words = ["journalctl", "--output=json", "--no-pager", "--quiet", "--unit=" + self.unit]
        if os.geteuid() != 0:
            words[-1:] = ["--user-unit=" + self.unit, "--unit=" + self.unit]
        if cursor:
            words.append("--cursor=" + cursor)
            self._expect = cursor
        words.append("--lines={}".format(lines if lines is not None and not cursor else "all"))
        return words + (["--follow", "--no-tail"] if follow and lines is None else
                        ["--follow"] if follow else [])  # fmt: skip

    def parse(self, line: bytes) -> tuple[bytes, str, str | None] | None:
        """(text, cursor, event) of one entry; ``None`` for what was seen before.

        Raises ``ValueError`` for what is no entry but journalctl's own word.
        """
        try:
            entry = json.loads(line.decode("utf-8", "replace"))
            cursor = str(entry["__CURSOR"])
        except (KeyError, TypeError):
            return None
        event = None
        if self._expect is not None:
            expected, self._expect = self._expect, None
            if cursor == expected:
                return None
            event = "rotated"  # the journal was vacuumed past the cursor
        message = entry.get("MESSAGE")
        if isinstance(message, list):  # not UTF-8: its bytes
            text = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256)
        elif isinstance(message, str):
            text = message.encode("utf-8", "replace")
        else:
            text = b"[an entry too large for the journal's output]"
        return text + b"\n", cursor, event


class Docker:
    """A container's log; the cursor is the last timestamp and how many lines bore it."""

    def __init__(self, name: str) -> None:
        if name.startswith("-") or not name:
            raise VerbError("usage", "{!r} cannot be a container".format(name[:80]))
        self.name = name
        self._last, self._count, self._skip = "", 0, 0

    def command(self, cursor: str | None, lines: int | None, follow: bool) -> list[str]:
        """The program to read from; ``--since`` includes its moment, so lines are counted."""
        words = ["docker", "logs", "--timestamps"]
        if follow:
            words.append("--follow")
        if cursor:
            self._last, _, count = cursor.partition("#")
            self._skip = int(count) if count.isdigit() else 0
            words.append("--since=" + self._last)
        elif lines is not None:
            words.append("--tail={}".format(lines))
        return [*words, self.name]

    def parse(self, line: bytes) -> tuple[bytes, str, str | None] | None:
        """(text, cursor, event) of one line; ``None`` for what was seen before.

        Raises ``ValueError`` for what is no line of the log but docker's own word.
        """
        stamp, _, text = line.partition(b" ")
        if not _STAMP.match(stamp):
            raise ValueError("docker speaks for itself")
        when = stamp.decode("ascii", "replace")
        if when != self._last:
            if when > self._last:
                self._skip = 0
            self._last, self._count = when, 0
        self._count += 1
        if self._skip:
            self._skip -= 1
            return None
        return text + b"\n", "{}#{}".format(when, self._count), None


def _tail_command(call: Call, source: Journal | Docker) -> Any:
    cursor = _cursor(call)
    follow = bool(call.args.get("follow", True))
    words = source.command(cursor.get("journal") if cursor else None, _lines(call), follow)
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise VerbError(
            "os", "{}: {}".format(words[0], error.strerror), errno=error.errno
        ) from None
    child.keep(process)
    said = ""
    place: dict[str, Any] = {
        "device": 0,
        "inode": 0,
        "generation": 0,
        "offset": 0,
        "head_sha": "",
        "head_len": 0,
    }
    try:
        for lines in _batches(call, process):
            text, event = b"", None
            for line in lines:
                try:
                    entry = source.parse(line)
                except ValueError:
                    said = line[:500].decode("utf-8", "replace").strip() or said
                    continue
                if entry is None:
                    continue
                text += entry[0]
                place = dict(place, journal=entry[1])
                event = event or entry[2]
            if text:
                place["offset"] += len(text)
                call.send(text, {"cursor": dict(place), "event": event})
        if said and not call.cancelled.is_set() and process.wait():
            raise VerbError("os", "{}: {}".format(words[0], said), errno=_errno_of(said))
    finally:
        child.end(process)
    return STREAMED


def _errno_of(said: str) -> int | None:
    """What a program's own words mean, where callers care."""
    return errno.ENOENT if "No such container" in said else None


def _batches(call: Call, process: subprocess.Popen[bytes]) -> Iterator[list[bytes]]:
    """Whole lines of a program's output, as they come, a few kilobytes at a time."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    rest = b""
    while not call.cancelled.is_set():
        if not select.select([descriptor], [], [], 0.5)[0]:
            continue
        data = os.read(descriptor, 12 * 1024)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


VERBS: Verbs = {"tail": tail}
