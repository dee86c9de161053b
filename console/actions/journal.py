"""What a host's journals say of the plans on it: unfinished ones to resume, done ones to undo."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from console.actions.codec import decode
from console.actions.plan import plan_from_journal
from console.errors import ActionFailed, HostError, UsageError
from console.model import Plan, Step, StepKind, StepResult
from console.remote import Remote

STARTING = frozenset({StepKind.LAUNCH, StepKind.START_UNIT, StepKind.START_CONTAINER})
"""Steps that start a server."""


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan as its journal tells it. ``outcome`` is ok, failed, refused, interrupted or undone.

    ``done`` are the results of steps that need not be repeated; ``in_doubt`` is the step that was
    begun and never ended. ``started_at`` is the host-side entry's time, seconds since 1970.
    ``entries`` is the journal's length: of the copies on several hosts the longest is the latest.
    """

    plan: Plan
    by: str
    started_at: float
    outcome: str
    done: Mapping[int, StepResult] = field(default_factory=dict)
    in_doubt: int | None = None
    entries: int = 0

    @property
    def begun(self) -> tuple[Step, ...]:
        """The steps that were done, and the one whose end nobody knows, in their order."""
        touched = {*self.done, *(() if self.in_doubt is None else (self.in_doubt,))}
        return tuple(self.plan.steps[index] for index in sorted(touched))


def new_plan_id(action: str) -> str:
    """A short id an operator can type: the action and six hex digits."""
    return f"{action}-{secrets.token_hex(3)}"


def read_record(entries: Sequence[Mapping[str, Any]]) -> PlanRecord:
    """A journal's entries as a record.

    Raises:
        ActionFailed: the journal was written by a newer version, or is damaged.
    """
    first = entries[0] if entries else {}
    version = first.get("format", 1)
    if version != 1 or "plan" not in first:
        what = "empty or damaged" if version == 1 else f"in format {version}"
        raise ActionFailed(f"the journal is {what}", hint="use a newer specops")
    plan = plan_from_journal(first["plan"])
    done: dict[int, StepResult] = {}
    begun: int | None = None
    outcome = "interrupted"
    for entry in entries:
        event = entry.get("event")
        if event == "plan":  # resumed: what failed before is tried again
            outcome = "interrupted"
        elif event == "intent":
            begun = int(entry["step"])
        elif event == "result":
            begun = None
            result = decode(StepResult, entry, place="journal")
            if result.outcome in ("ok", "skipped"):
                done[result.step] = result
        elif event == "end":
            outcome = str(entry.get("outcome"))
    by, at, length = str(first.get("by", "")), float(first["time"]), len(entries)
    return PlanRecord(plan, by, at, outcome, done, begun, length)


async def plan_records(remote: Remote) -> list[PlanRecord]:
    """All plans a host remembers, newest first; damaged journals are passed over."""
    records = []
    for entries in (await remote.journals()).values():
        try:
            records.append(read_record(entries))
        except ActionFailed:
            continue
    return sorted(records, key=lambda record: record.started_at, reverse=True)


async def find(remote: Remote, plan_id: str) -> PlanRecord:
    """The record of one plan.

    Raises:
        UsageError: the host knows no such plan.
        ActionFailed: its journal is damaged.
    """
    journals = await remote.journals()
    if plan_id not in journals:
        known = ", ".join(sorted(journals)[:5]) or "none"
        raise UsageError(f"no plan {plan_id} on {remote.host.name}", hint=f"plans there: {known}")
    record = read_record(journals[plan_id])
    if record.plan.id != plan_id:
        raise ActionFailed("its journal is that of another plan", place=plan_id)
    return record


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A server's newest plan that has no end: another console is at it, or was ended in it.

    ``told_by`` is the host whose copy of the journal says so, where the plan's own is not reached.
    """

    record: PlanRecord
    under_way: bool
    told_by: str = ""

    @property
    def starts(self) -> bool:
        """Whether a start of the server is still to come."""
        steps = enumerate(self.record.plan.steps)
        return any(s.kind in STARTING and i not in self.record.done for i, s in steps)

    @property
    def words(self) -> str:
        """Where it stands and what can be done about it, in one line."""
        plan, done = self.record.plan, len(self.record.done)
        at = self.record.in_doubt if self.record.in_doubt is not None else done
        kind = plan.steps[min(at, len(plan.steps) - 1)].kind.value
        where = f"step {min(at + 1, len(plan.steps))} of {len(plan.steps)} ({kind})"
        if self.told_by:  # its own host may know more
            where += f", as {self.told_by} remembers it"
        if self.under_way:
            return f"plan {plan.id} is under way, {where}"
        ways = f"specops resume {plan.id} finishes it, specops undo {plan.id} takes it back"
        if self.told_by:
            ways += f", once {plan.host} is reached again"
        return f"plan {plan.id} was interrupted in {where}: {ways}"


async def unfinished(remotes: Sequence[Remote], server: str) -> Unfinished | None:
    """The newest plan of a server, if it was neither finished nor followed by another.

    ``remotes`` are the hosts of its nodes that are reached: each has the plan's journal, and what
    one of them says may be the last word of a link that is just lost.

    Raises:
        HostError: no link is left.
    """
    known: list[tuple[PlanRecord, Remote]] = []
    answered: set[str] = set()
    lost: HostError | None = None
    for remote in remotes:
        try:
            records = await plan_records(remote)
        except HostError as error:
            lost = error
            continue
        answered.add(remote.host.name)
        known += [(record, remote) for record in records if record.plan.server == server]
    if not answered and lost is not None:
        raise lost
    if not known:
        return None
    newest, remote = max(known, key=lambda one: (one[0].started_at, one[0].entries))
    if newest.outcome != "interrupted":
        return None
    owner = await remote.lock_owner()
    under_way = owner is not None and newest.plan.id in owner
    own = newest.plan.host in answered
    return Unfinished(newest, under_way, "" if own else remote.host.name)


def to_resume(record: PlanRecord) -> PlanRecord:
    """The record, if there is something left to do.

    Raises:
        UsageError: the plan was finished, or undone.
    """
    if record.outcome in ("ok", "undone"):
        word = "finished" if record.outcome == "ok" else "undone"
        raise UsageError(f"plan {record.plan.id} was {word}; nothing to resume")
    return record


def plan_undo(record: PlanRecord) -> Plan:
    """A plan that undoes what can be undone of another, last step first.

    Raises:
        UsageError: nothing of it can be undone (a signal cannot be taken back).
    """
    steps = tuple(
        decode(Step, result.data["undo"], place="undo")
        for _, result in sorted(record.done.items(), reverse=True)
        if isinstance(result.data.get("undo"), Mapping)
    )
    if not steps:
        kinds = ", ".join(sorted({record.plan.steps[i].kind.value for i in record.done}))
        raise UsageError(
            f"plan {record.plan.id} did {kinds or 'nothing'}: none of that can be undone",
            hint="a killed server comes back with: specops launch",
        )
    return replace(
        record.plan,
        id=new_plan_id("undo"),
        action="undo",
        steps=steps,
        created_at=time.time(),
        summary=(f"undo {record.plan.action} {record.plan.id}",),
        findings=(),
        undoes=record.plan.id,
    )
