"""Esc and the next key come in one read over a slow link: two keys, whichever the other is."""

from __future__ import annotations

import time
from typing import Any

from textual._xterm_parser import XTermParser

from console.keys import TABLE
from console.screens.host import HostScreen
from tests.functional.console import fake
from tests.functional.console.steps import settle, wait_for

NAMED = {"question_mark": "?", "colon": ":", "slash": "/", "exclamation_mark": "!",
         "ampersand": "&", "asterisk": "*", "space": " ", "enter": "\r",
         "less_than_sign": "<", "greater_than_sign": ">"}  # fmt: skip
"""``\\`` is left out: Esc and it end a terminal's own answer."""

KEYS = sorted(
    {key for action in TABLE for key in action.keys if len(key) == 1 or key in NAMED}
)  # fmt: skip


def events_of(sequence: str) -> list[Any]:
    """What the terminal library makes of a read, once it no longer waits for more."""
    parser = XTermParser()
    events = list(parser.feed(sequence))
    while not events:
        time.sleep(0.02)
        events += list(parser.tick())
    return events


async def test_both_keys_arrive() -> None:
    app, _, _ = fake.app()
    heard: dict[str, list[str]] = {}
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        keyboard: Any = app.keyboard
        for key in KEYS:
            events = events_of("\x1b" + NAMED.get(key, key))
            heard[key] = [part.key for one in events for part in keyboard._as_typed(one)]
    assert heard == {key: ["escape", key] for key in KEYS}


async def test_the_second_key_acts_on_what_the_first_went_back_to() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await wait_for(pilot, lambda: isinstance(app.screen, HostScreen), "host")
        driver: Any = app._driver
        for event in events_of("\x1b/"):
            driver.send_message(event)
        await wait_for(pilot, lambda: bool(app.screen.query("Prompt")), "a line to type in")
        assert len(app.screen_stack) == 2, "the fleet's, not the host's"
