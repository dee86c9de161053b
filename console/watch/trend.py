"""The last minutes of each host, for sparklines. Pure; one sample a second at most."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

KEPT = 600
"""Samples kept per host: ten minutes at 1 Hz."""

APART_S = 0.9
"""What samples are apart at least: one a second, give or take the poll's own time."""

SPAN_S = 600.0
"""What a line shows unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Shares of 0 to 1 and a rate, ``None`` where unknown."""

    at: float
    memory: float | None
    utilization: float | None
    tokens_s: float | None
    accept: float | None


class Trends:
    """Samples by host (and by host and server)."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[Sample]] = {}
        self._lines: dict[tuple[str, str, int, float], tuple[int, tuple[float | None, ...]]] = {}

    def add(self, name: str, sample: Sample) -> None:
        """One more sample, unless there is one within a second of it.

        A recording that is moved back brings older ones: they find their place.
        """
        kept = self._kept.setdefault(name, deque(maxlen=KEPT))
        if not kept or sample.at - kept[-1].at >= APART_S:
            kept.append(sample)
        elif sample.at < kept[-1].at:
            self._between(kept, sample)
            self._lines.clear()

    @staticmethod
    def _between(kept: deque[Sample], sample: Sample) -> None:
        place = bisect_left(kept, sample.at, key=lambda one: one.at)
        near = [kept[at] for at in (place - 1, place) if 0 <= at < len(kept)]
        if any(abs(one.at - sample.at) < APART_S for one in near):
            return
        if len(kept) == KEPT:  # what is farthest from here goes
            if place <= len(kept) // 2:
                kept.pop()
            else:
                kept.popleft()
                place -= 1
        kept.insert(place, sample)

    def line(
        self, name: str, what: str, width: int, now: float, span_s: float = SPAN_S
    ) -> tuple[float | None, ...]:
        """The last ``span_s`` seconds of one value as ``width`` means, the newest last.

        ``what`` names a field of :class:`Sample`. A stretch without a known value is ``None``. A
        line is counted anew when its newest stretch has passed, not at each drawing.
        """
        each = span_s / max(1, width)
        slot = int(now / each)
        key = (name, what, width, span_s)
        if (known := self._lines.get(key)) is not None and known[0] == slot:
            return known[1]
        sums: dict[int, list[float]] = {}
        for sample in self._kept.get(name, ()):
            value: float | None = getattr(sample, what)
            at = int(sample.at / each)
            if value is not None and slot - width < at <= slot:
                sums.setdefault(at, []).append(value)
        slots = range(slot - width + 1, slot + 1)
        made = tuple(sum(sums[at]) / len(sums[at]) if at in sums else None for at in slots)
        self._lines[key] = (slot, made)
        return made

    def of(self, name: str) -> tuple[Sample, ...]:
        """All samples, oldest first."""
        return tuple(self._kept.get(name, ()))
