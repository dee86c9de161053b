"""A log in memory: packed byte blocks with offsets, a million lines in little over their bytes.

Pure. Bytes come in chunks that end anywhere; a line redrawn with carriage returns is one live line;
escapes go, long lines are cut with a marker; what the link skipped stands as a line of its own.
Line numbers count from 0 and never change; the last line may still be growing.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from console.logs.groups import Groups
from console.logs.lines import FRAMES, JUMPS, Kind, classify_line, interesting
from console.text import clean

BLOCK = 256 * 1024
"""Bytes of a block; a search visits one block at a time (well under 16 ms)."""

KEPT_BYTES = 256 << 20
"""Of a longer log the oldest lines are let go: a busy one writes gigabytes in a night."""

MAX_LINE = 64 * 1024
"""Bytes of a line that are kept; the rest is counted in a marker."""

EVENTS = {
    "rotated": "rotated; this is the next file",
    "truncated": "emptied",
    "refilled": "emptied and written anew",
    "missing": "is not there",
    "binary": "begins with a hole of NUL bytes, left out",
}
"""What happened to a file, in words."""

_CUT = re.compile(rb" \[\+(\d+) bytes\]$")
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(slots=True)
class _Block:
    first: int
    data: bytes | bytearray = field(default_factory=bytearray)
    starts: array[int] = field(default_factory=lambda: array("I"))

    def line(self, number: int) -> bytes:
        at = number - self.first
        start = self.starts[at]
        end = self.starts[at + 1] if at + 1 < len(self.starts) else len(self.data)
        return bytes(self.data[start : end - 1])


class LogStore:
    """Append bytes, read lines. Every reader below is cheap; ``append`` is linear in its input."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._most = max(2, kept_bytes // BLOCK)  # blocks with their bytes
        self.first = 0
        """The first line that is still held; the ones before it are empty."""
        self._blocks: list[_Block] = [_Block(0)]
        self._firsts: list[int] = [0]
        self._whole = 0  # complete lines
        self._tail = bytearray()  # the line that is still growing
        self._tail_cut = 0
        self._tail_kind = Kind.PLAIN
        self.kinds = bytearray()
        self.errors = array("I")
        """Line numbers that ``e`` jumps to."""
        self.folds = Folds()
        self.groups = Groups()
        self.skipped_bytes = 0
        """Bytes that the host left out because the link is slower than the log."""
        self.received_bytes = 0

    def __len__(self) -> int:
        """All lines, the growing one included."""
        return self._whole + bool(self._tail)

    @property
    def whole(self) -> int:
        """Lines that are complete and will not change."""
        return self._whole

    # ---- writing

    def append(self, data: bytes) -> None:
        """Add bytes as they came; they may end inside a line, a character or an escape."""
        self.received_bytes += len(data)
        cut = data.rfind(b"\n")
        if cut < 0:
            self._grow(data)
            return
        head = bytes(self._tail) + data[: cut + 1] if self._tail else data[: cut + 1]
        if self._tail_cut:
            end = data.find(b"\n")
            over = self._tail_cut + end
            head = bytes(self._tail) + b" [+%d bytes]" % over + data[end : cut + 1]
        self._tail, self._tail_cut = bytearray(), 0
        self._take(head)
        self._grow(data[cut + 1 :])

    def note(self, text: str) -> None:
        """Add a line of our own: what happened to the file, what is missing here."""
        if self._tail or self._tail_cut:
            self.append(b"\n")
            self.received_bytes -= 1
        self._store(f"── {text} ──\n".encode())
        self.kinds[-1] = Kind.NOTE

    def gap(self, skipped: int) -> None:
        """Bytes were left out here."""
        self.skipped_bytes += skipped
        self.note(f"{skipped:,} bytes left out: the link is slower than the log")

    def _grow(self, data: bytes) -> None:
        if not data:
            return
        self._tail += data
        if b"\r" in data:  # a bar: only its newest state is kept
            whole = bytes(self._tail)
            kept = whole.rstrip(b"\r").rpartition(b"\r")[2]
            self._tail, self._tail_cut = bytearray(kept + whole[len(whole.rstrip(b"\r")) :]), 0
        if len(self._tail) > MAX_LINE:
            self._tail_cut += len(self._tail) - MAX_LINE
            del self._tail[MAX_LINE:]

    def _take(self, head: bytes) -> None:
        if b"\x1b" in head:
            head = _ANSI.sub(b"", head)
        lines: list[bytes] | None = None
        if b"\r" in head:
            lines = [part.rstrip(b"\r").rpartition(b"\r")[2] for part in head[:-1].split(b"\n")]
            head = b"\n".join(lines) + b"\n"
        start = 0
        while len(head) - start > BLOCK:
            end = head.rfind(b"\n", start, start + BLOCK) + 1
            if end <= start:  # one line longer than a block
                end = head.find(b"\n", start) + 1
            self._store(head[start:end])
            start = end
        self._store(head[start:] if start else head)

    def _store(self, head: bytes) -> None:
        lengths = [len(part) + 1 for part in head.split(b"\n")]
        lengths.pop()
        if max(lengths) > MAX_LINE + 64:
            head = b"".join(_capped(part) + b"\n" for part in head[:-1].split(b"\n"))
            lengths = [len(part) + 1 for part in head.split(b"\n")]
            lengths.pop()
        block = self._blocks[-1]
        if len(block.data) + len(head) > BLOCK and block.starts:
            block.data = bytes(block.data)
            block = _Block(self._whole)
            self._blocks.append(block)
            self._firsts.append(self._whole)
            if len(self._blocks) > self._most:
                old = self._blocks[-1 - self._most]
                old.data, old.starts = b"", array("I")
                self.first = self._blocks[-self._most].first
        base = len(block.data)
        starts = array("I", accumulate(lengths, initial=base))
        starts.pop()
        block.data += head
        block.starts.extend(starts)
        first = self._whole
        self._whole += len(lengths)
        self.kinds.extend(bytes(len(lengths)))
        self._classify(head, starts, base, first)

    def _classify(self, head: bytes, starts: array[int], base: int, first: int) -> None:
        """Give the few special lines of the new ones their kinds, and fold what they close."""
        seen = -1
        if first and self.kinds[first - 1] in FRAMES:
            seen = self._follow(head, starts, base, first, 0)
        for offset in interesting(head):
            at = bisect_right(starts, offset + base) - 1
            if at > seen:
                seen = self._follow(head, starts, base, first, at)

    def _follow(self, head: bytes, starts: array[int], base: int, first: int, at: int) -> int:
        """Classify a line, and while that is part of a traceback the ones below it.

        Source lines, and a bare exception name at the end, are known by what is above them.
        """
        kinds = self.kinds
        while at < len(starts):
            end = starts[at + 1] - base if at + 1 < len(starts) else len(head)
            number = first + at
            before = Kind(kinds[number - 1]) if number else Kind.PLAIN
            kind = classify_line(head[starts[at] - base : end - 1], before)
            kinds[number] = kind
            if kind is Kind.LOOK:
                self.folds.look(kinds, number)
            if kind in JUMPS:
                self.errors.append(number)
                top = self.groups.take(kinds, number, self.raw)
                if top is None:
                    self.folds.close(kinds, number)
                else:
                    self.folds.repeat(top, number, self.raw)
            if kind not in FRAMES:
                break
            at += 1
        return at

    # ---- reading

    def raw(self, number: int) -> bytes:
        """The bytes of a line, without its line break."""
        if number >= self._whole:
            text = bytes(self._tail).rstrip(b"\r").rpartition(b"\r")[2]
            text = _ANSI.sub(b"", text)
            return text + b" [+%d bytes]" % self._tail_cut if self._tail_cut else text
        if number < self.first:
            return b""
        return self._blocks[bisect_right(self._firsts, number) - 1].line(number)

    def left_out(self, number: int) -> int:
        """Bytes of a line that are not kept: it is longer than :data:`MAX_LINE`."""
        raw = self.raw(number)
        if len(raw) <= MAX_LINE:
            return 0
        match = _CUT.search(raw, MAX_LINE)
        return int(match[1]) if match else 0

    def text(self, number: int) -> str:
        """A line made inert for display."""
        return clean(self.raw(number), limit=MAX_LINE + 64)

    def kind(self, number: int) -> Kind:
        """What a line is."""
        if number >= self._whole:
            return classify_line(self.raw(number)) if self._tail else Kind.PLAIN
        return Kind(self.kinds[number])

    def blocks(self, start: int = 0) -> Iterator[tuple[int, bytes | bytearray, array[int]]]:
        """Blocks of complete lines from the one that holds ``start``: first line, data, starts.

        What is no longer held is passed over.
        """
        index = max(0, bisect_right(self._firsts, max(start, self.first)) - 1)
        while index < len(self._blocks):
            block = self._blocks[index]
            yield block.first, block.data, block.starts
            index += 1

    def next_error(self, number: int, step: int) -> int | None:
        """The error after (step 1) or before (step -1) a line, or ``None``."""
        at = bisect_right(self.errors, number) if step > 0 else self._before(number)
        found = self.errors[at] if 0 <= at < len(self.errors) else None
        if found is not None and found < self.first:
            return self.next_error(self.first - 1, 1) if step > 0 else None
        return found

    def _before(self, number: int) -> int:
        return bisect_right(self.errors, number - 1) - 1

    def record(self, number: int) -> tuple[int, int]:
        """The lines that belong together around one: a traceback from its head to its end."""
        first = last = number
        while first > 0 and self.kinds[first - 1 : first] and Kind(self.kinds[first - 1]) in FRAMES:
            first -= 1
        if first > 0 and self.kinds[first - 1] == Kind.TRACEBACK:
            first -= 1
        while last + 1 < self._whole and Kind(self.kinds[last]) in FRAMES | {Kind.TRACEBACK}:
            last += 1
        return first, last


