"""What was closed is gone: an operator's console runs for days."""

from __future__ import annotations

import gc
from typing import TypeVar

from textual._styles_cache import StylesCache
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from tests.functional.console import fake
from tests.functional.console.steps import settle, wait_for

Kind = TypeVar("Kind")


async def test_closed_screens_and_what_was_drawn_on_them_leave_memory() -> None:
    app, *_ = fake.app()
    # Of tests before this one, in the same process; what they have let go is let go here.
    gc.collect()
    others = [*_alive(Screen), *_alive(StylesCache)]
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        for _ in range(3):
            for keys in ("2 escape", "enter l escape escape", "4 a 1", "question_mark escape"):
                await pilot.press(*keys.split())
                await pilot.pause()
        await wait_for(pilot, lambda: len(app.screen_stack) == 2, "only the fleet")
        known = {id(thing) for thing in (*others, *app.screen_stack)}

        def gone() -> bool:
            gc.collect()
            closed = [screen for screen in _screens() if id(screen) not in known]
            # One may be left: Textual holds the one that was closed last.
            return len(closed) <= 1 and all(id(cache) in known for cache in _caches())

        await wait_for(pilot, gone, "closed screens and their drawn lines leave memory")


async def test_what_was_drawn_goes_without_being_collected() -> None:
    app, *_ = fake.app()
    gc.collect()
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for keys in ("2 escape", "4 a 1", "question_mark escape"):
                await pilot.press(*keys.split())
                await wait_for(pilot, lambda: len(app.screen_stack) == 2, "only the fleet")
            gc.collect()
            left = sum(type(thing) is Strip for thing in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert left < 20


def _alive(kind: type[Kind]) -> list[Kind]:
    """All objects of a kind. By type(): to be asked for its __class__ makes torch warn."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def _screens() -> list[Screen[object]]:
    return _alive(Screen)


def _caches() -> list[StylesCache]:
    """Caches of drawn lines that no widget owns any more."""
    owned = {id(widget._styles_cache) for widget in _alive(Widget)}
    return [cache for cache in _alive(StylesCache) if id(cache) not in owned]
