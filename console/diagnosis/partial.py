"""Lines that a container runtime cut into several entries, made whole again.

Docker's json-file driver and the CRI format cut at 16 KiB; only the last part ends the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

_CRI = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)? std(?:out|err) ([FP]) ")
_MAX_PARTS = 256


def _is_cut(raw: bytes) -> bool:
    """Whether an entry looks as if its line goes on in the next one. Cheap: asked of every line."""
    if raw.startswith(b"{"):
        return b'"log":' in raw[:16] and b'\\n",' not in raw and b'\\n"}' not in raw
    match = _CRI.match(raw) if raw.startswith(b"20") else None
    return match is not None and match[1] == b"P"


def _part(raw: bytes) -> bytes | None:
    """The text of one entry, ``None`` for a line that is no entry of a runtime."""
    if match := _CRI.match(raw):
        return raw[match.end() :]
    try:
        text = json.loads(raw)["log"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return text.encode("utf-8", "backslashreplace") if isinstance(text, str) else None


def whole_lines(pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The numbered lines with the parts of one line joined; it keeps its first part's number."""
    held: list[bytes] = []
    first = 0
    for number, raw in pieces:
        cut = _is_cut(raw)
        if not held and not cut:
            yield number, raw
            continue
        first = first if held else number
        part = _part(raw)
        if part is not None:
            held.append(part)
            if cut and len(held) < _MAX_PARTS:
                continue
        if held:
            yield first, b"".join(held).rstrip(b"\n")
        if part is None:
            yield number, raw
        held = []
    if held:
        yield first, b"".join(held)
