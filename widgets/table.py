"""A table on the line API: draws visible rows only, and its cursor stays on a row's identity.

Rows are any objects; ``key`` gives each its identity and ``cells`` its text, asked for visible rows
only. When rows are re-sorted, come or go, the cursor stays with the key it was on: a key press must
never act on another row than the one the operator saw.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import set_cell_size
from textual import events
from textual.geometry import Region
from textual.message import Message

from widgets.paint import EMPTY, Line, Painted, fit, width_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, its width in cells, whether numbers line up on the right."""

    title: str
    width: int
    right: bool = False


def cell(spans: Line, width: int, *, right: bool = False) -> Line:
    """The spans in exactly ``width`` cells."""
    length = sum(width_of(text) for text, _ in spans)
    if length == width:
        return spans
    if length < width:
        pad = (" " * (width - length), "plain")
        return (pad, *spans) if right else (*spans, pad)
    out: list[tuple[str, str]] = []
    left = width - 1
    for text, role in spans:
        size = width_of(text)
        if size > left:
            out.append((set_cell_size(text, left) + "…", role))
            break
        out.append((text, role))
        left -= size
    return tuple(out)


class Table(Painted, Generic[T]):
    """Rows with a cursor and marks. The first line is the heading."""

    class Moved(Message):
        """The cursor is on another row."""

    class Opened(Message):
        """A row was double-clicked."""

    def __init__(
        self,
        key: Callable[[T], Hashable],
        cells: Callable[[T], Sequence[Line]],
        *,
        id: str | None = None,  # noqa: A002
        empty: str = "nothing",
    ) -> None:
        super().__init__(id=id)
        self._key_of = key
        self._cells_of = cells
        self._columns: Sequence[Column] = ()
        self._rows: Sequence[T] = ()
        self._places: dict[Hashable, int] = {}
        self._cursor = 0
        self._top = 0
        self._marks: set[Hashable] = set()
        self._held = False  # whether the operator has put the cursor anywhere
        self.empty_text = empty

    # ---- content

    def show(self, columns: Sequence[Column], rows: Sequence[T]) -> None:
        """Replace the rows; cursor and marks stay with their keys.

        When the cursor's row is gone it stays at its place in the list, so that the eye finds it.
        """
        held = self.cursor_key
        self._columns, self._rows = columns, rows
        self._places = {self._key_of(row): at for at, row in enumerate(rows)}
        self._marks &= self._places.keys()
        here = min(self._cursor, max(0, len(rows) - 1))
        self._cursor = self._places.get(held, here) if self._held else 0
        self._reveal()
        self.refresh()
        if self.cursor_key != held:
            self.post_message(self.Moved())

    @property
    def rows(self) -> Sequence[T]:
        """All rows, as sorted and filtered by the screen."""
        return self._rows

    @property
    def row(self) -> T | None:
        """The row of the cursor."""
        return self._rows[self._cursor] if self._cursor < len(self._rows) else None

    @property
    def cursor_key(self) -> Hashable | None:
        """The identity of the cursor's row."""
        return None if self.row is None else self._key_of(self.row)

    @property
    def marked(self) -> tuple[T, ...]:
        """The marked rows, in the order shown."""
        return tuple(row for row in self._rows if self._key_of(row) in self._marks)

    # ---- moving

    def hold(self) -> None:
        """From the first key on the cursor belongs to its row; until then it is on the first."""
        self._held = True

    def move(self, delta: int) -> None:
        """Move the cursor by rows."""
        self.move_to(self._cursor + delta)

    def move_to(self, at: int) -> None:
        """Put the cursor on a row by its place; beyond the ends means the ends."""
        self._held = True
        at = max(0, min(at, len(self._rows) - 1))
        if at != self._cursor:
            before, top = self._cursor, self._top
            self._cursor = at
            self._reveal()
            if self._top == top:
                rows = (Region(0, row - top + 1, self.size.width, 1) for row in (before, at))
                self.refresh(*rows)
            else:
                self.refresh()
            self.post_message(self.Moved())

    def select(self, key: Hashable) -> bool:
        """Put the cursor on the row of that identity, if it is there."""
        if key not in self._places:
            return False
        self.move_to(self._places[key])
        return True

    def page(self, delta: int) -> None:
        """Move by screens."""
        self.move(delta * max(1, self.size.height - 2))

    def _reveal(self) -> None:
        visible = max(1, self.size.height - 1)
        self._top = max(0, min(self._top, self._cursor, max(0, len(self._rows) - visible)))
        if self._cursor >= self._top + visible:
            self._top = self._cursor - visible + 1

    def on_resize(self) -> None:
        """Keep the cursor in sight."""
        self._reveal()

    # ---- marks

    def toggle_mark(self) -> None:
        """Mark or unmark the cursor's row and go on to the next."""
        key = self.cursor_key
        if key is not None:
            self._marks ^= {key}
            self.move(1)
            self.refresh()

    def mark_all(self) -> None:
        """Mark every row shown."""
        self._marks = set(self._places)
        self.refresh()

    def unmark(self) -> None:
        """Take every mark away."""
        self._marks.clear()
        self.refresh()

    # ---- drawing

    def line_at(self, y: int) -> tuple[Line, str]:
        """The heading, then visible rows."""
        if y == 0:
            head = "".join(fit(c.title, c.width, right=c.right) + " " for c in self._columns)
            return ((" " + head, "title"),), ""
        at = self._top + y - 1
        if at >= len(self._rows):
            blank = ((f"  {self.empty_text}", "dim"),) if y == 1 and not self._rows else EMPTY
            return blank, ""
        row = self._rows[at]
        marked = self._key_of(row) in self._marks
        here = at == self._cursor
        spans: list[tuple[str, str]] = [
            ("◆" if here and marked else "▸" if here else "•" if marked else " ", "mark")
        ]
        for column, content in zip(self._columns, self._cells_of(row), strict=True):
            spans.extend(cell(content, column.width, right=column.right))
            spans.append((" ", "plain"))
        return tuple(spans), "cursor" if here else ""

    # ---- mouse

    def on_click(self, event: events.Click) -> None:
        """One click moves the cursor, a double click opens."""
        at = self._top + event.y - 1
        if event.y > 0 and at < len(self._rows):
            self.move_to(at)
            if event.chain > 1:
                self.post_message(self.Opened())

    def on_mouse_scroll_down(self) -> None:
        """Wheel: three rows."""
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        """Wheel: three rows."""
        self.move(-3)
