"""How long nothing of a server has moved, gathered over many snapshots.

One pair of samples sees seconds; ``never-ready`` asks for two minutes. A console that watches
feeds every snapshot in and hands ``still_s`` to the rules through a :class:`Probe`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from console.model import Process, ProcessId, Snapshot

_IDLE_TICKS_PER_S = 1.0
"""1 % of a core at 100 ticks a second: what the polling threads of an idle server use at most."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One process: unmoved ``since``, last compared at ``time`` (host clock, s since 1970).

    ``cpu`` in ticks; ``devices`` is its device memory (MiB by index), ``None`` while never read.
    """

    since: float
    time: float
    cpu: int
    read_write: tuple[int | None, int | None]
    devices: tuple[tuple[int, float | None], ...] | None


@dataclass(slots=True)
class Stillness:
    """Remembers for each process since when neither CPU nor I/O nor device memory moved."""

    seen: Mapping[ProcessId, Seen] = field(default_factory=dict)

    def feed(self, snapshot: Snapshot) -> None:
        """Take in a snapshot; processes that are gone are forgotten."""
        read = snapshot.gpu_error is None
        self.seen = {
            process.id: _next(self.seen.get(process.id), process, snapshot.time, read)
            for process in snapshot.processes
        }

    def still_s(self, members: Iterable[ProcessId], now: float) -> float | None:
        """Seconds since anything of these processes moved, ``None`` if one was never seen."""
        since: list[float] = []
        for member in members:
            seen = self.seen.get(member)
            if seen is None:
                return None
            since.append(seen.since)
        return max(0.0, now - max(since)) if since else None


def _next(before: Seen | None, process: Process, time: float, devices_read: bool) -> Seen:
    read_write = (process.read_bytes, process.write_bytes)
    devices = before.devices if before else None
    if devices_read:
        devices = tuple(sorted(process.gpu_memory_mib.items()))
    if before is None:
        return Seen(time, time, process.cpu_ticks, read_write, devices)
    # A driver that did not answer says nothing; what it shows after that has not changed.
    moved = read_write != before.read_write or devices != (before.devices or devices)
    span = time - before.time
    if span < 1.0:  # too short to tell polling from work; wait for more of it
        since = time if moved else before.since
        return Seen(since, before.time, before.cpu, read_write, devices)
    moved = moved or process.cpu_ticks - before.cpu > _IDLE_TICKS_PER_S * span
    return Seen(time if moved else before.since, time, process.cpu_ticks, read_write, devices)
