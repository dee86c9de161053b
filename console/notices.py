"""What happened, for the line above the keys and its history. Nothing fails in silence. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

Ended = Callable[[], bool]
"""Whether the cause of a notice has ended."""

FRESH_S = {"bad": 30.0, "warn": 15.0}
"""How long a notice stays on the line, in seconds; others eight. All stay in the history."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened. ``role`` is ``bad``, ``warn``, ``ok`` or ``plain``.

    ``over`` tells when its cause has ended: then it is no longer on the line, whatever its age.
    """

    at: float
    text: str
    role: str = "plain"
    over: Ended | None = field(default=None, compare=False)


class Notices:
    """The newest 500 notices."""

    def __init__(self) -> None:
        self.all: deque[Notice] = deque(maxlen=500)
        self.unseen = 0

    def add(self, notice: Notice) -> None:
        """A new one; the same text as the last within a minute only moves its time."""
        if self.all and self.all[-1].text == notice.text and notice.at - self.all[-1].at < 60:
            self.all[-1] = notice
            return
        self.all.append(notice)
        self.unseen += 1

    def fresh(self, now: float) -> Notice | None:
        """The one to show on the line now, if it is still news."""
        if not self.all:
            return None
        newest = self.all[-1]
        if newest.over is not None and newest.over():
            return None
        return newest if now - newest.at < FRESH_S.get(newest.role, 8.0) else None

    def seen(self) -> None:
        """The history was looked at: the line is free again."""
        self.unseen = 0
