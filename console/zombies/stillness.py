"""How long nothing of a server has moved, gathered over many snapshots.

One pair of samples sees seconds; ``never-ready`` asks for two minutes. A console that watches
feeds every snapshot in and hands ``still_s`` to the rules through a :class:`Probe`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from console.model import Process, ProcessId, Snapshot

_IDLE_TICKS_PER_S = 1.0
"""1 % of a core at 100 ticks a second: what the polling threads of an idle server use at most."""


@dataclass(slots=True)
class _Seen:
    since: float
    time: float
    cpu: int
    rest: tuple[object, ...]


@dataclass(slots=True)
class Stillness:
    """Remembers for each process since when neither CPU nor I/O nor device memory moved."""

    _seen: dict[ProcessId, _Seen] = field(default_factory=dict)

    def feed(self, snapshot: Snapshot) -> None:
        """Take in a snapshot; processes that are gone are forgotten."""
        kept: dict[ProcessId, _Seen] = {}
        for process in snapshot.processes:
            before = self._seen.get(process.id)
            kept[process.id] = _next(before, process, snapshot.time)
        self._seen = kept

    def still_s(self, members: Iterable[ProcessId], now: float) -> float | None:
        """Seconds since anything of these processes moved, ``None`` if one was never seen."""
        since: list[float] = []
        for member in members:
            seen = self._seen.get(member)
            if seen is None:
                return None
            since.append(seen.since)
        return max(0.0, now - max(since)) if since else None


def _next(before: _Seen | None, process: Process, time: float) -> _Seen:
    rest = (process.read_bytes, process.write_bytes, tuple(sorted(process.gpu_memory_mib.items())))
    if before is None:
        return _Seen(time, time, process.cpu_ticks, rest)
    span = time - before.time
    if span < 1.0:  # too short to tell polling from work; wait for more of it
        moved = rest != before.rest
        since = time if moved else before.since
        return _Seen(since, before.time, before.cpu, rest)
    moved = rest != before.rest or process.cpu_ticks - before.cpu > _IDLE_TICKS_PER_S * span
    return _Seen(time if moved else before.since, time, process.cpu_ticks, rest)
