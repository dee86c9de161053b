"""``F``: the change that a diagnosis proposes, from the screens that show one."""

from __future__ import annotations

from console.model import Change
from console.screens.base import Place


class Fixing(Place):
    """A place about one server that may have failed."""

    def change(self) -> Change | None:
        """What the newest diagnosis of the server proposes."""
        state = self.server_state(*self.where())
        return state.diagnosis.change if state and state.diagnosis else None

    def can_fix(self) -> bool:
        """Whether there is anything to apply, and a server to apply it to."""
        return self.where()[1] is not None and self.change() is not None

    def action_fix(self) -> None:
        """Relaunch with that change, after its plan."""
        if not self.can_fix():
            self.specops.say("no diagnosis with a change to apply", "warn")
            return
        self.specops.propose("relaunch", *self.where(), present=True, change=self.change())
