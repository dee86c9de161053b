"""Judges the log on the screen whenever an error comes: the root, its victims and the fix."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from console.logs.judged import Judged, end_of, judged
from widgets.paint import Line, line, wrap
from widgets.words import safe

if TYPE_CHECKING:
    from console.screens.base import Place
    from widgets.log_view import LogView

QUIET_S = 0.2
"""So long after an error the rest of it has come."""

SHARE = 20
"""A log of many errors is judged for at most a twentieth of the time."""


class Judging:
    """For one screen with one log view; :meth:`look` is called whenever the log has changed."""

    def __init__(self, screen: Place, view: LogView) -> None:
        self._screen, self._view = screen, view
        self._seen: tuple[int, int] = (0, 0)
        self._due = False
        self._free_at = 0.0

    def look(self) -> None:
        """Judge soon, if there are errors that were not judged yet."""
        if self._due or self._now() == self._seen or not self._view.store.errors:
            return
        self._due = True
        wait_s = max(QUIET_S, self._free_at - time.monotonic())
        self._view.set_timer(wait_s, self._begin)

    def _now(self) -> tuple[int, int]:
        return id(self._view.store), len(self._view.store.errors)

    def _begin(self) -> None:
        self._screen.run_worker(self._judge(), group="judge", exit_on_error=False)

    async def _judge(self) -> None:
        from console.diagnosis import diagnose  # noqa: PLC0415 - its rules load when needed

        store, self._seen = self._view.store, self._now()
        began = time.monotonic()
        first, data = end_of(store)
        found = await asyncio.to_thread(diagnose, data)
        self._free_at = time.monotonic() + SHARE * (time.monotonic() - began)
        self._due = False
        if self._view.store is store:
            self._view.judge(judged(found, first, store))
            self.look()


def cause_lines(verdict: Judged | None, width: int, *, low: bool = False) -> list[Line]:
    """The verdict in at most six rows: what was raised, what it means and the fix, two rows each.

    The message stands here whole: its numbers are what is wanted, and its line above may be cut.
    In a ``low`` window its meaning is left out where the message says something.
    """
    if verdict is None:
        return []
    found = verdict.diagnosis
    rows: list[Line] = []
    root, means = found.root, found.explanation
    if root is not None:
        place = f"{root.file.rpartition('/')[2]}:{root.line}" if root.file else ""
        head = " ".join(filter(None, ("✖", verdict.rank, root.type.rpartition(".")[2], place)))
        said = root.message.strip().partition("\n")[0]
        if not said:
            said, means = means, ""
    else:
        head, said, means = f"✖ {found.category}", found.summary, ""
    rows += _labelled((f" {safe(head)}  ", "bad"), safe(said), width)
    if means and not low:
        rows += _labelled((" Means  ", "strong"), safe(means), width)
    if found.fix:
        rows += _labelled((" Fix  ", "strong"), safe(found.fix.replace("\n", " ")), width)
    return rows


def _labelled(label: tuple[str, str], text: str, width: int) -> list[Line]:
    """Text behind its label in one row, or two: beside it where it is short, else below."""
    used = len(label[0])
    if used + len(text) < width or used <= 8:
        first, *rest = wrap(text, max(20, width - used - 1), limit=2)
        return [line(label, first), *(line(" " * used, part) for part in rest)]
    first, *rest = wrap(text, max(20, width - used - 1))
    rest = wrap(" ".join(rest), width - 5, limit=1) if rest else []
    return [line(label, first), *(line("    ", part) for part in rest)]
