"""A drawn line goes when nothing has it any more."""

from __future__ import annotations

import sys

from rich.segment import Segment
from textual.strip import Strip

from widgets import strips


def test_a_line_that_is_not_cut_has_no_hold_on_itself() -> None:
    assert Strip.divide is strips.divide
    strip = Strip([Segment("abc"), Segment("def")])
    before = sys.getrefcount(strip)
    parts = strip.divide([6])
    assert parts == [strip]
    del parts
    after = sys.getrefcount(strip)
    assert after == before


def test_lines_are_cut_as_before() -> None:
    strip = Strip([Segment("abc"), Segment("def")])
    assert [part.text for part in strip.divide([2, 6])] == ["ab", "cdef"]
    assert [part.text for part in strip.divide([2, 6, 9])] == ["ab", "cdef"]
    assert [part.text for part in strip.divide([6, 9])] == ["abcdef"]
