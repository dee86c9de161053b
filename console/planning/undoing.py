"""Take back a plan of serving: from what is there now, not from what should be.

A console may have been killed at any moment of the plan, so its journal says what was begun, and
the host is looked at for what came of it. Nothing begun is nothing to take back: a server that has
not been signalled yet stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from console.actions.codec import decode, encode
from console.actions.journal import STARTING, PlanRecord, new_plan_id
from console.actions.launch import again, watch_step
from console.actions.serving import undo_write
from console.actions.stop import plan_stop
from console.errors import UsageError
from console.model import Health, Phase, Plan, Run, Server, Step, StepKind
from console.planning.later import refuse_later
from console.planning.looking import Seen, look, see
from console.remote import Remote

ACTIONS = frozenset({"launch", "relaunch", "stop"})
"""Actions whose plans are taken back here."""
ENDING = frozenset({StepKind.SIGNAL, StepKind.STOP_UNIT})
DOUBT_S = 7.0
"""A server that may have had a SIGTERM is looked at so long: SGLang takes it in a poll of 5 s."""


async def plan_undo_serving(
    remote: Remote, server: Server, record: PlanRecord, run_id: str | None = None
) -> Plan:
    """End what the plan has started, put back what it has written, start again what it has ended.

    ``run_id`` is for what is started again; ``None`` makes one.

    Raises:
        UsageError: it was taken back already.
        Refused: a later run is there in place of its own.
        HostError: the link is lost.
    """
    plan, begun = record.plan, record.begun
    kinds = {step.kind for step in begun}
    started = kinds & (ENDING | STARTING | {StepKind.RUN})
    if record.outcome == "undone":
        raise UsageError(f"plan {plan.id} was undone already", hint="specops runs shows what runs")
    looked = await look(remote, server)
    await refuse_later(remote, server, record, looked)
    steps: list[Step] = []
    lines = [f"undo {plan.action} {plan.id}"]
    seen = await see(remote, server, looked) if started else None
    untouched = seen is not None and len(server.nodes) == 1 and _untouched(record, seen)
    if seen is not None and not untouched:
        stop = plan_stop(server, seen.found, seen.state, seen.snapshot, seen.runs, host=remote.host)
        steps += stop.steps
        lines += stop.summary
    steps += [undo_write(step) for step in reversed(begun) if step.kind is StepKind.WRITE_UNIT]
    drain = next((step for step in begun if step.kind is StepKind.DRAIN), None)
    if drain is not None and "again" in drain.params:
        steps += _back(server, drain, run_id, doubt_s=DOUBT_S if untouched else 0.0)
        lines.append(f"bring back run {drain.params['run_id']}, or leave it if it still runs")
    elif untouched:
        lines.append("it still serves, and is left as it is")
    elif kinds & ENDING:
        lines.append("what ran before was not started by specops, so it is not started again")
    if not steps:
        lines.append("it has changed nothing that is still there: only its journal is closed")
    return Plan(
        id=new_plan_id("undo"),
        action="undo",
        host=plan.host,
        server=server.name,
        steps=tuple(steps),
        created_at=time.time(),
        summary=tuple(lines),
        undoes=plan.id,
    )


def _untouched(record: PlanRecord, seen: Seen) -> bool:
    """Whether the first step that ends something was begun, and the server serves all the same.

    A console killed between the note of its intention and the signal has ended nothing.
    """
    at = record.in_doubt
    if at is None or record.plan.steps[at].kind not in ENDING:
        return False
    before = {record.plan.steps[done].kind for done in record.done}
    if before & (ENDING | STARTING | {StepKind.RUN}):
        return False
    return seen.state.phase is Phase.READY and seen.state.health is Health.OK


def _back(server: Server, drain: Step, new_id: str | None, *, doubt_s: float) -> list[Step]:
    """Start an ended run again, unless it turns out that it has never ended."""
    step = decode(Step, drain.params["again"], place="again")
    run_id = None
    if isinstance(step.params.get("run"), Mapping):
        run = decode(Run, step.params["run"], place="again")
        if step.kind is not StepKind.START_UNIT:  # taken back twice: each start is its own run
            run = again(run, new_id)
            params = {**step.params, "run": encode(run)}
            step = replace(step, argv=run.argv, params=params)
        run_id = run.run_id
    old = drain.params["run_id"]
    params = {**step.params, "unless_alive": old, **({"doubt_s": doubt_s} if doubt_s else {})}
    step = replace(step, params=params)
    return [step, watch_step(server, drain.host, run_id, None)]
