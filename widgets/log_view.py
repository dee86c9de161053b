"""A log on the line API: a million lines, of which only visible ones are ever decoded.

Follow or pause, search, filter in and out, jumps between errors, folded library frames, wrap,
timestamps, marks; the right edge maps errors. Knows a LogStore, never where it comes from.
"""

from __future__ import annotations

import asyncio
import time

from textual.message import Message

from console.logs.judged import Judged, next_stop, note_of
from console.logs.search import Matcher, Search
from console.logs.store import LogStore
from widgets.log_rows import GUTTER, Rows, across, cells, cut, draw, fold_line
from widgets.paint import EMPTY, Line, Painted, width_of

_SLICE_S = 0.002
_REST_S = 0.001
"""How long a search holds the event loop, and leaves it: a key takes dozens of its turns."""


class LogView(Painted):
    """The log widget. The screen appends to ``store`` and calls :meth:`changed`."""

    class Status(Message):
        """Something that the status line shows has changed."""

    def __init__(self, store: LogStore, *, id: str | None = None, plain: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self.store = store
        self.rows = Rows(store)
        self.follow = True
        self.times = True
        self.wrapped = False
        self.search: Search | None = None
        self.marks: set[int] = set()
        self.judged: Judged | None = None
        self._plain = plain  # a pane without cursor and map
        self._cursor = 0  # a line number: it survives folds and filters
        self._top = 0  # a row
        self._left = 0
        self._wanted = 0  # 1 or -1: jump to a hit as soon as the search has one
        self._visible: list[tuple[int, int]] = []
        self._drawn: dict[int, tuple[Line, str]] = {}
        self._looking: asyncio.Task[None] | None = None

    # ---- content

    def replace(self, store: LogStore) -> None:
        """Show another log."""
        self._stop()
        self.store, self.rows = store, Rows(store)
        self.search, self.marks, self.judged = None, set(), None
        self._cursor = self._top = self._left = 0
        self.follow = True
        self.changed()

    def changed(self) -> None:
        """The store has grown: go along when following, look through the new lines."""
        if len(self._drawn) > 600:
            self._drawn.clear()
        self._drawn.pop(self.store.whole, None)
        for search in (self.search, self.rows.narrow):
            if (
                search is not None
                and not search.done
                and (self._looking is None or self._looking.done())
            ):
                self._looking = asyncio.get_running_loop().create_task(self._look())
        if self.follow:
            self._to_end()
        self._redraw()

    def on_unmount(self) -> None:
        """Leave no task behind."""
        self._stop()

    def _stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._drawn.clear()

    def _redraw(self) -> None:
        self._visible = []
        self.refresh()
        self.post_message(self.Status())

    async def _look(self) -> None:
        """Run searches in slices; between two of them keys and drawing have their turn."""
        shown = time.monotonic()
        for search in (self.rows.narrow, self.search):
            while search is not None and search.run(_SLICE_S):
                if search is self.search:
                    self._jump_if_found()
                if (now := time.monotonic()) - shown > 0.05:
                    shown = now
                    if self.rows.narrow is search:
                        self._redraw()
                    else:
                        self.post_message(self.Status())
                await asyncio.sleep(_REST_S)
        self._jump_if_found()
        self._wanted = 0
        if self.follow:
            self._to_end()
        self._redraw()

    def judge(self, verdict: Judged | None) -> None:
        """Mark the root and what followed from it."""
        self.judged = verdict
        self._redraw()

    # ---- moving

    @property
    def cursor(self) -> int:
        """The line that the cursor is on."""
        return min(self._cursor, max(0, len(self.store) - 1))

    def _height(self) -> int:
        return max(1, self.size.height)

    def _to_end(self) -> None:
        count = len(self.rows)
        self._cursor = self.rows.line(count - 1) if count else 0
        self._top = max(0, count - self._height())

    def move(self, delta: int) -> None:
        """Move the cursor by rows; away from the end it stops following."""
        count = len(self.rows)
        if not count:
            return
        row = max(0, min(count - 1, self.rows.row(self.cursor) + delta))
        self.follow = self.follow and delta > 0
        self.go_to(self.rows.line(row), keep_follow=True)

    def page(self, delta: int) -> None:
        """Move by screens."""
        self.move(delta * max(1, self._height() - 1))

    def go_to(self, line: int, *, keep_follow: bool = False, centre: bool = False) -> None:
        """Put the cursor on a line and bring it into sight."""
        self.follow = self.follow and keep_follow
        self._cursor = line
        row, height = self.rows.row(line), self._height()
        if centre or not self._top <= row < self._top + height:
            if centre or abs(row - self._top) > 2 * height:
                self._top = row - height // 2
            else:
                self._top = row if row < self._top else row - height + 1
        if self.wrapped and row >= self._top:
            self._top = max(self._top, self._top_showing(row))
        self._top = max(0, min(self._top, max(0, len(self.rows) - 1)))
        self._redraw()

    def top(self) -> None:
        """The first row."""
        self.follow = False
        if len(self.rows):
            held = self.store.first if self.rows.narrow is None else 0
            self.go_to(max(self.rows.line(0), held))

    def bottom(self) -> None:
        """The last row, and follow from there."""
        self.follow = True
        self._to_end()
        self._redraw()

    def toggle_follow(self) -> None:
        """Stay at the end, or stop where we are."""
        if self.follow:
            self.follow = False
            self._redraw()
        else:
            self.bottom()

    def shift(self, columns: int) -> None:
        """Move sideways; the column stays while lines come in."""
        self._left = max(0, self._left + columns)
        self._redraw()

    # ---- what is shown

    def toggle_fold(self) -> None:
        """Show or hide the library frames of tracebacks, and looks at health and metrics."""
        self.rows.folded = not self.rows.folded
        self.go_to(self.cursor, keep_follow=True, centre=True)

    def toggle_times(self) -> None:
        """Show or hide timestamps."""
        self.times = not self.times
        self._drawn.clear()
        self._redraw()

    def toggle_wrap(self) -> None:
        """Wrap long lines or cut them."""
        self.wrapped = not self.wrapped
        self._left = 0
        self.go_to(self.cursor, keep_follow=True)

    def toggle_mark(self) -> None:
        """Mark the cursor's line, or take its mark away."""
        self.marks ^= {self.cursor}
        self.move(1)

    def find(self, matcher: Matcher | None) -> None:
        """Search; goes to the next hit as soon as there is one."""
        self.search = Search(self.store, matcher) if matcher else None
        self._wanted = 1 if matcher else 0
        self._restart()

    def narrow_to(self, matcher: Matcher | None) -> None:
        """Show only the lines that match (or, negated, the others); ``None`` shows all."""
        self.rows.narrow = Search(self.store, matcher) if matcher else None
        self._restart()
        if matcher is None:
            self.go_to(self.cursor, keep_follow=True, centre=True)

    def _restart(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._drawn.clear()
        self._top = 0 if self.rows.narrow else self._top
        self.changed()

    def _jump_if_found(self) -> None:
        if self._wanted and self.next_hit(self._wanted):
            self._wanted = 0

    def next_hit(self, step: int) -> bool:
        """Go to the next (1) or previous (-1) hit, round the end; False where there is none."""
        search = self.search
        if search is None or not search.lines:
            return False
        line = search.after(self.cursor) if step > 0 else search.before(self.cursor)
        if line is None and search.done:
            line = search.lines[0 if step > 0 else -1]
        if line is None:
            self._wanted = step
            return False
        if self.rows.hides(line):
            self.rows.folded = False
        self.go_to(line, centre=True)
        return True

    def next_error(self, step: int) -> bool:
        """Go to the next (1) or previous (-1) error, to the root before its victims."""
        hides = self.rows.folded and self.rows.narrow is None
        line = next_stop(self.store, self.judged, self.cursor, step, folded=hides)
        if line is not None:
            self.go_to(line, centre=True)
        return line is not None

    def chosen_text(self) -> str:
        """What a copy takes: the marked lines, else the cursor's line with its traceback."""
        if self.marks:
            return "\n".join(self.store.text(number) for number in sorted(self.marks))
        if not len(self.store):
            return ""
        first, last = self.store.record(self.cursor)
        return "\n".join(self.store.text(number) for number in range(first, last + 1))

    def status(self) -> str:
        """Follow, search, filter, position: the left part of the status line."""
        total, count = len(self.store), len(self.rows)
        parts = ["FOLLOW" if self.follow else "PAUSED"]
        if self.rows.narrow is not None:
            parts.append(f"filter {self.rows.narrow.matcher.text}{self.rows.narrow.share_told()}")
        if self.search is not None:
            parts.append(f"/{self.search.matcher.text} {self.search.told(self.cursor)}")
        row = self.rows.row(self.cursor) + 1 if count else 0
        of = f"{row:,} of {count:,}".replace(",", " ")
        parts.append(
            of if self.rows.narrow is None else f"{of} ({total:,} lines)".replace(",", " ")
        )
        if self.store.first:
            parts.append(f"{self.store.first:,} older no longer held".replace(",", " "))
        if self.store.folds.looks and self.rows.folded and self.rows.narrow is None:
            parts.append(f"{self.store.folds.looks:,} looks folded".replace(",", " "))
        if errors := len(self.store.errors) - len(self.store.groups.repeats):
            parts.append(f"✖ {errors:,} error{'s' * (errors > 1)}".replace(",", " "))
        return " · ".join(parts)

    # ---- drawing

    def _row_line(self, row: int) -> tuple[Line, str]:
        line = self.rows.line(row)
        if fold := self.rows.fold(line):
            return fold_line(*fold, self.store)
        drawn = self._drawn.get(line)
        if drawn is None:
            find = self.search.matcher if self.search else None
            drawn = draw(self.store, line, times=self.times, find=find)
            if line < self.store.whole:
                self._drawn[line] = drawn
        return drawn

    def _width(self) -> int:
        return max(8, self.size.width - GUTTER - (0 if self._plain else 1))

    def _parts(self, row: int) -> int:
        if not self.wrapped:
            return 1
        used = width_of(self._row_line(row)[1]) + cells(self._note(self.rows.line(row)))
        return max(1, -(-used // self._width()))

    def _top_showing(self, row: int) -> int:
        """The highest row from which ``row`` is still whole on the screen."""
        left, top = self._height() - self._parts(row), row
        while top > 0 and left >= self._parts(top - 1):
            top -= 1
            left -= self._parts(top)
        return top

    def _lay_out(self) -> list[tuple[int, int]]:
        """(row, part of it) for every visible line, from the top or, following, from the end."""
        count, height = len(self.rows), self._height()
        if self.follow and count:
            self._top = self._top_showing(count - 1)
        out: list[tuple[int, int]] = []
        row = self._top
        while row < count and len(out) < height:
            out.extend((row, part) for part in range(self._parts(row)))
            row += 1
        return out[:height]

    def line_at(self, y: int) -> tuple[Line, str]:
        """One visible line: gutter, text, and the error map at the right edge."""
        if not self._visible:
            self._visible = self._lay_out()
        edge = () if self._plain else (self._edge(y),)
        if y >= len(self._visible):
            hint = ((" (nothing yet)", "dim"),) if y == 0 and not len(self.rows) else EMPTY
            return across(hint, self._width() + GUTTER, edge), ""
        row, part = self._visible[y]
        (sign, *spans), _ = self._row_line(row)
        line = self.rows.line(row)
        here = row == self.rows.row(self.cursor) and not self._plain
        if line in self.marks:
            sign = ("• ", "mark")
        if here:
            sign = ("▸" + (sign[0].strip() or " "), sign[1] if sign[0].strip() else "strong")
        if part:
            sign = ("  ", "plain")
        note = self._note(line) if part == self._parts(row) - 1 else ()
        skip = part * self._width() if self.wrapped else self._left
        room = self._width() - cells(note)
        body = cut(spans, skip, room)
        return across((sign, *body), room + GUTTER, (*note, *edge)), "cursor" if here else ""

    def _note(self, line: int) -> Line:
        """What stands at the right of a line: the root, its victims, how many ranks."""
        if self._plain or self.rows.fold(line):
            return ()
        text, role = note_of(self.store, self.judged, line, self.store.kind(line))
        if self.search is not None and line == self.cursor and (at := self.search.place(line)):
            text, role = f"hit {at}/{len(self.search.lines)}", "hit"
        return ((f" {text} ", role),) if text and width_of(text) < self._width() // 2 else ()

    def _edge(self, y: int) -> tuple[str, str]:
        """The map: where errors are in the whole log, and where we are in it."""
        count, height = len(self.rows), self._height()
        if count <= height:
            first, last = self._at(y, count), self._at(y + 1, count)
        else:
            first, last = count * y // height, count * (y + 1) // height
        here = first < self._top + height and last > self._top
        if first < last and self._has_error(first, last):
            return ("✖" if here else "▪", "bad")
        return ("┃" if here and count > height else "│", "dim")

    @staticmethod
    def _at(y: int, count: int) -> int:
        return min(y, count)

    def _has_error(self, first: int, last: int) -> bool:
        low = self.rows.line(first)
        found = self.store.next_error(low - 1, 1)
        high = self.rows.line(last) if last < len(self.rows) else len(self.store)
        return found is not None and found < high

    def on_resize(self) -> None:
        """Keep the end or the cursor in sight."""
        self.changed()

    def on_mouse_scroll_down(self) -> None:
        """Wheel: three rows."""
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        """Wheel: three rows; stops following."""
        self.move(-3)
