"""Search and filter a :class:`~console.logs.store.LogStore` in steps too short to be felt. Pure."""

from __future__ import annotations

import re
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial

from console.errors import UsageError
from console.logs.store import LogStore

SLICE = 64 * 1024
"""Bytes that one step looks at, at most: a fraction of a millisecond for plain text."""

LEAST = 4 * 1024
"""Bytes that one step looks at where the expression is slow."""


class Matcher:
    """What is looked for: text, or a regular expression between slashes; a leading ``!`` negates.

    Upper case in the pattern makes it count (smart case).

    Raises:
        UsageError: not a regular expression.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.negated = text.startswith("!") and len(text) > 1
        body = text[1:] if self.negated else text
        self.exact = body.lower() != body
        self.regex: re.Pattern[bytes] | None = None
        self.needle = body.encode("utf-8", "surrogateescape")
        self._line = re.compile(re.escape(self.needle) + rb"[^\n]*()")
        if len(body) > 1 and body.startswith("/"):
            flags = re.MULTILINE | (0 if self.exact else re.IGNORECASE)
            try:
                self.regex = re.compile(body[1:].removesuffix("/").encode(), flags)
            except re.error as error:
                hint = "without the slashes it is plain text"
                raise UsageError(f"not a regular expression: {error}", hint=hint) from error
            if self.regex.match(b""):
                raise UsageError(f"'{body}' matches everything", hint="say what must be there")

    def finder(self, data: bytes) -> Callable[[int], int]:
        """What finds the next hit in some bytes from an offset on; -1 where there is none."""
        if self.regex is None:
            return partial((data if self.exact else data.lower()).find, self.needle)
        search = self.regex.search

        def find(at: int) -> int:
            match = search(data, at)
            return -1 if match is None else match.start()

        return find

    def in_all(self, data: bytes, lines: int) -> bool:
        """Whether text is in each of the ``lines`` lines of some bytes. Never for an expression.

        A third of the time that looking for it line by line takes.
        """
        if self.regex is not None:
            return False
        return len(self._line.findall(data if self.exact else data.lower())) == lines

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the hits in a shown line are, for highlighting; none when negated."""
        if self.negated:
            return []
        if self.regex is not None:
            flags = re.IGNORECASE if not self.exact else 0
            shown = re.compile(self.regex.pattern.decode("utf-8", "replace"), flags)
            return [match.span() for match in shown.finditer(text) if match.end() > match.start()]
        hay = text if self.exact else text.lower()
        needle = self.needle.decode("utf-8", "surrogateescape")
        out = []
        at = hay.find(needle) if needle else -1
        while at >= 0:
            out.append((at, at + len(needle)))
            at = hay.find(needle, at + len(needle))
        return out


class Search:
    """The lines of a store that match, found step by step and kept up as the store grows."""

    def __init__(self, store: LogStore, matcher: Matcher) -> None:
        self.matcher = matcher
        self.lines = array("I")
        self.position = 0
        self._store = store
        self._slice = SLICE
        self._all = False  # every line of the last slice was a hit

    @property
    def done(self) -> bool:
        """Whether every complete line was looked at."""
        return self.position >= self._store.whole

    @property
    def share(self) -> float:
        """How much of the store was looked at, 0 to 1."""
        return 1.0 if self.done else self.position / max(1, self._store.whole)

    def run(self, seconds: float) -> bool:
        """Look on for about so long; False when there is nothing left to look at.

        A slow expression gets smaller slices, so that the time is kept whatever is looked for.
        """
        begun = now = time.perf_counter()
        while now - begun < seconds:
            if not self.step():
                return False
            before, now = now, time.perf_counter()
            if now - before > seconds / 2:
                self._slice = max(LEAST, self._slice // 2)
            elif now - before < seconds / 8:
                self._slice = min(SLICE, self._slice * 2)
        return not self.done

    def step(self) -> bool:
        """Look at the next slice; False when there is nothing left to look at."""
        if self.done:
            return False
        self.position = max(self.position, self._store.first)
        first, data, starts = next(self._store.blocks(self.position))
        at = self.position - first
        begin = starts[at]
        until = bisect_right(starts, begin + self._slice, lo=at)
        until = max(until - 1, at + 1) if until < len(starts) else len(starts)
        end = starts[until] if until < len(starts) else len(data)
        part, count = bytes(data[begin:end]), until - at
        hits: Sequence[int] = range(count)
        if not (self._all and self.matcher.in_all(part, count)):
            edges = [*starts[at + 1 : until], end]
            hits = _hits(self.matcher.finder(part), begin, edges)
        self._all = len(hits) == count
        if self.matcher.negated:
            matching = set(hits)
            hits = [n for n in range(count) if n not in matching]
        self.lines.extend(array("I", [self.position + n for n in hits]))
        self.position = first + until
        return True

    def told(self, cursor: int) -> str:
        """``hit 3/17``, or how many there are when the cursor's line is none of them."""
        count, at = len(self.lines), self.place(cursor)
        if at is not None:
            return f"hit {at}/{count}{self.share_told()}"
        return f"{count:,} hit{'s' * (count != 1)}{self.share_told()}".replace(",", " ")

    def share_told(self) -> str:
        """How much has been looked through, while that is not all."""
        return "" if self.done else f" … {self.share:.0%}"

    def place(self, line: int) -> int | None:
        """Which of the hits so far a line is, counted from 1; ``None`` where it is none."""
        at = bisect_left(self.lines, line)
        return at + 1 if at < len(self.lines) and self.lines[at] == line else None

    def after(self, line: int) -> int | None:
        """The next hit behind a line."""
        at = bisect_right(self.lines, line)
        return self.lines[at] if at < len(self.lines) else None

    def before(self, line: int) -> int | None:
        """The last hit before a line."""
        at = bisect_left(self.lines, line) - 1
        return self.lines[at] if at >= 0 else None


def _hits(find: Callable[[int], int], begin: int, edges: list[int]) -> list[int]:
    """Which of some lines match, counted from 0; ``edges`` is where each ends, from ``begin`` on.

    After a hit it goes on at the next line, and that one is tried before it is searched for:
    often enough nearly every line is a hit.
    """
    hits: list[int] = []
    line, count, found = 0, len(edges), hits.append
    offset = find(0)
    while offset >= 0 and line < count:
        edge = edges[line]
        if begin + offset >= edge:
            line = bisect_right(edges, begin + offset, lo=line)
            if line == count:
                break
            edge = edges[line]
        found(line)
        line += 1
        offset = find(edge - begin)
    return hits
