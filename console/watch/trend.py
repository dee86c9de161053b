"""The last minutes of each host, for sparklines. Pure; one sample a second at most."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

KEPT = 600
"""Samples kept per host: ten minutes at 1 Hz."""


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

    def add(self, name: str, sample: Sample) -> None:
        """One more sample, unless the last is less than a second old."""
        kept = self._kept.setdefault(name, deque(maxlen=KEPT))
        if not kept or sample.at - kept[-1].at >= 0.9:
            kept.append(sample)

    def of(self, name: str) -> tuple[Sample, ...]:
        """All samples, oldest first."""
        return tuple(self._kept.get(name, ()))
