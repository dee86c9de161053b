"""The frame of every dialog: a box over the screen, its own keys, nothing happens on Enter."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widget import Widget

from widgets.paint import Line, Lines, line
from widgets.words import safe

if TYPE_CHECKING:
    from console.app import SpecopsApp

ResultT = TypeVar("ResultT")


class Dialog(ModalScreen[ResultT]):
    """A titled box with lines and a row of keys at its foot."""

    SCOPE: ClassVar[str] = ""
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", show=False)]

    @property
    def specops(self) -> SpecopsApp:
        """The application, with its own type."""
        return cast("SpecopsApp", self.app)

    def compose(self) -> ComposeResult:
        """The box."""
        box = Container(*self.body(), Lines(id="buttons"), id="box")
        box.border_title = safe(self.heading()).replace("[", r"\[")
        yield box

    def heading(self) -> str:
        """The title in the frame."""
        raise NotImplementedError

    def body(self) -> list[Widget]:
        """The widgets above the foot."""
        return [Lines(id="content")]

    def room(self) -> tuple[int, int]:
        """Columns and rows that the content may take."""
        return max(20, min(110, self.size.width * 92 // 100) - 4), max(4, self.size.height - 6)

    def foot(self, *buttons: tuple[str, str]) -> None:
        """The row of keys: (text, role)."""
        spans: Line = line(" ")
        for text, role in buttons:
            spans = (*spans, (text, role), ("   ", "plain"))
        self.query_one("#buttons", Lines).show([spans])

    def action_cancel(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)
