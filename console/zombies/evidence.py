"""Verdicts in the making: lines an operator can check, each with its weight."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from console.model import Process, Resource, Snapshot, Zombie, ZombieKind
from console.text import clean, mask
from console.zombies.devices import asked

_INITIAL = {
    ZombieKind.DEFUNCT: "d",
    ZombieKind.HALF_DEAD: "x",
    ZombieKind.ORPHAN: "o",
    ZombieKind.HEADLESS: "h",
    ZombieKind.NEVER_READY: "n",
    ZombieKind.HUNG: "u",
    ZombieKind.GHOST_MEMORY: "g",
    ZombieKind.STUCK_IO: "i",
    ZombieKind.LEFTOVER: "l",
    ZombieKind.FOREIGN: "f",
}


_WATCHED = "watched for "


def watched_for(seconds: float, limit: float, what: str) -> str:
    """Why a verdict waits: it was looked at for less than it takes; see :func:`lacks_watching`."""
    return f"{_WATCHED}{seconds:.0f} of {limit:.0f} s {what}"


def lacks_watching(zombie: Zombie) -> bool:
    """Whether all that is missing is to look at it for longer."""
    return not zombie.killable and (zombie.why_not or "").startswith(_WATCHED)


@dataclass(slots=True)
class Case:
    """Evidence gathered for one verdict. Weights add up to the score, kept within 0 and 1."""

    score: float = 0.0
    lines: list[str] = field(default_factory=list)

    def add(self, weight: float, line: str) -> None:
        """One line of evidence and what it weighs; 0 for what only explains."""
        self.score += weight
        self.lines.append(line)


def process_id(kind: ZombieKind, process: Process) -> str:
    """A name that can be typed: the kind's letter and the pid (``o4711``)."""
    return f"{_INITIAL[kind]}{process.id.pid}"


def resource_id(kind: ZombieKind, *parts: object) -> str:
    """A name for what has no pid: the kind's letter and five hex digits of what it is."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    return _INITIAL[kind] + digest[:5]


def of_process(
    kind: ZombieKind,
    process: Process,
    case: Case,
    snapshot: Snapshot,
    *,
    why_not: str | None,
    together: Iterable[Process] = (),
) -> Zombie:
    """A verdict on a process; ``together`` are the processes whose memory it stands for."""
    group = {process.id: process, **{member.id: member for member in together}}
    gpu = gpu_memory(group.values(), snapshot)
    has_gpu = bool(snapshot.gpus) or snapshot.gpu_source is not None
    memory = gpu if has_gpu else resident(group.values())
    if line := memory_line(group.values(), snapshot):
        case.add(0.0, line)
    held = {index for member in group.values() for index in member.gpu_memory_mib}
    for device in snapshot.gpus:
        if device.index in held and (asks := asked(device, snapshot)):
            case.add(0.0, asks)
    if process.inner_pid not in (None, process.id.pid):
        case.add(0.0, f"pid {process.inner_pid} inside its container")
    return Zombie(
        id=process_id(kind, process),
        kind=kind,
        pid=process.id.pid,
        process=process.id,
        start_time=snapshot.time - process.age_s,
        user=clean(process.user, limit=64),
        score=_within(case.score),
        evidence=tuple(shown(line) for line in case.lines),
        killable=why_not is None,
        why_not=shown(why_not) if why_not else None,
        device="cuda" if has_gpu else "cpu",
        memory_mib=memory,
        gpu_memory_mib=gpu if has_gpu or snapshot.gpu_error else None,
        run_id=clean(process.run_id, limit=80) if process.run_id else None,
        title=shown(process.title, 200),
    )


def of_resource(
    kind: ZombieKind,
    name: str,
    resource: Resource,
    case: Case,
    *,
    user: str,
    why_not: str | None,
    memory_mib: float | None,
    start_time: float | None = None,
) -> Zombie:
    """A verdict on something without a process."""
    cuda = resource.type == "gpu"
    return Zombie(
        id=name,
        kind=kind,
        pid=None,
        process=None,
        start_time=start_time,
        user=clean(user, limit=64),
        score=_within(case.score),
        evidence=tuple(shown(line) for line in case.lines),
        killable=why_not is None,
        why_not=shown(why_not) if why_not else None,
        resource=resource,
        device="cuda" if cuda else "cpu",
        memory_mib=memory_mib,
        gpu_memory_mib=memory_mib if cuda else None,
        title=clean(resource.path, limit=200) if resource.path else "",
    )


def shown(text: str, limit: int = 400) -> str:
    """Text that may hold what a host said, made fit to show: inert, without secrets, bounded."""
    return clean(mask(text), limit=limit)


def gpu_memory(processes: Iterable[Process], snapshot: Snapshot) -> float | None:
    """MiB on devices of some processes; ``None`` as soon as one part is unknown."""
    if snapshot.gpu_error is not None:
        return None
    parts = [part for process in processes for part in process.gpu_memory_mib.values()]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def resident(processes: Iterable[Process]) -> float | None:
    """Resident MiB of some processes; ``None`` as soon as one is unknown."""
    parts = [process.rss_mib for process in processes]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def memory_line(processes: Iterable[Process], snapshot: Snapshot) -> str:
    """What the processes hold, by device, or an empty string."""
    per: dict[int, float | None] = {}
    group = tuple(processes)
    for process in group:
        for index, part in process.gpu_memory_mib.items():
            before = per.get(index, 0.0)
            per[index] = None if part is None or before is None else before + part
    if per:
        held = ", ".join(f"{mib(part)} on GPU {index}" for index, part in sorted(per.items())[:8])
        return f"holds {held} for {ago(max(process.age_s for process in group))}"
    if snapshot.gpu_error:
        return f"device memory unknown: {snapshot.gpu_error}"
    resident_mib = resident(group)
    return f"holds {mib(resident_mib)} of memory" if resident_mib else ""


def mib(value: float | None) -> str:
    """MiB with a thin group separator, ``?`` where unknown."""
    return "? MiB" if value is None else f"{value:,.0f} MiB".replace(",", " ")


def ago(seconds: float) -> str:
    """A duration as people say it."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _within(score: float) -> float:
    return round(min(1.0, max(0.0, score)), 2)
