"""Whether a screen can be drawn on."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen


def stands(screen: Screen[Any]) -> bool:
    """Whether all widgets of a screen are there.

    They come one by one when it is opened and go one by one when it is closed, while timers,
    resizes and messages that were on their way reach it all the same.
    """
    parts = screen.children
    there = bool(parts) and all(part.is_mounted for part in parts)
    return there and screen.app.is_running and screen in screen.app.screen_stack
