"""Textual's drawn lines, each without a hold on itself.

A line that is divided into one part, which is the line, is kept in its own cache: with its dozen
objects it then waits for the garbage collector, and a screen draws a hundred lines a second.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual.strip import Strip

_divide = Strip.divide


def divide(strip: Strip, cuts: Iterable[int]) -> list[Strip]:
    """The parts of a line between the cuts."""
    cuts = list(cuts)
    return [strip] if cuts == [strip.cell_length] else list(_divide(strip, cuts))


Strip.divide = divide  # type: ignore[method-assign, assignment] # no other way
