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
_INDENTED = re.compile(r" +(?:\[[^|]*|\w[^|]*)?Traceback \(most recent call last\): *$")
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
        yield _within(parse(more, line.number), line)
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
    bare = [_bare(line, shapes) for line in lines] if shapes else lines
    return list(_dedented(bare)) if any(map(_is_indented, bare)) else bare


def _is_indented(line: Line) -> bool:
    return line.text.startswith(" ") and _INDENTED.match(line.text) is not None


def _dedented(lines: list[Line]) -> Iterator[Line]:
    """The lines with tracebacks that were indented as a whole moved back to the margin."""
    indent = ""
    for line in lines:
        if _is_indented(line):
            indent = line.text[: len(line.text) - len(line.text.lstrip(" "))]
        if not indent or not line.text.startswith(indent):
            indent = indent if not line.text.strip() else ""
            yield line
            continue
        inner = parse(line.text[len(indent) :], line.number)
        yield _within(inner, line)


def _bare(line: Line, shapes: list[re.Pattern[str]]) -> Line:
    for shape in shapes:
        if match := shape.match(line.text):
            return _within(parse(line.text[match.end() :], line.number), line)
    return line


def _within(inner: Line, line: Line) -> Line:
    """A line out of another one, with what the outer one told."""
    return inner._replace(
        rank=inner.rank or line.rank,
        time=line.time if inner.time is None else inner.time,
        stream=inner.stream or line.stream,
    )
