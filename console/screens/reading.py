"""Text to read and leave: the output of a command, notices, a whole command line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from console.notices import Notices
from console.screens.dialog import Dialog
from console.screens.standing import stands
from widgets.paint import Line, Lines, line, wrap
from widgets.words import safe


class Reading(Dialog[None]):
    """Lines in a box, scrolled by the movement keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "cancel", show=False),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("g,home", "scroll(-1000000)", show=False),
        Binding("G,end", "scroll(1000000)", show=False),
        Binding("c", "copy", show=False),
    ]

    def __init__(
        self, title: str, lines: Sequence[tuple[str, str]], *, unasked: bool = False
    ) -> None:
        super().__init__()
        self.unasked = unasked
        self._title = title
        self._text = lines

    def heading(self) -> str:
        """The title."""
        return self._title

    def on_mount(self) -> None:
        """Draw."""
        self.foot(("j k  scroll", "key"), ("c  copy", "key"), ("[ Close ]", "focus"))
        self.draw()

    def show(self, title: str, lines: Sequence[tuple[str, str]]) -> None:
        """Other text, as of a command that has ended."""
        self._title, self._text = title, lines
        self.draw()

    def draw(self) -> None:
        """Wrap for the width."""
        if not stands(self):
            return
        width, _ = self.room()
        self.query_one("#box").border_title = safe(self.heading()).replace("[", r"\[")
        lines: list[Line] = [
            line((part, role)) for text, role in self._text for part in wrap(text, width)
        ]
        self.fill(lines)

    def action_scroll(self, delta: int) -> None:
        """Up or down."""
        self.query_one("#content", Lines).scroll_lines(delta)

    def action_copy(self) -> None:
        """All of it, by OSC 52."""
        self.specops.copy("\n".join(text for text, _ in self._text))


def notices_reading(notices: Notices) -> Reading:
    """The history of notices, newest first."""
    rows = [
        (f"{time.strftime('%H:%M:%S', time.localtime(notice.at))}  {notice.text}", notice.role)
        for notice in reversed(notices.all)
    ]
    return Reading("what happened", rows or [("nothing yet", "dim")])
