"""How one log line is drawn, and which line stands on which row. Pure of any terminal."""

from __future__ import annotations

import re

from rich.cells import set_cell_size

from console.logs.groups import spoken
from console.logs.lines import Kind, rank_of
from console.logs.search import Matcher, Search
from console.logs.store import LogStore
from widgets.paint import Line, width_of

GUTTER = 2
"""Cells before each line: what it is, so that no state hangs on colour."""

_TIME = re.compile(
    r"^(?P<a>(?:[\w.-]+ +\| )?(?:\([^)]{1,80}\) ){0,3}"
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) )?\[?)"
    r"(?:\d{4}-\d\d-\d\d[T ]|\d\d-\d\d |[A-Z][a-z]{2} [ \d]\d )"
    r"(?P<time>\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
)
_RANK = re.compile(r"\b(?:TP|DP|PP|EP)\d+\b|\[rank\d+\]|^rank\d+\b(?=[\w.-]* +\| )")

_SIGNS = {
    Kind.RAISED: ("✖ ", "bad"),
    Kind.ERROR: ("✖ ", "bad"),
    Kind.WARNING: ("! ", "warn"),
    Kind.FOLLOWS: ("↳ ", "warn"),
    Kind.TRACEBACK: ("┌ ", "bad"),
    Kind.NOTE: ("  ", "accent"),
}
_ROLES = {
    Kind.RAISED: "bad",
    Kind.ERROR: "bad",
    Kind.WARNING: "warn",
    Kind.FOLLOWS: "warn",
    Kind.FRAME_LIB: "dim",
    Kind.CODE: "dim",
    Kind.NOTE: "accent",
    Kind.LOOK: "dim",
    Kind.BAR: "accent",
    Kind.TRACEBACK: "strong",
}


class Rows:
    """Which lines are shown, in order: all, all but folded ones, or those that a filter keeps."""

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.narrow: Search | None = None
        self.folded = True

    def __len__(self) -> int:
        """Rows in all."""
        if self.narrow is not None:
            return len(self.narrow.lines)
        return len(self.store) - (self.store.folds.hidden if self.folded else 0)

    def line(self, row: int) -> int:
        """The line on a row."""
        if self.narrow is not None:
            return self.narrow.lines[row]
        return self.store.folds.line_of(row) if self.folded else row

    def row(self, line: int) -> int:
        """The row of a line, or of the nearest shown one before it."""
        if self.narrow is not None:
            lines = self.narrow.lines
            low, high = 0, len(lines)
            while low < high:
                mid = (low + high) // 2
                if lines[mid] <= line:
                    low = mid + 1
                else:
                    high = mid
            return max(0, low - 1)
        return self.store.folds.row_of(line) if self.folded else line

    def hides(self, line: int) -> bool:
        """Whether a line is behind a fold."""
        return self.fold(self.line(self.row(line))) is not None

    def fold(self, line: int) -> tuple[int, int] | None:
        """The fold that stands on this line's row, if one does."""
        return self.store.folds.at(line) if self.folded and self.narrow is None else None


def is_deepest(store: LogStore, line: int) -> bool:
    """Whether this is the frame that raised: the last one before the exception line."""
    if store.kind(line) not in (Kind.FRAME, Kind.FRAME_LIB):
        return False
    at = line + 1
    while at < store.whole and store.kind(at) is Kind.CODE:
        at += 1
    return at < store.whole and store.kind(at) is Kind.RAISED


def fold_line(first: int, last: int, store: LogStore) -> tuple[Line, str]:
    """The row that stands for folded frames, or for a run of looks."""
    if store.kind(first) is Kind.LOOK:
        text = f"⋯ {last - first + 1} looks at health and metrics"
        return (("  ", "dim"), (text, "dim")), text
    if store.folds.is_repeat(first):
        ranks = spoken(store.groups.between(first, last))
        text = f"⋯ same error from {ranks}"
        return (("  ", "dim"), (text, "bad")), text
    frames = sum(store.kind(n) in (Kind.FRAME, Kind.FRAME_LIB) for n in range(first, last + 1))
    return (("  ", "dim"), (f"    ⋯ {frames} frames", "dim")), f"⋯ {frames} frames"


def draw(store: LogStore, line: int, *, times: bool, find: Matcher | None) -> tuple[Line, str]:
    """A line as gutter and spans, and its plain text (without the gutter)."""
    kind = store.kind(line)
    text = store.text(line)
    if not times:
        text = _without_time(text)
    role = _ROLES.get(kind, "plain")
    if role == "dim" and is_deepest(store, line):
        role = "strong"
    sign = _SIGNS.get(kind, ("  ", "plain"))
    spans = _marked(text, role, find)
    if not any(r == "hit" for _, r in spans):
        spans = _ranked(text, role, store.raw(line))
    return (sign, *spans), text


def _without_time(text: str) -> str:
    match = _TIME.match(text)
    if match is None:
        return text
    rest = text[match.end() :].lstrip()
    if match["a"].endswith("[") and rest.startswith("]"):  # nothing but the time was between them
        return match["a"][:-1] + rest[1:].lstrip()
    return match["a"] + rest


def _marked(text: str, role: str, find: Matcher | None) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    at = 0
    for start, end in find.spans(text) if find is not None else ():
        if start > at:
            out.append((text[at:start], role))
        out.append((text[start:end], "hit"))
        at = end
    out.append((text[at:], role))
    return out


def _ranked(text: str, role: str, raw: bytes) -> list[tuple[str, str]]:
    """The rank's own word in the rank's own colour."""
    match = _RANK.search(text, 0, 200)
    rank = rank_of(raw) if match else None
    if match is None or rank is None:
        return [(text, role)]
    return [
        (text[: match.start()], "dim" if role == "plain" else role),
        (match[0], f"rank{rank % 8}"),
        (text[match.end() :], role),
    ]


def cut(spans: list[tuple[str, str]], skip: int, width: int) -> list[tuple[str, str]]:
    """The cells ``skip`` to ``skip + width`` of some spans."""
    out: list[tuple[str, str]] = []
    for text, role in spans:
        size = width_of(text)
        if skip >= size:
            skip -= size
            continue
        if skip:
            text = text[skip:] if text.isascii() else text[len(set_cell_size(text, skip)) :]  # noqa: PLW2901
            size, skip = width_of(text), 0
        if size > width:
            text, size = set_cell_size(text, width), width  # noqa: PLW2901
        out.append((text, role))
        width -= size
        if width <= 0:
            break
    return out


def across(spans: Line, width: int, edge: Line) -> Line:
    """The spans padded so that the edge stands at the right."""
    if not edge:
        return spans
    return (*spans, (" " * max(0, width - cells(spans)), "plain"), *edge)


def cells(spans: Line) -> int:
    """How wide some spans are."""
    return sum(width_of(text) for text, _ in spans)
