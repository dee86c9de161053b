"""What the Pilot tests share: settle, read the screen as text."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from textual.pilot import Pilot
from textual.screen import Screen

from console.app import SpecopsApp
from console.screens.dialog import Dialog
from console.screens.preset_fields import Entry, Field

PATIENCE_S = 60.0
"""How long a busy machine may take for anything here; a free one takes milliseconds."""


def text(app: SpecopsApp) -> str:
    """The visible screen as plain text, line by line."""
    lines = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in lines)


async def settle(pilot: Pilot[None]) -> None:
    """Until the first views are drawn and nothing is pending."""
    app: Any = pilot.app
    await pilot.pause()
    await wait_for(
        pilot,
        lambda: (
            app.actions is not None
            and (not app.fleet.views or any(view.seen_at for view in app.views.values()))
        ),
        "the first views",
    )
    show(app)
    await pilot.pause()


def show(app: Any) -> None:
    """Draw now what the next tick would draw."""
    app._drawn_at = 0.0
    app._dirty = True
    app.tick()


async def wait_for(pilot: Pilot[None], condition: Any, what: str) -> None:
    """Give background work its turns until something is so; bounded."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError(f"never happened: {what}\n{text(pilot.app)}")  # type: ignore[arg-type]


DialogT = TypeVar("DialogT", bound=Dialog[Any])


async def seen(pilot: Pilot[None], kind: type[DialogT]) -> DialogT:
    """The dialog of this kind, once it was drawn: what is typed before cannot answer it."""
    app = pilot.app
    await wait_for(
        pilot,
        lambda: isinstance(app.screen, kind) and app.screen.drawn_at is not None,
        f"{kind.__name__} is drawn",
    )
    assert isinstance(app.screen, kind)
    return app.screen


def entry_of(form: Screen[Any], name: str) -> Entry:
    """The entry of a setting in the form of a preset."""
    rows = form.query(Field).results(Field)
    return next(row.entry for row in rows if row.name_of == name)
