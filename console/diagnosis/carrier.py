"""What wraps a log's lines and is known by no name: learned from the tracebacks inside it.

Every line of a traceback carries the same prefix up to its numbers. Where that prefix is none of
those that :mod:`console.phases.lines` knows, its shape is taken from the frames and removed. Some
collectors put a whole traceback on one line instead, with its line ends escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from console.phases.lines import Line, parse

_FRAME = '  File "'
_HEADER = "Traceback (most recent call last):"
_MAX_PREFIX = 200  # characters; longer ones are text that quotes a frame
_MAX_SHAPES = 8


def split(line: Line) -> Iterator[Line]:
    """The lines that one entry of a collector holds: itself, or each line of its traceback."""
    text = line.text
    if "Traceback (most" in text and "\\n" in text and "\n" not in text:
        text = text.replace("\\n", "\n").replace('\\"', '"')
    if "\n" not in text:
        yield line
        return
    first, *rest = text.rstrip("\n").split("\n")
    yield line._replace(text=first)
    for more in rest:
        inner = parse(more, line.number)
        yield inner._replace(rank=inner.rank or line.rank, stream=inner.stream or line.stream)
    yield line._replace(text="", fresh=False)  # the entry's end is the end of its message


def _unknown(prefix: str) -> str:
    """The part of a prefix that is left of what the parser would remove by itself."""
    for match in re.finditer(r"(?<= )(?=\S)", prefix):
        if parse(prefix[match.end() :] + "x").text == "x":
            return prefix[: match.end()]
    return prefix


def _shape(prefix: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\d+", r"\\d+", re.escape(prefix)))


def _shapes(lines: list[Line]) -> list[re.Pattern[str]]:
    """Shapes of prefixes that stand before frames and before the headers of their tracebacks."""
    found: dict[str, re.Pattern[str]] = {}
    for line in lines:
        at = line.text.find(_FRAME, 1, _MAX_PREFIX)
        if at < 1 or not line.text[:at].strip() or len(found) >= _MAX_SHAPES:
            continue
        shape = _shape(_unknown(line.text[:at]))
        found.setdefault(shape.pattern, shape)
    headers = [line.text for line in lines if line.text.find(_HEADER) > 0] if found else []
    return [s for s in found.values() if any(s.match(text) for text in headers)]


def unwrapped(lines: list[Line]) -> list[Line]:
    """The lines without a carrier's prefix that only this log shows."""
    shapes = _shapes(lines)
    return [_bare(line, shapes) for line in lines] if shapes else lines


def _bare(line: Line, shapes: list[re.Pattern[str]]) -> Line:
    for shape in shapes:
        if match := shape.match(line.text):
            inner = parse(line.text[match.end() :], line.number)
            return inner._replace(
                rank=inner.rank or line.rank,
                time=line.time if inner.time is None else inner.time,
                stream=inner.stream or line.stream,
            )
    return line
