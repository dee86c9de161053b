"""Follows one log file through everything that happens to log files. Knows nothing of the wire.

A place in a file is device, inode, a generation, an offset and the hash of the file's first bytes:
inode numbers are reused at once (ext4), and a truncated file may have grown past the old offset.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from console.agent import rotated, wire
from console.agent.rotated import HEAD, digest

GUARD = 64
"""Bytes before the offset that must still be there; catches a refill with the same beginning."""
RING = 4 << 20
"""Bytes that a reader may fall behind while following before some are skipped."""
KEPT = 1 << 20
"""Bytes kept when some are skipped."""
QUIET_S = 1.0
"""Seconds an old file must be quiet before its successor is read."""
BACK = 64 << 20
"""Bytes searched backwards for the last lines."""


class Piece(NamedTuple):
    """What to send: bytes, what happened before them, how many bytes were skipped before them."""

    data: bytes
    event: str | None = None
    gap: int = 0


class Follower:
    """A place in a log file; ``step`` returns the next piece or ``None`` when there is nothing new.

    Raises ``OSError`` when the file cannot be read for another reason than not being there.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.device = self.inode = self.generation = self.offset = self.head_len = 0
        self.head_sha = ""
        self.missing = False
        self._guard = b""
        self._old: tuple[int, int] | None = None  # an older file to finish: descriptor, offset
        self._next: list[int] = []  # those to read after it
        self._event = "rotated"
        self._quiet_since: float | None = None
        self._allowed = RING
        self._size = 0
        self._pending: tuple[str, int] | None = None

    # ---- starting

    def begin(self, cursor: dict[str, Any] | None, last_lines: int | None) -> None:
        """Open the file at a cursor, at its last lines, or at its start."""
        if not self._open(self.path):
            self.missing = True
            self._pending = ("missing", 0)
            if cursor:
                self.generation = cursor["generation"]
            return
        if cursor and cursor["inode"]:
            self._resume(cursor)
        elif last_lines is not None:
            self._place(last_start(self.fd, last_lines))
        self._allowed = RING + max(0, self._size - self.offset)

    def _open(self, path: str) -> bool:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return False
        self._adopt(descriptor)
        return True

    def _adopt(self, descriptor: int) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        info = os.fstat(descriptor)
        self.fd, self.device, self.inode = descriptor, info.st_dev, info.st_ino
        self._size = info.st_size
        self._quiet_since = None
        self._place(0)
        self.missing = False

    def _place(self, offset: int) -> None:
        """Stand at an offset: take the hash of the beginning and the bytes before it."""
        self.offset = offset
        head = os.pread(self.fd, HEAD, 0)
        self.head_len, self.head_sha = len(head), digest(head)
        start = max(0, offset - GUARD)
        self._guard = os.pread(self.fd, offset - start, start)

    def _resume(self, cursor: dict[str, Any]) -> None:
        """Go on exactly where a reader left off, in this file or in its rotated predecessor."""
        self.generation = cursor["generation"]
        fits = rotated.fits(self.fd, cursor)
        if (self.device, self.inode) == (cursor["device"], cursor["inode"]):
            if fits:
                self._place(cursor["offset"])
                return
            event = "truncated" if self._size < cursor["offset"] else "refilled"
        else:
            event = "rotated"
        self.generation += 1
        self._read_first(rotated.chain(self.path, cursor, b"", self.fd), cursor["offset"], event)

    def _read_first(self, files: list[int], offset: int, event: str, lost: int = 0) -> None:
        """Read older files before this one, the first from an offset; then say what happened."""
        self._event, self._next = event, files
        if files:
            self._old = (self._next.pop(0), offset)
        else:
            self._pending = (event, lost)

    # ---- following

    def cursor(self) -> dict[str, Any]:
        """Where this stands, for resuming later."""
        place = {
            "device": self.device,
            "inode": self.inode,
            "generation": self.generation,
            "offset": self.offset,
            "head_sha": self.head_sha,
            "head_len": self.head_len,
            "journal": None,
        }
        if self._old is not None:
            info = os.fstat(self._old[0])
            head = os.pread(self._old[0], HEAD, 0)
            place.update(
                device=info.st_dev,
                inode=info.st_ino,
                offset=self._old[1],
                head_sha=digest(head),
                head_len=len(head),
                generation=max(0, self.generation - 1),
            )
        return place

    @property
    def lag(self) -> int:
        """Bytes written but not read yet."""
        return max(0, self._size - self.offset)

    def step(self, *, follow: bool = True, most: int = wire.CHUNK) -> Piece | None:
        """The next piece of at most so many bytes, or ``None`` when there is nothing new."""
        if self._old is not None:
            piece = self._finish_old(most)
            if piece is not None:
                return piece
        if self._pending is not None:
            (event, gap), self._pending = self._pending, None
            return Piece(b"", event, gap)
        if self.fd < 0:
            return self._look_again()
        self._size = os.fstat(self.fd).st_size
        if follow and self._size - self.offset > self._allowed:
            return self._skip()
        data = os.pread(self.fd, most, self.offset)
        what = self._changed(len(data))
        if what is not None:
            self._start_over(what)
            return self.step(follow=follow, most=most)
        if data:
            return self._advance(data)
        return self._look_again() if follow else None

    def _finish_old(self, most: int) -> Piece | None:
        assert self._old is not None
        descriptor, offset = self._old
        data = os.pread(descriptor, most, offset)
        if data:
            self._old = (descriptor, offset + len(data))
            return Piece(data)
        os.close(descriptor)
        self._old = None
        if self._next:
            self._old = (self._next.pop(0), 0)
            return Piece(b"", "rotated")
        self._pending = (self._event, 0)
        return None

    def _changed(self, read: int) -> str | None:
        """Whether the file was emptied since; asked after reading, so that what was read counts."""
        size = os.fstat(self.fd).st_size
        if size < self.offset + read:
            return "truncated"
        head = os.pread(self.fd, self.head_len, 0)
        start = self.offset - len(self._guard)
        same = digest(head) == self.head_sha and len(head) == self.head_len
        if same and os.pread(self.fd, len(self._guard), start) == self._guard:
            return None
        return "refilled"

    def _start_over(self, event: str) -> None:
        """The file was emptied in place; what was not read yet may be in a copy beside it."""
        unread = max(0, self._size - self.offset) if event == "truncated" else 0
        offset = self.offset
        files = rotated.chain(self.path, self.cursor(), self._guard, self.fd)
        self.generation += 1
        self._place(0)
        self._read_first(files, offset, event, unread)

    def _advance(self, data: bytes) -> Piece:
        size = len(data)
        before = self._guard
        self.offset += size
        self._guard = (self._guard + data)[-GUARD:]
        if self.head_len < HEAD:
            head = os.pread(self.fd, min(HEAD, self.offset), 0)
            if digest(head[: self.head_len]) == self.head_sha:
                self.head_len, self.head_sha = len(head), digest(head)
        self._allowed = max(RING, self._allowed - size)
        self._quiet_since = None
        # A hole at the beginning: somebody emptied the file under a writer without O_APPEND.
        start = min(HEAD, self.offset - size)
        if data[:1] == b"\0" and not (before + os.pread(self.fd, start, 0)).strip(b"\0"):
            text = data.lstrip(b"\0")
            return Piece(text, "binary", size - len(text))
        return Piece(data)

    def _skip(self) -> Piece:
        """The reader is slower than the log: leave bytes out and say how many."""
        target = self._size - KEPT
        near = os.pread(self.fd, 64 * 1024, target)
        target += near.find(b"\n") + 1
        gap = target - self.offset
        self._place(target)
        self._allowed = RING
        return Piece(b"", None, gap)

    def _look_again(self) -> Piece | None:
        """At the end of the file: is it still the one at ``path``?"""
        try:
            info = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            if self.missing:
                return None
            self.missing = True
            return Piece(b"", "missing")
        if self.fd >= 0 and (info.st_dev, info.st_ino) == (self.device, self.inode):
            self.missing = False
            return None
        now = time.monotonic()
        if self.fd >= 0:
            # The writer may not have opened the new file yet: finish the old one first.
            self._quiet_since = self._quiet_since or now
            if now - self._quiet_since < QUIET_S:
                return None
        before = os.dup(self.fd) if self.fd >= 0 else -1
        if not self._open(self.path):
            rotated.close([before] if before >= 0 else [])
            return None
        self.generation += 1
        if before < 0:
            return Piece(b"")
        self._read_first(rotated.since(self.path, before, self.fd), 0, "rotated")
        os.close(before)
        return self.step()

    def close(self) -> None:
        """Give the descriptors back."""
        old = [self._old[0]] if self._old else []
        rotated.close([item for item in (self.fd, *old, *self._next) if item >= 0])
        self.fd, self._old, self._next = -1, None, []


def last_start(descriptor: int, lines: int) -> int:
    """Where the last ``lines`` lines of a file begin."""
    size = os.fstat(descriptor).st_size
    if lines <= 0:
        return size
    end, left = size, lines
    if size and os.pread(descriptor, 1, size - 1) == b"\n":
        left += 1
    while end > max(0, size - BACK):
        start = max(0, end - 65536)
        block = os.pread(descriptor, end - start, start)
        count = block.count(b"\n")
        if count >= left:
            at = len(block)
            for _ in range(left):
                at = block.rfind(b"\n", 0, at)
            return start + at + 1
        left -= count
        end = start
    return end
