"""An old plan and what came after it: whose business the server still is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from console.actions.journal import PlanRecord, find, read_record
from console.actions.launch import container_step, launch_step, watch_step
from console.actions.pending import run_ids
from console.actions.plan import plan_to_journal
from console.actions.signals import target_of
from console.errors import Refused, UsageError
from console.model import Host, Plan, Process, ProcessId, Run, Runner, Server, Snapshot, Step
from console.model import StepKind as K
from console.planning.later import refuse_later
from console.planning.looking import Looked
from console.planning.undoing import plan_undo_serving
from console.remote import Remote
from console.watch.attribution import find as attribute

SERVER = Server("k", "h", engine="sglang", model="/m", port=8000)
BOXED = replace(SERVER, runner=Runner("docker", container="box"))


class Journals:
    """A host of which only its journals are asked."""

    def __init__(self, *records: tuple[Plan, str]) -> None:
        self.host = Host("h")
        self.rows: dict[str, list[dict[str, Any]]] = {
            plan.id: [
                {"format": 1, "event": "plan", "time": plan.created_at, "by": "ann",
                 "plan": plan_to_journal(plan)},
                *({"event": "intent", "step": at} for at in range(len(plan.steps))),
                *([{"event": "end", "outcome": outcome}] if outcome else []),
            ]
            for plan, outcome in records
        }  # fmt: skip

    async def journals(self) -> dict[str, list[dict[str, Any]]]:
        return self.rows

    def record(self, plan: Plan) -> PlanRecord:
        return read_record(self.rows[plan.id])


def run(name: str, at: float, **more: Any) -> Run:
    return Run(
        run_id=name, server="k", engine="sglang", host="h", argv=("/py",), env={}, cwd="/",
        log="", port=8000, launcher=ProcessId(hash(name) % 10_000, 1, "b"), session=None,
        unit=None, launched_at=at, launched_by="bob", **more,
    )  # fmt: skip


def process(pid: int, of: Run | None, **more: Any) -> Process:
    argv = ("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--port", "8000")
    name = of.run_id if of else None
    return Process(ProcessId(pid, pid, "b"), 1, pid, pid, 0, "root", "S", "python3", argv,
                   run_id=name, age_s=1.0, **more)  # fmt: skip


def launching(of: Run, at: float, name: str = "launch-1") -> Plan:
    steps = (launch_step(of), watch_step(SERVER, "h", of.run_id, None))
    return Plan(name, "launch", "h", steps, "k", created_at=at)


def looked(*alive: Process, runs: tuple[Run, ...], server: Server = SERVER) -> Looked:
    ports = {8000: alive[0].id.pid} if alive else {}
    snapshot = Snapshot("b", 100.0, 0, alive, listening=ports)
    return Looked(attribute(server, runs, snapshot), snapshot, runs)


async def judge(
    plan: Plan, seen: Looked, *others: tuple[Plan, str], server: Server = SERVER
) -> str:
    """Why the plan is refused, or nothing."""
    host = Journals((plan, "ok"), *others)
    try:
        await refuse_later(cast("Remote", host), server, host.record(plan), seen)
    except Refused as error:
        return f"{error.message}; {error.hint}"
    return ""


FIRST, LATER = run("aaa", 10.0), run("bbb", 20.0)
PLAN, NEXT = launching(FIRST, 9.0), launching(LATER, 19.0, "launch-2")


async def test_its_own_run_is_its_business() -> None:
    assert not await judge(PLAN, looked(process(5, FIRST), runs=(FIRST,)))
    assert not await judge(PLAN, looked(runs=(FIRST,)))
    unrecorded = process(5, FIRST)  # interrupted between the start and its record
    assert not await judge(PLAN, looked(unrecorded, runs=()))


async def test_a_later_run_is_named_with_the_plan_that_started_it() -> None:
    said = await judge(PLAN, looked(process(6, LATER), runs=(FIRST, LATER)), (NEXT, "ok"))
    assert "run bbb of k was launched after it by bob" in said
    assert "specops undo launch-2" in said
    assert "specops stop k" in said
    assert not await judge(NEXT, looked(process(6, LATER), runs=(FIRST, LATER)), (PLAN, "ok"))


async def test_a_later_run_that_has_ended_makes_it_old_too() -> None:
    said = await judge(PLAN, looked(runs=(FIRST, replace(LATER, outcome="stopped"))))
    assert "run bbb" in said
    assert "specops launch k" in said


async def test_what_taking_it_back_has_started_is_its_own() -> None:
    back = replace(launching(LATER, 19.0, "undo-1"), action="undo", undoes=PLAN.id)
    seen = looked(process(6, LATER), runs=(FIRST, LATER))
    assert not await judge(PLAN, seen, (back, ""))
    assert "bbb" in await judge(PLAN, seen, (replace(back, undoes="relaunch-9"), ""))


async def test_a_strangers_process_is_not_its_own() -> None:
    said = await judge(PLAN, looked(process(7, None), runs=(FIRST,)))
    assert "pid 7 serves as k and is no run of it" in said


async def test_what_it_was_to_end_is_its_business_though_nobody_recorded_it() -> None:
    old = process(5, None)
    end = Step(K.SIGNAL, "h", "", signal="TERM", targets=(target_of(old),))
    stop = Plan("stop-1", "stop", "h", (end,), "k", created_at=9.0)
    assert not await judge(stop, looked(old, runs=()))
    assert "pid 8" in await judge(stop, looked(process(8, None), runs=()))


async def test_a_container_made_before_carries_no_id() -> None:
    plan = replace(PLAN, steps=(container_step(FIRST, "box", anew=False),))
    inside = process(9, None, container="box")
    assert not await judge(plan, looked(inside, runs=(FIRST,), server=BOXED), server=BOXED)
    assert "bbb" in await judge(
        plan, looked(inside, runs=(FIRST, LATER), server=BOXED), server=BOXED
    )


async def test_what_was_undone_is_not_undone_again() -> None:
    host = cast("Remote", Journals((PLAN, "undone")))
    with pytest.raises(UsageError, match="was undone"):
        await plan_undo_serving(host, SERVER, await find(host, PLAN.id))


def test_a_plan_names_all_its_runs() -> None:
    drain = Step(K.DRAIN, "h", "", params={"server": "k", "run_id": "old"})
    assert run_ids(replace(PLAN, steps=(drain, *PLAN.steps))) == {"old", "aaa"}
