"""Whether a screen can still be drawn on."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen


def stands(screen: Screen[Any]) -> bool:
    """Whether all widgets of a screen are there.

    One that is being closed loses them one by one, while timers, resizes and messages that were on
    their way still reach it.
    """
    composed = bool(screen.children)
    return composed and screen.app.is_running and screen in screen.app.screen_stack
