"""A screen lets others have the loop between two of its messages, and draws a key at once.

Textual's pumps take message after message for as long as there are any: a screen that opens gets
some twenty at once, and a key waits for all of them.

Textual draws on a beat of a sixtieth of a second, and where one drawing came late it leaves out the
next: what a key has changed would wait for up to 40 ms with the loop idle.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from textual._styles_cache import StylesCache
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen, ScreenResultType
from textual.widget import Widget, _RenderCache

from console.turns import TURNS

STEP_S = 0.004
"""Work after which the loop is given away."""


class Yielding(Screen[ScreenResultType]):
    """What every screen of the console is made of."""

    _on_beat = False
    _shown_at = 0.0

    async def _dispatch_message(self, message: Message) -> None:
        begun = time.monotonic()
        await super()._dispatch_message(message)
        if time.monotonic() - begun > STEP_S:
            await asyncio.sleep(0)

    def _compositor_refresh(self) -> None:
        """Draw on the beat: a screen that opens is laid out three times before it."""
        if self._on_beat or not self.app._dom_ready:
            super()._compositor_refresh()
        else:
            self._repaint_required = True
            self.check_idle()

    def _on_timer_update(self) -> None:
        self._on_beat = True
        super()._on_timer_update()
        self._on_beat = False

    def on_screen_resume(self) -> None:
        """It is opened, or what was over it was closed."""
        self._shown_at = time.monotonic()

    def on_idle(self) -> None:
        """Draw now what a key has changed here; what it has opened comes in parts, on the beat."""
        changed = self._dirty_widgets or self._layout_required
        if changed and TURNS.answering and TURNS.pressed_at > self._shown_at:
            self._on_timer_update()


def forget_drawn(screen: Screen[Any]) -> None:
    """Let go of the drawn lines of a screen that is about to be closed.

    They are nine tenths of what it leaves, and need no collecting once nothing has them. Textual's
    cache of backgrounds keeps those of 1,024 closed widgets.
    """
    StylesCache.get_inner_outer.cache_clear()
    for widget in screen.walk_children(Widget, with_self=True):
        widget._styles_cache.clear()
        widget._render_cache = _RenderCache(Size(0, 0), [])


__all__ = ["Yielding", "forget_drawn"]
