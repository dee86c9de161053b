"""What hosts remember of launches and plans, for ``runs``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.actions.journal import PlanRecord
    from console.actions.pending import Pending
    from console.cli.common import Answer
    from console.model import Run
    from console.remote import Remote


@dataclass(frozen=True, slots=True)
class Memory:
    """What one host remembers: runs and plans, newest first; ``alive`` are runs still there."""

    runs: tuple[Run, ...]
    plans: tuple[PlanRecord, ...]
    alive: frozenset[str]
    remains: frozenset[str] = frozenset()
    """Runs whose launcher has died while others of their processes live on."""
    pending: tuple[Pending, ...] = ()
    owner: str | None = None
    """Who holds the host's lock, in the words of the lock."""


def latest_of(answers: Sequence[Answer[Memory]]) -> dict[str, tuple[str, PlanRecord]]:
    """Each plan's fullest journal and the host that is to tell it: its own, where that knows it."""
    found: dict[str, tuple[str, PlanRecord]] = {}
    for answer in answers:
        for record in answer.value.plans if answer.value is not None else ():
            name, known = found.get(record.plan.id, (answer.host.name, record))
            if answer.host.name == record.plan.host:
                name = answer.host.name
            fuller = record if record.entries > known.entries else known
            found[record.plan.id] = (name, fuller)
    return found


def own(name: str, memory: Memory, latest: Mapping[str, tuple[str, PlanRecord]]) -> Memory:
    """Without the plans of which it has only a copy that another host's journal is ahead of."""
    told = (latest[record.plan.id] for record in memory.plans)
    plans = tuple(record for teller, record in told if teller == name)
    known = {(record.plan.id, record.entries) for record in plans}
    left = (p for p in memory.pending if (p.record.plan.id, p.record.entries) in known)
    return replace(memory, plans=plans, pending=tuple(left))


def listed(memory: Memory, last: int) -> list[PlanRecord]:
    """The newest plans, and every one that waits for somebody however old it is."""
    left = {one.record.plan.id for one in memory.pending}
    return [p for at, p in enumerate(memory.plans) if at < last or p.plan.id in left]


async def remember(remote: Remote) -> Memory:
    """Ask one host."""
    from console.actions.journal import plan_records
    from console.actions.pending import pending

    snapshot = await remote.snapshot()
    known = tuple(await remote.runs())
    living = {p.id for p in snapshot.processes if p.state not in ("Z", "X")}
    carried = {p.run_id for p in snapshot.processes if p.run_id}
    alive = frozenset(r.run_id for r in known if r.run_id in carried or r.launcher in living)
    remains = frozenset(
        r.run_id for r in known
        if r.run_id in carried and r.ended_at is not None and r.launcher not in living
    )  # fmt: skip
    plans = tuple(await plan_records(remote))
    left = pending(plans, known, alive)
    owner = await remote.lock_owner() if left else None
    return Memory(known, plans, alive - remains, remains, left, owner)
