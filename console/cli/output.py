"""What the command line prints: JSON documents, aligned tables, colour only where it is wanted."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from console.errors import ConfigError, SpecopsError

STYLES: Mapping[str, str] = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36",
}  # fmt: skip


ERROR_LIMIT = 2000
"""Characters of an error that are shown: an argument may be as long as the system allows."""


def standard_streams() -> None:
    """Make the three streams usable however the process was started.

    A closed one leads nowhere instead (else the next file opened would take its number), and a
    character that the terminal's encoding lacks is escaped instead of ending the command.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def lead_nowhere(stream: TextIO) -> None:
    """What is still written to this stream, Python's own flush at exit too, is thrown away."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _write(stream: TextIO, text: str) -> None:
    """Write at once. That the reader has gone (``| head``) never ends a plan half-way."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        lead_nowhere(stream)


def print_json(document: Mapping[str, Any]) -> None:
    """One document on stdout, with the schema first."""
    import json

    from console.model import SCHEMA  # the dataclasses cost a third of what --help may

    body = {"schema": SCHEMA, **document}
    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    text = json.dumps(body, indent=2, ensure_ascii=ascii_only, allow_nan=False)
    _write(sys.stdout, text + "\n")


def error_document(error: SpecopsError) -> dict[str, Any]:
    """An error as the contract shapes it; where a file has several mistakes, all of them too."""
    told = [_told(one) for one in (error.each if isinstance(error, ConfigError) else (error,))]
    return {"error": told[0]} | ({"errors": told} if len(told) > 1 else {})


def _told(error: SpecopsError) -> dict[str, str]:
    from console.text import clean

    return {
        "code": error.code,
        "message": clean(error.message, limit=ERROR_LIMIT),
        "place": clean(error.place, limit=ERROR_LIMIT),
        "hint": clean(error.hint, limit=ERROR_LIMIT),
    }


def warn(text: str, *, head: str = "") -> None:
    """A diagnostic on stderr: stdout stays one document or one table."""
    _write(sys.stderr, f"{head}: {text}\n" if head else f"{text}\n")


def say(text: str = "") -> None:
    """A line for people on stdout."""
    _write(sys.stdout, text + "\n")


class ReaderGone(Exception):
    """Nobody reads stdout any more, and nothing else is being done."""


def say_while_read(text: str) -> None:
    """A line of an output without end.

    Raises:
        ReaderGone: whoever read it has seen enough (``specops logs -f | head``).
    """
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        lead_nowhere(sys.stdout)
        raise ReaderGone from None


def coloured() -> bool:
    """Whether stdout takes colour: a terminal, NO_COLOR unset, TERM not dumb."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def paint(text: str, *styles: str) -> str:
    """The text in a style where colour is wanted. Every state is also said in words."""
    if not styles or not coloured():
        return text
    return f"\x1b[{';'.join(STYLES[s] for s in styles)}m{text}\x1b[0m"


NO_TERMINAL = 1 << 16
"""Wider than any line that is printed."""


def width() -> int:
    """Columns to use: the terminal's; what goes to a file or a pipe is not cut."""
    if not sys.stdout.isatty():
        return NO_TERMINAL
    try:
        return max(40, os.get_terminal_size(sys.stdout.fileno()).columns)
    except OSError:
        return 80


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata

    total = 0
    for char in text:
        if not unicodedata.combining(char):
            total += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return total


def fit(text: str, columns: int) -> str:
    """The text cut to a width, with an ellipsis where something was cut."""
    if cells(text) <= columns:
        return text
    out = ""
    for char in text:
        if cells(out + char) > columns - 1:
            break
        out += char
    return out + "…"


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """The text filled with spaces to a width."""
    gap = " " * max(0, columns - cells(text))
    return gap + text if right else text + gap


def table(
    rows: Sequence[Sequence[str]], heads: Sequence[str] = (), *, right: Sequence[int] = ()
) -> list[str]:
    """Aligned lines; columns in ``right`` line up at the right, lines are cut to the width."""
    grid = [list(heads), *map(list, rows)] if heads else [list(row) for row in rows]
    if not grid:
        return []
    widths = [max(cells(row[i]) for row in grid) for i in range(len(grid[0]))]
    out: list[str] = []
    for number, row in enumerate(grid):
        parts = [
            cell if i == len(row) - 1 and i not in right else pad(cell, widths[i], right=i in right)
            for i, cell in enumerate(row)
        ]
        line = fit("  ".join(parts).rstrip(), width())
        out.append(paint(line, "bold") if heads and number == 0 else line)
    return out


def mib(value: float | None) -> str:
    """MiB with thousands apart, ``?`` where unknown."""
    return "?" if value is None else f"{value:,.0f}".replace(",", " ")


def duration(seconds: float | None) -> str:
    """A duration as an operator says it: 4 s, 3 min 20 s, 8 h 12 min; ``?`` where unknown."""
    if seconds is None:
        return "?"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def number(value: float | None, digits: int = 0) -> str:
    """A number, ``?`` where unknown."""
    return "?" if value is None else f"{value:.{digits}f}"
