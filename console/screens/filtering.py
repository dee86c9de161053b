"""What screens with a filtered, sorted, marked table share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from textual import events

from console import query
from console.errors import SpecopsError
from console.screens.base import Place
from console.screens.moving import Movable
from console.screens.standing import stands
from widgets.paint import Lines, fit, line
from widgets.prompt import Prompt
from widgets.table import Table
from widgets.words import safe

T = TypeVar("T")


class TablePlace(Place, Generic[T]):
    """A place whose main part is a table. Subclasses give rows and what may be asked of them."""

    SORTS: tuple[str, ...] = ()
    HINT = ""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = ""
        self.order = self.SORTS[0] if self.SORTS else ""
        self.backwards = False

    @property
    def table(self) -> Table[T]:
        """The table."""
        raise NotImplementedError

    def all_rows(self) -> Sequence[T]:
        """Every row, in the screen's own order."""
        raise NotImplementedError

    def facts(self, row: T) -> dict[str, str | float | None]:
        """What the filter language can ask of a row."""
        raise NotImplementedError

    def sorted_rows(self, rows: Sequence[T]) -> Sequence[T]:
        """The rows in the chosen order."""
        return rows

    def narrowed(self) -> str:
        """The filter in use."""
        return f"/{safe(self.wanted)}" if self.wanted else ""

    def shown_rows(self) -> Sequence[T]:
        """The rows that the filter keeps, sorted."""
        rows = self.all_rows()
        if self.wanted and rows:
            test = query.parse(self.wanted, self.facts(rows[0]))
            rows = [row for row in rows if test(self.facts(row))]
        return self.sorted_rows(rows)

    def movable(self) -> Movable:
        """The rows."""
        return self.table

    def on_key(self, _event: events.Key) -> None:
        """Whatever is pressed first, it is meant for the row that the cursor is on now."""
        self.table.hold()

    def on_table_moved(self) -> None:
        """The cursor is on another row."""
        if stands(self):
            self.moved()
            self.show_keys()

    def moved(self) -> None:
        """Show what goes with the row of the cursor."""

    def on_table_opened(self) -> None:
        """Double click."""
        opener: Callable[[], None] | None = getattr(self, "action_open", None)
        if opener is not None:
            opener()

    # ---- keys

    def action_filter(self) -> None:
        """``/``."""
        history = self.specops.lines.history(f"{self.SCOPE}/")
        self.ask(Prompt("/", value=self.wanted, placeholder=self.HINT, history=history))
        rows = self.all_rows()
        fields = ", ".join(self.facts(rows[0])) if rows else ""
        text = fit(f" / words must all match, !word none; fields: {fields}", self.size.width)
        self.query_one("#hint", Lines).show([line((text.rstrip(), "dim"))])

    def given(self, what: str, text: str | None) -> None:
        """A filter, checked before it is taken."""
        if text is None:
            return
        rows = self.all_rows()
        try:
            query.parse(text, self.facts(rows[0]) if rows else {})
        except SpecopsError as error:
            self.report(error)
            return
        self.wanted = text.strip()
        if self.wanted:
            self.specops.lines.history(f"{self.SCOPE}/").insert(0, self.wanted)
        self.views_changed()

    def action_back(self) -> None:
        """Clear the filter, then the marks, then go back."""
        if self.wanted:
            self.wanted = ""
            self.views_changed()
        elif self.table.marked:
            self.table.unmark()
        else:
            super().action_back()

    def action_sort(self) -> None:
        """``o``: the same column again reverses."""
        from console.screens.choose import Choose  # noqa: PLC0415 - when asked for

        options = [
            (name, "now; again reverses" if name == self.order else "") for name in self.SORTS
        ]
        self.app.push_screen(Choose("sort by", options, self.order), self._ordered)

    def _ordered(self, name: str | None) -> None:
        if name is not None:
            self.backwards = name == self.order and not self.backwards
            self.order = name
            self.views_changed()

    def action_mark(self) -> None:
        """Space."""
        self.table.toggle_mark()

    def action_mark_all(self) -> None:
        """``*``."""
        self.table.mark_all()

    def action_unmark(self) -> None:
        r"""``\``."""
        self.table.unmark()
