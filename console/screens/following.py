"""Keeps a log view fed from a host: one task, batches, a line for everything that happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol

from console.errors import SpecopsError
from console.logs.store import EVENTS, LogStore
from console.remote import LogChunk, LogSource
from console.turns import TURNS
from widgets.log_view import LogView
from widgets.words import safe

if TYPE_CHECKING:
    from console.screens.base import Place

DRAW_S = 0.05
"""For so long what comes is collected before it is drawn."""

POUR_S = 0.1
"""Shortest time between two drawings of a log that goes on pouring in: nobody reads faster."""

DRAW_WORK_S = 0.03
"""CPU time between two drawings of a log that pours in; drawing takes a third of that."""

SLOWEST_S = 0.3
"""A log that pours in is drawn at least so often, however slow the machine."""

PIECE = 32 * 1024
"""Bytes taken in at a time: a chunk of any size never holds the event loop."""

SETTLE_S = 0.25
"""A cursor that only passes over a server opens no log there."""


class Tail(Protocol):
    """What gives the chunks of a log: ``ActionsPort.tail`` or ``console.logs.localtail.tail``."""

    def __call__(
        self, host: str, source: LogSource, *, last_lines: int | None = None
    ) -> AsyncIterator[LogChunk]:
        """From the start, or from the last lines."""


class Following:
    """Follows one log at a time for one screen."""

    def __init__(
        self, screen: Place, *, last_lines: int | None = None, tail: Tail | None = None
    ) -> None:
        self._screen = screen
        self._tail = tail
        self._last_lines = last_lines
        self._source: tuple[str, LogSource] | None = None
        self._task: asyncio.Task[None] | None = None
        self._paused = False
        self._due = False
        self._more = False  # more came since the drawing was asked for
        self._drawn = (0.0, 0.0)  # CPU time and time of the last drawing
        self.lag_bytes: int | None = None
        """How far the host's log was ahead of the last chunk; ``None`` before the first."""

    def follow(self, host: str | None, source: LogSource | None, view: LogView) -> None:
        """Follow this log in the view, unless that is what is being done."""
        actions = self._screen.specops.actions
        tail = self._tail or (actions.tail if actions is not None else None)
        wanted = (host, source) if host is not None and source is not None else None
        if wanted is None and len(view.store):  # also after a stop: what was shown is of another
            self.stop()
            view.replace(LogStore())
        again = self._paused and wanted == self._source
        if (wanted == self._source and not again) or tail is None:
            return
        self.stop()
        self._source = wanted
        if not again:
            view.replace(LogStore())
        if wanted is not None:
            run = self._run(tail, wanted[0], wanted[1], view, again=again)
            self._task = asyncio.get_running_loop().create_task(run)

    def pause(self) -> None:
        """Out of sight: what is shown stays, and nothing is read until :meth:`follow`."""
        if self._task is not None:
            self._task.cancel()
            self._task, self._paused = None, True

    def stop(self) -> None:
        """Follow nothing."""
        if self._task is not None:
            self._task.cancel()
        self._task, self._source, self._paused = None, None, False
        TURNS.lag_bytes = 0

    async def _run(
        self, tail: Tail, host: str, source: LogSource, view: LogView, *, again: bool
    ) -> None:
        if self._last_lines is not None and not again:
            await asyncio.sleep(SETTLE_S)
        store = view.store
        try:
            async for chunk in tail(host, source, last_lines=self._last_lines):
                if again:  # what stood here until now is read anew
                    again = False
                    view.replace(LogStore())
                    store = view.store
                self.lag_bytes = TURNS.lag_bytes = chunk.lag_bytes
                if chunk.gap_bytes:
                    store.gap(chunk.gap_bytes)
                if chunk.event:
                    store.note(f"log {safe(EVENTS.get(chunk.event, chunk.event))}")
                self._later(view)
                for at in range(0, len(chunk.data), PIECE):
                    store.append(chunk.data[at : at + PIECE])
                    self._later(view)  # a drawing asked for earlier may have been made already
                    await TURNS.give()
        except SpecopsError as error:
            store.note(f"log lost: {safe(str(error))}")
            self._screen.report(error)
        finally:
            if view.is_attached:
                view.changed()

    def _later(self, view: LogView) -> None:
        """One drawing for all that comes within a moment."""
        self._more = True
        if not self._due:
            self._due, self._more = True, False
            waited = time.monotonic() - self._drawn[1]
            view.set_timer(max(DRAW_S, POUR_S - waited), lambda: self._draw(view))

    def _draw(self, view: LogView) -> None:
        """Draw, or first what is more urgent: a key, and on a slow machine what keeps coming."""
        self._due = False
        worked, waited = time.thread_time() - self._drawn[0], time.monotonic() - self._drawn[1]
        busy = TURNS.aside or (self._more and worked < DRAW_WORK_S)
        if busy and waited < SLOWEST_S:
            self._later(view)
            return
        self._drawn = (time.thread_time(), time.monotonic())
        view.changed()