def _capped(line: bytes) -> bytes:
    if len(line) <= MAX_LINE:
        return line
    return line[:MAX_LINE] + b" [+%d bytes]" % (len(line) - MAX_LINE)


class Folds:
    """Ranges of lines that are hidden behind one: library frames of tracebacks, and looks.

    A run of looks (health checks, metrics) grows with the log; every other range stays as it is.
    """

    def __init__(self) -> None:
        self._starts = array("I")
        self._ends = array("I")
        self._hidden = array("I")  # lines hidden up to and including the fold
        self._repeats: set[int] = set()
        self.looks = 0
        """Lines that only say that somebody asked the server how it is."""

    def __len__(self) -> int:
        """How many folds there are."""
        return len(self._starts)

    def close(self, kinds: bytearray, raised: int) -> None:
        """A traceback ended at ``raised``: fold its library frames, all but the deepest frame."""
        top = raised
        while top > 0 and Kind(kinds[top - 1]) in FRAMES:
            top -= 1
        deepest = raised - 1
        while deepest > top and kinds[deepest] == Kind.CODE:
            deepest -= 1
        at = top
        while at < deepest:
            if kinds[at] == Kind.FRAME:
                at += 1
                while at < deepest and kinds[at] == Kind.CODE:
                    at += 1
                continue
            start = at
            while at < deepest and kinds[at] != Kind.FRAME:
                at += 1
            if at - start >= 2:
                self._add(start, at - 1)

    def repeat(self, head: int, raised: int, raw: Callable[[int], bytes]) -> None:
        """What another rank reported already: one row, with the report right above it."""
        if self._starts and self._starts[-1] in self._repeats:
            between = range(self._ends[-1] + 1, head)
            if len(between) <= 2 and not any(raw(number).strip() for number in between):
                self._hidden[-1] += raised - self._ends[-1]
                self._ends[-1] = raised
                return
        self._add(head, raised)
        if self._starts and self._starts[-1] == head:
            self._repeats.add(head)

    def is_repeat(self, first: int) -> bool:
        """Whether the fold that starts here hides what other ranks reported too."""
        return first in self._repeats

    def look(self, kinds: bytearray, number: int) -> None:
        """A line is a look: it joins the ones right above it."""
        self.looks += 1
        if self._starts and self._ends[-1] == number - 1 and kinds[number - 1] == Kind.LOOK:
            self._ends[-1] = number
            self._hidden[-1] += 1
        else:
            self._add(number, number)

    def _add(self, start: int, end: int) -> None:
        if self._starts and start <= self._ends[-1]:
            return
        before = self._hidden[-1] if self._hidden else 0
        self._starts.append(start)
        self._ends.append(end)
        self._hidden.append(before + end - start)  # one row stands for the fold

    @property
    def hidden(self) -> int:
        """Lines that the folds take away in all."""
        return self._hidden[-1] if self._hidden else 0

    def line_of(self, row: int) -> int:
        """The line on a row when folds are shut; for a fold its first line."""
        low, high = 0, len(self._starts)
        while low < high:  # the first fold whose row is beyond this one
            mid = (low + high) // 2
            if self._row_of_fold(mid) <= row:
                low = mid + 1
            else:
                high = mid
        if low == 0:
            return row
        fold = low - 1
        if self._row_of_fold(fold) == row:
            return self._starts[fold]
        return row + self._hidden[fold]

    def row_of(self, line: int) -> int:
        """The row of a line when folds are shut; inside a fold the fold's row."""
        fold = bisect_right(self._starts, line) - 1
        if fold < 0:
            return line
        if line <= self._ends[fold]:
            return self._row_of_fold(fold)
        return line - self._hidden[fold]

    def at(self, line: int) -> tuple[int, int] | None:
        """The fold that starts on this line: its first and last line."""
        fold = bisect_right(self._starts, line) - 1
        if fold >= 0 and self._starts[fold] == line < self._ends[fold]:
            return line, self._ends[fold]
        return None

    def _row_of_fold(self, fold: int) -> int:
        return self._starts[fold] - (self._hidden[fold - 1] if fold else 0)
