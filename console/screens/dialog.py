"""The frame of every dialog: a box over the screen, its own keys, nothing happens on Enter."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from rich.console import RenderableType
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen
from textual.widget import Widget

from console.screens.behind import Behind
from console.screens.standing import stands
from console.screens.yielding import Yielding
from widgets.paint import Line, Lines, line, width_of

if TYPE_CHECKING:
    from console.app import SpecopsApp

ResultT = TypeVar("ResultT")


class Dialog(Yielding[ResultT], ModalScreen[ResultT]):
    """A titled box with lines and a row of keys at its foot."""

    SCOPE: ClassVar[str] = ""
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", show=False)]
    ANSWERS: ClassVar[tuple[str, ...]] = ()
    """Keys that begin something."""

    _buttons: tuple[tuple[str, str], ...] = ()
    unasked: bool = False
    """Whether it comes by itself: no key typed before it was seen is then meant for it."""

    @property
    def specops(self) -> SpecopsApp:
        """The application, with its own type."""
        return cast("SpecopsApp", self.app)

    def compose(self) -> ComposeResult:
        """The box."""
        from widgets.words import safe  # noqa: PLC0415 - not for the first frame

        box = Container(*self.body(), Foot(id="buttons"), id="box")
        box.border_title = safe(self.heading()).replace("[", r"\[")
        yield box

    def render(self) -> RenderableType:
        """The screen behind it."""
        made = super().render()
        return cast("RenderableType", Behind(made)) if isinstance(made, BackgroundScreen) else made

    @property
    def drawn_at(self) -> float | None:
        """When it was first on the screen, on the clock of the events."""
        foot = next(iter(self.query(Foot)), None)
        return foot.drawn_at if foot else None

    def too_early(self, event: events.Key | events.Paste) -> bool:
        """Whether a key is dropped because it was typed before this could be seen."""
        seen = self.drawn_at is not None and event.time >= self.drawn_at
        early = not seen and self.needs_seeing(event)
        if early:
            self.dropped()
        return early

    def needs_seeing(self, event: events.Key | events.Paste) -> bool:
        """Whether a key is an answer that nobody can give before seeing what is asked."""
        return self.unasked or (isinstance(event, events.Key) and event.key in self.ANSWERS)

    def dropped(self) -> None:
        """A key was dropped; say so where it matters."""

    def heading(self) -> str:
        """The title in the frame."""
        raise NotImplementedError

    def body(self) -> list[Widget]:
        """The widgets above the foot."""
        return [Lines(id="content")]

    def room(self) -> tuple[int, int]:
        """Columns and rows that the content may take."""
        foot = max(1, len(self.query_one(Foot).lines))
        return self._width(), max(3, self.size.height - 5 - foot)

    def _width(self) -> int:
        return max(20, min(110, self.size.width * 92 // 100) - 4)

    def foot(self, *buttons: tuple[str, str]) -> None:
        """The keys: (text, role), in as many rows as they need, so that none is ever out of sight.

        Call it before :meth:`room` is asked for.
        """
        self._buttons = buttons
        self.query_one(Foot).show(packed(buttons, self._width()))

    def fill(self, lines: Sequence[Line], *, taken: int = 0) -> None:
        """Show the content, as much of it as there is room for: the keys below stay in sight.

        ``taken`` are the rows that other widgets need.
        """
        content = self.query_one("#content", Lines)
        content.styles.height = max(1, min(len(lines), self.room()[1] - taken))
        content.show(lines)

    def draw(self) -> None:
        """Draw the content anew, for the room that there is now."""

    def on_resize(self) -> None:
        """Everything for the new size."""
        if self.drawn_at is not None:
            self.foot(*self._buttons)
        self.call_after_refresh(self._draw_again)

    def _draw_again(self) -> None:
        if stands(self):
            self.draw()

    def action_cancel(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)


def packed(buttons: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """The keys in rows of a width; closer together where that spares a row."""
    for gap in (3, 1):
        rows: list[Line] = []
        used = 0
        for text, role in buttons:
            size = width_of(text) + gap
            if rows and used + size - gap <= width:
                rows[-1] = (*rows[-1], (" " * gap, "plain"), (text, role))
                used += size
            else:
                rows.append(line(" ", (text, role)))
                used = 1 + size
        if len(rows) == 1:
            break
    return rows


class Foot(Lines):
    """The row of keys, which says what can be answered; it notes when it was first drawn."""

    drawn_at: float | None = None

    def line_at(self, y: int) -> tuple[Line, str]:
        """The row."""
        if self.drawn_at is None and self.lines:
            self.drawn_at = time.monotonic()
        return super().line_at(y)
