"""A moment of a recording as an operator types it. Pure."""

from __future__ import annotations

import re
import time

from console.errors import UsageError

_TYPED = re.compile(r"(?P<sign>[-+@]?)(?:(?P<h>\d+):)??(?:(?P<m>\d+):)?(?P<s>\d+)")


def moment(text: str, *, now: float, position: float) -> float:
    """The position that is meant, in seconds from the start of the recording.

    ``90``, ``1:30`` and ``2:01:30`` count from the start, ``+90`` and ``-10:00`` from here, and
    ``@02:41:07`` (or ``@02:41``) is a time of day as the console shows it, the nearest to here.
    ``now`` is the time at ``position``, in seconds since 1970.

    Raises:
        UsageError: none of these.
    """
    found = _TYPED.fullmatch(text)
    if found is None or (found["sign"] == "@" and not found["m"]):
        hint = "1:30:00, +90, -10:00 or @02:41:07"
        raise UsageError(f"'{text}' is no moment", place=":seek", hint=hint)
    hours, minutes, seconds = (int(found[name] or 0) for name in ("h", "m", "s"))
    if found["sign"] == "@":
        if found["h"] is None:  # hours and minutes
            hours, minutes, seconds = minutes, seconds, 0
        return position + _nearest((hours * 60 + minutes) * 60 + seconds, now)
    total = float((hours * 60 + minutes) * 60 + seconds)
    return (
        position + total
        if found["sign"] == "+"
        else (position - total if found["sign"] == "-" else total)
    )


def _nearest(of_day: int, now: float) -> float:
    """How far away that second of a day is from a time, half a day at most."""
    at = time.localtime(now)
    here = (at.tm_hour * 60 + at.tm_min) * 60 + at.tm_sec + now % 1
    return (of_day - here + 43_200) % 86_400 - 43_200
