"""The movement keys, for whatever a screen says they move."""

from __future__ import annotations

from typing import Protocol


class Movable(Protocol):
    """A widget that the movement keys move."""

    def move(self, delta: int) -> None:
        """By rows."""

    def page(self, delta: int) -> None:
        """By screens."""


class Moving:
    """The part of every place that moves."""

    def movable(self) -> Movable | None:
        """What the movement keys move."""
        return None

    def action_down(self) -> None:
        """One down."""
        if target := self.movable():
            target.move(1)

    def action_up(self) -> None:
        """One up."""
        if target := self.movable():
            target.move(-1)

    def action_page_down(self) -> None:
        """One screen down."""
        if target := self.movable():
            target.page(1)

    def action_page_up(self) -> None:
        """One screen up."""
        if target := self.movable():
            target.page(-1)

    def action_top(self) -> None:
        """The first."""
        if target := self.movable():
            target.move(-(1 << 30))

    def action_bottom(self) -> None:
        """The last."""
        if target := self.movable():
            target.move(1 << 30)
