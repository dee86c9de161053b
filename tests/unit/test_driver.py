"""What a terminal sends is the keys that were pressed, however the link has bundled it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from textual import events
from textual.drivers import linux_driver

from console.driver import KeyParser

TYPED = {
    "\x1b": ["escape"],
    "l": ["l"],
    "\x1b[A": ["up"],
    "\x1bOP": ["f1"],
    "\x1bl": ["alt+l"],  # split by the keyboard, unless it is a key of its own
    "\x1bL": ["alt+shift+l"],
    "\x1b/": ["escape", "slash"],
    "\x1b:": ["escape", "colon"],
    "\x1b?": ["escape", "question_mark"],
    "\x1b1": ["alt+1"],
    "\x1b ": ["escape", "space"],
    "\x1b\r": ["escape", "enter"],
    "\x1b!": ["escape", "exclamation_mark"],
    "\x1bj\x1bk": ["alt+j", "alt+k"],
    "\x1b/x": ["escape", "slash", "x"],
    "\x1b\x1b": ["escape", "escape"],
    "\x1b\x1b[B": ["escape", "down"],
    "\x1b\x1b/": ["escape", "escape", "slash"],
    "\x1b[": ["escape", "left_square_bracket"],
    "\x1bf": ["ctrl+right"],  # a word on, in input lines
}


def keys(*pieces: str) -> list[str]:
    """The keys of these pieces, with the terminal's escape time after the last."""
    parser = KeyParser()
    found = [event for piece in pieces for event in parser.feed(piece)]
    if parser._timeout_time is not None:
        parser._timeout_time = 0.0  # long ago
    found += parser.tick()
    return [event.key for event in found if isinstance(event, events.Key)]


@pytest.mark.parametrize("sent", TYPED)
def test_in_one_piece_and_byte_by_byte(sent: str) -> None:
    assert keys(sent) == TYPED[sent]
    assert keys(*sent) == TYPED[sent]


@pytest.mark.parametrize("pair", [p for p in pairwise(TYPED) if p[0] not in ("\x1b", "\x1b[")])
def test_one_after_the_other_without_a_pause(pair: tuple[str, str]) -> None:
    first, second = pair
    assert keys(first + second) == [*TYPED[first], *TYPED[second]]


def test_the_terminal_is_read_with_it() -> None:
    assert vars(linux_driver)["XTermParser"] is KeyParser
