"""The wire format, shared by the agent and its client: one JSON header line, then raw bytes.

A header is ``{"id": 7, "stream": "data", "len": 1024}`` with an optional ``meta`` object. What
arrives is hostile in both directions: sizes, depth and numbers are bounded, names repeat nowhere,
NaN and infinities are refused.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

MAX_HEADER = 16 * 1024
"""Bytes of a header line, newline included."""
MAX_PAYLOAD = 1 << 20
"""Bytes of one frame's payload; longer answers come in parts."""
MAX_ANSWER = 64 << 20
"""Bytes of one answer, all its parts together."""
MAX_DEPTH = 32
"""Levels of nesting in any JSON value."""
CHUNK = 16 * 1024
"""Bytes of one bulk frame: at 1 Mbit/s it holds up a control frame for 0.13 s."""
PIECE = 64 * 1024
"""Bytes of one frame of a log on a link so quick that it holds up a control frame no longer."""
STREAM_CREDIT = 256 * 1024
"""Bytes of one stream that its reader has not consumed yet."""
HEARTBEAT_S = 5.0
"""Seconds between two pings of the client; three unanswered ones are a lost host."""
SILENCE_S = 30.0
"""Seconds without any frame from the client after which the agent ends itself."""


class WireError(Exception):
    """What arrived is not this protocol."""


class Header(NamedTuple):
    """One frame's header: which call, what kind of frame, bytes that follow, and extras."""

    id: int
    stream: str
    length: int
    meta: dict[str, Any]


def dumps(value: Any) -> bytes:
    """Compact JSON as ASCII bytes; raises ``ValueError`` for NaN and infinities."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def loads(data: bytes) -> Any:
    """Strict JSON: no NaN, no infinities, 64-bit integers, unique names, bounded depth."""
    try:
        value = json.loads(
            data,
            parse_constant=_no_constant,
            parse_int=_bounded_int,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError) as error:
        raise WireError("not valid JSON: {}".format(str(error)[:200])) from None
    _check_depth(value)
    return value


def frame(
    call: int, stream: str, payload: bytes = b"", meta: dict[str, Any] | None = None
) -> bytes:
    """One frame ready to send."""
    header: dict[str, Any] = {"id": call, "stream": stream, "len": len(payload)}
    if meta:
        header["meta"] = meta
    return dumps(header) + b"\n" + payload


def parse_header(line: bytes) -> Header:
    """The header of a frame from its line, checked; raises ``WireError``."""
    value = loads(line)
    if not isinstance(value, dict):
        raise WireError("a header must be an object")
    call, stream, length = value.get("id"), value.get("stream"), value.get("len")
    meta = value.get("meta", {})
    if not _is_int(call, 0, 1 << 53) or not _is_int(length, 0, MAX_PAYLOAD):
        raise WireError("a header's id or len is missing or out of bounds")
    if not isinstance(stream, str) or len(stream) > 32 or not isinstance(meta, dict):
        raise WireError("a header's stream or meta has the wrong type")
    assert isinstance(call, int)
    assert isinstance(length, int)
    return Header(call, stream, length, meta)


def _is_int(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _no_constant(name: str) -> Any:
    raise ValueError("{} is not allowed".format(name))


def _bounded_int(text: str) -> int:
    if len(text) > 20:
        raise ValueError("an integer is too long")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name is given twice")
    return result


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
    raise WireError("a value is nested too deeply")
