"""Which plans without a good end are still somebody's business, and what would be accepted.

A plan that was followed by another, or whose own run has ended, is over: resuming or taking it
back is refused then, or would do nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from console.actions.journal import STARTING, PlanRecord, Unfinished, read_record
from console.errors import ActionFailed
from console.model import OpenPlan, Plan, Process, Run, StepKind
from console.remote import Remote

UNFINISHED = ("interrupted", "failed")
SERVING = frozenset({"launch", "relaunch", "stop"})
"""Actions that are taken back from what is there, whatever their journal holds to undo them."""
LOOKING = frozenset({StepKind.PREFLIGHT, StepKind.WATCH})
"""Steps that change nothing."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A plan that somebody has to decide about; ``ways`` are the commands that it would accept."""

    record: PlanRecord
    ways: tuple[str, ...]

    @property
    def urgent(self) -> bool:
        """Whether it was cut off with something begun and something left to be done."""
        record = self.record
        left = [s for i, s in enumerate(record.plan.steps) if i not in record.done]
        cut = record.outcome == "interrupted" and _touched(record)
        return cut and any(step.kind not in LOOKING for step in left)

    @property
    def commands(self) -> str:
        """What to type: ``specops resume X   or   specops undo X``."""
        return "   or   ".join(f"specops {way} {self.record.plan.id}" for way in self.ways)


def run_ids(plan: Plan) -> frozenset[str]:
    """The runs that a plan starts, watches or ends."""
    found: set[object] = set()
    for step in plan.steps:
        run = step.params.get("run")
        found.add(run.get("run_id") if isinstance(run, Mapping) else None)
        found.add(step.params.get("run_id"))
    return frozenset(str(name) for name in found if name)


def starts(plan: Plan) -> frozenset[str]:
    """The runs that a plan starts."""
    return frozenset(
        str(step.params["run"]["run_id"])
        for step in plan.steps
        if step.kind in STARTING and "run" in step.params
    )


def own_runs(plan: Plan, others: Iterable[Plan]) -> frozenset[str]:
    """A plan's runs, and those of plans that were to take it back: what these start is its own."""
    back = (other for other in others if other.undoes == plan.id)
    return frozenset[str]().union(*(run_ids(one) for one in (plan, *back)))


def began(plan: Plan, runs: Iterable[Run]) -> float:
    """When the plan's own start was, seconds since 1970: what was launched later came after it."""
    own = (run.launched_at for run in runs if run.run_id in starts(plan))
    return max(own, default=plan.created_at)


def pending(
    records: Iterable[PlanRecord], runs: Sequence[Run], alive: Collection[str]
) -> tuple[Pending, ...]:
    """What is left to be decided on a host, the newest first.

    ``alive`` are the ids of the runs of which something still runs.
    """
    ordered = sorted(records, key=lambda record: record.started_at, reverse=True)
    newest: dict[tuple[str | None, str], str] = {}
    for record in ordered:
        if record.outcome == "interrupted" or _touched(record):
            newest.setdefault(_place(record.plan), record.plan.id)
    found = []
    for record in ordered:
        if record.outcome not in UNFINISHED or newest.get(_place(record.plan)) != record.plan.id:
            continue
        mine = own_runs(record.plan, (other.plan for other in ordered))
        if ways := _ways(record, mine, runs, alive):
            found.append(Pending(record, ways))
    return tuple(found)


def open_plan(one: Pending, owner: str | None) -> OpenPlan:
    """As the two faces show it; ``owner`` holds the host's lock, in the words of the lock."""
    record = one.record
    under_way = owner is not None and record.plan.id in owner
    return OpenPlan(
        record.plan.id,
        record.plan.action,
        record.plan.server,
        under_way,
        Unfinished(record, under_way).words,
        tuple(sorted(record.done)),
        record.in_doubt,
    )


async def open_plans(
    remote: Remote, runs: Sequence[Run], processes: Iterable[Process]
) -> tuple[OpenPlan, ...]:
    """The plans of a host that were cut off and leave something undone.

    Raises:
        HostError: the link is lost.
    """
    records = []
    for entries in (await remote.open_journals()).values():
        with contextlib.suppress(ActionFailed):
            records.append(read_record(entries))
    own = [record for record in records if record.plan.host == remote.host.name]
    if not own:
        return ()
    living = [p for p in processes if p.state not in ("Z", "X")]
    ids, carried = {p.id for p in living}, {p.run_id for p in living}
    alive = {run.run_id for run in runs if run.run_id in carried or run.launcher in ids}
    left = [one for one in pending(own, runs, alive) if one.urgent]
    owner = await remote.lock_owner() if left else None
    return tuple(open_plan(one, owner) for one in left)


def _place(plan: Plan) -> tuple[str | None, str]:
    """What a later plan has to be about to follow it."""
    return (plan.server, "") if plan.server is not None else (None, plan.action)


def _touched(record: PlanRecord) -> bool:
    return any(step.kind not in LOOKING for step in record.begun)


def _ways(
    record: PlanRecord, mine: frozenset[str], runs: Sequence[Run], alive: Collection[str]
) -> tuple[str, ...]:
    plan = record.plan
    if record.outcome == "failed" and not _touched(record):
        return ()  # it has changed nothing
    undoable = plan.action in SERVING or any(
        isinstance(result.data.get("undo"), Mapping) for result in record.done.values()
    )
    both = ("resume", "undo") if undoable else ("resume",)
    if plan.server is None:
        return both
    of = [run for run in runs if run.server == plan.server]
    own = [run for run in of if run.run_id in starts(plan)]
    since = began(plan, own)
    if any(r.run_id not in mine and (r.run_id in alive or r.launched_at > since) for r in of):
        return ()  # another run has taken its place
    ended = [run for run in of if run.run_id in mine and run.run_id not in alive]
    if plan.action == "stop" and ended and not mine & set(alive):
        return ()  # what it was to end has ended
    if own and all(run in ended for run in own):  # its run has ended; the one before may come back
        back = any("again" in plan.steps[index].params for index in record.done)
        return ("undo",) if back and plan.action == "relaunch" else ()
    return both
