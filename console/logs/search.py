"""Search and filter a :class:`~console.logs.store.LogStore` in steps too short to be felt. Pure."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right

from console.errors import UsageError
from console.logs.store import LogStore

SLICE = 64 * 1024
"""Bytes that one step looks at: a few milliseconds for a regular expression."""


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
        if len(body) > 1 and body.startswith("/"):
            flags = re.MULTILINE | (0 if self.exact else re.IGNORECASE)
            try:
                self.regex = re.compile(body[1:].removesuffix("/").encode(), flags)
            except re.error as error:
                hint = "without the slashes it is plain text"
                raise UsageError(f"not a regular expression: {error}", hint=hint) from error
            if self.regex.match(b""):
                raise UsageError(f"'{body}' matches everything", hint="say what must be there")

    def offsets(self, data: bytes) -> list[int]:
        """Where the hits in some bytes begin."""
        if self.regex is not None:
            return [match.start() for match in self.regex.finditer(data)]
        if not self.exact:
            data = data.lower()
        needle, step = self.needle, max(1, len(self.needle))
        out = []
        at = data.find(needle)
        while at >= 0:
            out.append(at)
            at = data.find(needle, at + step)
        return out

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

    @property
    def done(self) -> bool:
        """Whether every complete line was looked at."""
        return self.position >= self._store.whole

    @property
    def share(self) -> float:
        """How much of the store was looked at, 0 to 1."""
        return 1.0 if self.done else self.position / max(1, self._store.whole)

    def step(self) -> bool:
        """Look at the next slice; False when there is nothing left to look at."""
        if self.done:
            return False
        first, data, starts = next(self._store.blocks(self.position))
        at = self.position - first
        begin = starts[at]
        until = bisect_right(starts, begin + SLICE, lo=at)
        until = max(until - 1, at + 1) if until < len(starts) else len(starts)
        end = starts[until] if until < len(starts) else len(data)
        hits: list[int] = []
        last = -1
        for offset in self.matcher.offsets(bytes(data[begin:end])):
            line = bisect_right(starts, begin + offset, lo=at, hi=until) - 1
            if line != last:
                hits.append(first + line)
                last = line
        if self.matcher.negated:
            matching = set(hits)
            hits = [n for n in range(self.position, first + until) if n not in matching]
        self.lines.extend(hits)
        self.position = first + until
        return True

    def after(self, line: int) -> int | None:
        """The next hit behind a line."""
        at = bisect_right(self.lines, line)
        return self.lines[at] if at < len(self.lines) else None

    def before(self, line: int) -> int | None:
        """The last hit before a line."""
        at = bisect_left(self.lines, line) - 1
        return self.lines[at] if at >= 0 else None
