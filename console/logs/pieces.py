"""Lines out of bytes that come in pieces, however long a line is. Pure."""

from __future__ import annotations

from collections.abc import Iterator

MOST = 64 * 1024
"""Bytes of a line that are kept; how many more it had is said at its end."""


class Lines:
    """Whole lines with their offsets; of a line that was redrawn, its last state."""

    def __init__(self) -> None:
        self._kept = b""
        self._over = 0
        self.size = 0
        """Bytes so far of the line that has no end yet."""

    def feed(self, data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
        """The lines that end in the data, which begins at an offset of its file."""
        start = offset - self.size
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._grow(piece)
            size = self.size
            yield start, self._end()
            start += size + 1
        self._grow(rest)

    def rest(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """What stands at the end of a file without a line's end."""
        if self.size:
            yield offset - self.size, self._end()

    def _grow(self, piece: bytes) -> None:
        self.size += len(piece)
        if b"\r" in piece:  # a bar: only its newest state is kept
            whole, self._over = self._kept + piece, 0
            bare = whole.rstrip(b"\r")
            self._kept, piece = b"", bare.rpartition(b"\r")[2] + whole[len(bare) :]
        room = max(0, MOST - len(self._kept))
        self._kept += piece[:room]
        self._over += max(0, len(piece) - room)

    def _end(self) -> bytes:
        line = self._kept.rstrip(b"\r").rpartition(b"\r")[2]
        line += b" [+%d bytes]" % self._over if self._over else b""
        self._kept, self._over, self.size = b"", 0, 0
        return line
