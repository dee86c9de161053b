"""Keys typed ahead: each acts on what the one before it has opened, in the order typed.

Textual sends a key to whatever has the focus when it arrives, although the key before it may still
be on its way to opening a screen or an input line. Here a key waits until the one before it has
had its whole effect. What must not be answered unseen is not: see :meth:`Dialog.too_early`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from textual.events import Event, Key, Paste
from textual.message_pump import MessagePump
from textual.worker import Worker, WorkerCancelled, WorkerFailed

from console.garbage import GARBAGE, REST_S
from console.screens.dialog import Dialog
from console.turns import TURNS

if TYPE_CHECKING:
    from console.app import SpecopsApp

_ROUNDS = 20
"""Rounds without rest (a log pours in) after which the next key goes on all the same."""

_LOOK_AGAIN_S = 0.05
"""How often it is looked whether a widget that is waited for is still there."""


class Keyboard:
    """Hands the keys on, one at a time."""

    def __init__(self, app: SpecopsApp) -> None:
        self._app = app
        self._waiting: deque[Key | Paste] = deque()
        self._due: Event | None = None
        self._opening: list[Worker[None]] = []
        self._reached: list[MessagePump] = []
        self._task: asyncio.Task[None] | None = None
        self._resting: asyncio.TimerHandle | None = None

    def keeps(self, event: Event) -> bool:
        """Whether this event is not for the application now: it waits its turn, or was refused."""
        if not isinstance(event, Key | Paste) or event.is_forwarded:
            return False
        TURNS.key()
        self._rest()
        if event is not self._due:
            typed = self._as_typed(event)
            if self._busy or typed != [event]:
                self._waiting.extend(typed)
                self.attend()
                return True
            self.attend()
        self._reached = self._path()
        screen = self._app.screen
        return isinstance(screen, Dialog) and screen.too_early(event)

    def attend(self) -> None:
        """Begin to hand on: keys from now on wait for what is under way."""
        if not self._busy:
            self._task = asyncio.get_running_loop().create_task(self._hand_on())

    def opens(self, work: Worker[None]) -> None:
        """Keys from now on are for what this short work is about to open."""
        self._opening.append(work)
        self.attend()

    def again(self, events: Iterable[Key | Paste]) -> None:
        """Hand these on before all others: they were meant for what is being opened now."""
        for event in reversed(list(events)):
            again = event.copy() if isinstance(event, Key) else Paste(event.text)
            again.time = event.time
            self._waiting.appendleft(again)
        self.attend()

    def stop(self) -> None:
        """Hand on nothing more."""
        if self._task is not None:
            self._task.cancel()
        if self._resting is not None:
            self._resting.cancel()

    def _rest(self) -> None:
        """What the keys of this moment have left is collected as soon as there is a pause."""
        if self._resting is not None:
            self._resting.cancel()
        loop = asyncio.get_running_loop()
        self._resting = loop.call_later(1.1 * REST_S, GARBAGE.collect)

    @property
    def _open(self) -> bool:
        return self._app.is_running and self._app.return_code is None

    @property
    def _busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def _as_typed(self, event: Key | Paste) -> list[Key | Paste]:
        """Esc and a letter within the terminal's escape time come as Alt and the letter."""
        if not isinstance(event, Key) or not event.key.startswith("alt+") or not event.character:
            return [event]
        if any(event.key in action.keys for action in self._app.keys.table):
            return [event]
        typed: list[Key | Paste] = [Key("escape", "\x1b"), Key(event.character, event.character)]
        for key in typed:
            key.time = event.time
        return typed

    # ---- one after the other

    async def _hand_on(self) -> None:
        await self._settled()
        while self._waiting and self._open:
            self._due = self._waiting.popleft()
            self._app.post_message(self._due)
            await self._settled()

    async def _settled(self) -> None:
        """Until the last key has had its effect: screens and lines it opened have the keys.

        The effect climbs from the widget that got the key through its parents to the application,
        and may open something whose first messages climb the same way; so rounds are made until
        nothing is left anywhere and the focus is where it was a round before.
        """
        while self._opening and self._open:
            with suppress(WorkerFailed, WorkerCancelled):
                await self._opening.pop().wait()
        before: list[MessagePump] = []
        for _ in range(_ROUNDS):
            if not self._open:
                break
            path = self._path()
            for pump in (self._app, *self._reached, *path):
                await self._idle(pump)
            rest = not any(pump.message_queue_size for pump in path)
            if rest and path == before == self._path():
                break
            before = path

    def _path(self) -> list[MessagePump]:
        """What a key passes now: from the widget with the focus to the application."""
        target = self._app.focused or self._app.screen
        return list(target.ancestors_with_self)

    async def _idle(self, pump: MessagePump) -> None:
        """Until a widget has done all it was sent, or is gone."""
        done = asyncio.Event()
        pump.call_next(done.set)
        while not done.is_set() and self._open and (pump is self._app or pump.is_attached):
            try:
                await asyncio.wait_for(done.wait(), _LOOK_AGAIN_S)
            except TimeoutError:
                pump.check_idle()  # it may have begun only now


__all__ = ["Keyboard"]
