"""Since when a server has written nothing of its own. Pure.

A hung server's front still answers whoever looks at it and logs that, so "the log has not grown"
would never be true of a server that is watched. Lines that only record such a look are left out.
"""

from __future__ import annotations

import re

from console.phases import parse

_LOOKED_AT = re.compile(
    r'"(?:GET|HEAD) /(?:health|health_generate|healthz|ready|livez|readyz|metrics|server_info'
    r"|get_server_info|model_info|get_model_info|v1/models|v1/loads|get_load|ping|version)"
    r"/?(?:\?[^ ]*)? HTTP/"
    r"|Health check failed\. Server couldn't get a response"
    r"|Health check request received during"
    r"|Endpoint '/[\w/]+' is deprecated"  # logged by newer ones for each look at an old name
)
AHEAD_S = 5.0
"""A file may be written while the look that ``now`` belongs to still goes on."""
_WORDS = ("HTTP/", "Health check", "Endpoint '")


def is_a_look(text: str) -> bool:
    """Whether a log line only says that somebody asked the server how it is."""
    return any(word in text for word in _WORDS) and _LOOKED_AT.search(text) is not None


def is_work(text: str) -> bool:
    """Whether a log line has a stamp and is no look: nothing before it matters."""
    return not is_a_look(text) and parse(text).time is not None


class Silence:
    """Fed with the lines of a log as they are read.

    A log read for the first time is old: how old its last line of work is follows from the log's
    own stamps, as the distance to its last line of any kind, which no time zone can falsify.
    """

    def __init__(self) -> None:
        self._newest: float | None = None
        self._newest_seen_at = 0.0
        self._worked: float | None = None
        self._worked_seen_at: float | None = None
        self._first: float | None = None
        self._last = 0.0

    def take(self, text: str, now: float) -> None:
        """The next line; ``now`` is the host's clock when it was read, seconds since 1970."""
        self._first, self._last = now if self._first is None else self._first, now
        stamp = parse(text).time if "[" in text[:64] or ":" in text[:64] else None
        if stamp is not None:
            self._newest, self._newest_seen_at = stamp, now
        if is_a_look(text):
            return
        self._worked_seen_at = now
        if stamp is not None:
            self._worked = stamp

    def seconds(self, now: float, grew_at: float | None) -> float | None:
        """Silence in seconds. ``grew_at`` is the file's time of change, ``None`` for a journal.

        A journal's last line is at the latest as old as the moment it was read.
        """
        if self._worked_seen_at is None and grew_at is None:
            return None
        if self._newest is None or self._worked is None:
            since = self._worked_seen_at if grew_at is None else self._grown(now, grew_at)
            return max(0.0, now - (since or 0.0))
        since_growth = max(0.0, now - self._grown(now, grew_at))
        return since_growth + max(0.0, self._newest - self._worked)

    def _grown(self, now: float, grew_at: float | None) -> float:
        """When it last grew. A host's clock that was set makes the file's own time a false one.

        What came after the first look was seen to come, and a time still to come is none.
        """
        if grew_at is None:
            return self._newest_seen_at
        if grew_at > now + AHEAD_S:
            return self._last
        seen_to_come = self._first is not None and self._last > self._first
        return max(grew_at, self._last) if seen_to_come else grew_at
