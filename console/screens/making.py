"""While a plan is being made: a dialog that says so at once and takes the keys meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.worker import Worker

from console.screens.dialog import Dialog
from widgets.paint import Lines, line


class Making(Dialog[None]):
    """Stands where the plan will stand.

    The keys that leave the plan's dialog give the plan up; all others wait for it, so that none
    goes to the screen behind. ``work`` makes the plan.
    """

    SCOPE: ClassVar[str] = "plan"

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self.work: Worker[None] | None = None
        self._then: Callable[[], None] | None = None
        self._typed: list[events.Key | events.Paste] = []

    def heading(self) -> str:
        """What the plan is for."""
        return self._title

    def on_mount(self) -> None:
        """Say what is going on."""
        self.query_one("#content", Lines).show([line(("making the plan…", "accent"))])
        self.foot(("[ Give up ]", "focus"))

    def over(self, then: Callable[[], None] | None = None) -> None:
        """The plan is made, or cannot be: close, and go on to what comes ``then``.

        A dialog that stands above this one, like a question of a login, is answered first.
        """
        self._then = then or (lambda: None)
        self._close()

    def on_screen_resume(self) -> None:
        """What stood above is gone."""
        self._close()

    def _close(self) -> None:
        if (then := self._then) is None or self.app.screen is not self:
            return
        self._then = None
        self.app.pop_screen()
        then()
        self.specops.keyboard.again(self._typed)

    # ---- keys

    def on_key(self, event: events.Key) -> None:
        """Kept for the plan's dialog."""
        leave = {key for a in self.specops.keys.on("plan") if a.id == "cancel" for key in a.keys}
        if event.key not in leave:
            event.stop()
            self._typed.append(event)

    def on_paste(self, event: events.Paste) -> None:
        """Kept for the plan's dialog."""
        event.stop()
        self._typed.append(event)

    def action_cancel(self) -> None:
        """Give the plan up."""
        self._typed.clear()
        if self.work is not None:
            self.work.cancel()
        self.over()
