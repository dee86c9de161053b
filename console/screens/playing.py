"""What a screen does while a recording plays: hold, seek, other speeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from console.screens.yielding import Yielding

if TYPE_CHECKING:
    from console.app import SpecopsApp


class Playing(Yielding[None]):
    """The part of every place that moves in a recording; without one its keys do not exist."""

    @property
    def specops(self) -> SpecopsApp:
        """The application, with its own type."""
        return cast("SpecopsApp", self.app)

    def show_head(self) -> None:
        """Where the recording stands, among other things."""

    def views_changed(self) -> None:
        """Draw what the recording shows now."""

    def reread(self) -> None:
        """Show logs from their start again: the recording was moved."""

    def action_pause(self) -> None:
        """Space."""
        if (player := self.specops.player) is not None:
            player.pause(not player.paused)
            self.show_head()

    def action_earlier(self) -> None:
        """``←``."""
        self._seek(-10.0)

    def action_later(self) -> None:
        """``→``."""
        self._seek(10.0)

    def action_much_earlier(self) -> None:
        """``{``."""
        self._seek(-600.0)

    def action_much_later(self) -> None:
        """``}``."""
        self._seek(600.0)

    def _seek(self, delta: float) -> None:
        if (player := self.specops.player) is not None:
            self.go_to_moment(player.position + delta)

    def go_to_moment(self, position: float) -> None:
        """To a moment of the recording, in seconds from its start."""
        if (player := self.specops.player) is not None:
            player.seek(position)
            self.reread()
            self.views_changed()

    def action_slower(self) -> None:
        """``<``."""
        self._pace(0.5)

    def action_faster(self) -> None:
        """``>``."""
        self._pace(2.0)

    def _pace(self, factor: float) -> None:
        if (player := self.specops.player) is not None:
            player.speed = max(0.25, min(64.0, player.speed * factor))
            self.show_head()
