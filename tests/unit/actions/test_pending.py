"""Which plans wait for somebody: the ways offered are those that would be taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.actions.codec import encode
from console.actions.journal import PlanRecord
from console.actions.pending import Pending, open_plan, pending
from console.model import Plan, ProcessId, Run, Step, StepKind, StepResult

K = StepKind


def run(name: str, at: float, outcome: str | None = None) -> Run:
    return Run(
        run_id=name, server="k", engine="sglang", host="h", argv=("/py",), env={}, cwd="/",
        log="", port=8000, launcher=ProcessId(10, 1, "b"), session=None, unit=None,
        launched_at=at, launched_by="bob", outcome=outcome,
    )  # fmt: skip


OLD, NEW, OTHER = run("old", 1.0), run("new", 10.0), run("other", 20.0)
DRAIN = Step(K.DRAIN, "h", "", params={"server": "k", "run_id": "old", "again": {}})
TERM = Step(K.SIGNAL, "h", "", signal="TERM", dangerous=True)
LAUNCH = Step(K.LAUNCH, "h", "", params={"run": encode(NEW)}, dangerous=True)
CHECK, WATCH = Step(K.PREFLIGHT, "h", ""), Step(K.WATCH, "h", "", params={"run_id": "new"})
RELAUNCH = (CHECK, DRAIN, TERM, LAUNCH, WATCH)


def record(
    action: str, outcome: str, done: int, *steps: Step, at: float = 5.0, server: str | None = "k"
) -> PlanRecord:
    plan = Plan(f"{action}-{at:.0f}", action, "h", steps, server, created_at=at)
    results = {number: StepResult(number, "ok", 0.0) for number in range(done)}
    return PlanRecord(plan, "ann", at, outcome, results)


def ways(
    one: PlanRecord, runs: tuple[Run, ...], *alive: str, also: PlanRecord | None = None
) -> str:
    found = pending([one, *([also] if also else [])], runs, alive)
    mine: list[Pending] = [p for p in found if p.record is one]
    return " ".join(mine[0].ways) + (" !" if mine[0].urgent else "") if mine else ""


CUT = record("relaunch", "interrupted", 3, *RELAUNCH)
STOPPED = replace(OLD, outcome="stopped")


def test_a_relaunch_cut_off_with_the_server_down_needs_somebody() -> None:
    assert ways(CUT, (STOPPED,)) == "resume undo !"
    told = open_plan(pending([CUT], (STOPPED,), ())[0], None)
    assert (told.server, told.under_way, told.done) == ("k", False, (0, 1, 2))
    assert "specops resume relaunch-5" in told.detail
    assert open_plan(pending([CUT], (STOPPED,), ())[0], "ann: relaunch relaunch-5").under_way


def test_one_cut_off_while_it_watched_is_no_emergency() -> None:
    assert ways(record("relaunch", "interrupted", 4, *RELAUNCH), (STOPPED, NEW), "new") == (
        "resume undo"
    )
    assert ways(record("relaunch", "interrupted", 1, *RELAUNCH), (OLD,), "old") == "resume undo"


@pytest.mark.parametrize("alive", [(), ("other",)])
def test_another_run_makes_it_old(alive: tuple[str, ...]) -> None:
    assert ways(CUT, (STOPPED, OTHER), *alive) == ""


def test_a_later_plan_makes_it_old_and_one_that_did_nothing_does_not() -> None:
    stop = record("stop", "ok", 2, replace(DRAIN, params={"run_id": "new"}), TERM, at=30.0)
    assert ways(CUT, (STOPPED,), also=stop) == ""
    refused = record("launch", "refused", 0, CHECK, LAUNCH, at=30.0)
    assert ways(CUT, (STOPPED,), also=refused) == "resume undo !"
    elsewhere = replace(stop, plan=replace(stop.plan, server="m"))
    assert ways(CUT, (STOPPED,), also=elsewhere) == "resume undo !"


def test_a_failed_launch_is_over_with_its_run() -> None:
    launch = record("launch", "failed", 2, CHECK, LAUNCH, WATCH)
    assert ways(launch, (replace(NEW, outcome="failed"),)) == ""
    assert ways(launch, (NEW,), "new") == "resume undo", "it still starts"
    assert ways(record("launch", "failed", 1, CHECK, LAUNCH), ()) == "", "it has started nothing"


def test_a_failed_relaunch_can_only_bring_back_what_ran_before() -> None:
    failed = record("relaunch", "failed", 4, *RELAUNCH)
    assert ways(failed, (STOPPED, replace(NEW, outcome="failed"))) == "undo"
    assert ways(record("relaunch", "failed", 3, *RELAUNCH), (STOPPED,)) == "resume undo"


def test_a_stop_is_over_with_what_it_was_to_end() -> None:
    stop = record("stop", "interrupted", 1, DRAIN, TERM)
    assert ways(stop, (STOPPED,), "old") == "resume undo !"
    assert ways(stop, (STOPPED,)) == ""


def test_what_cannot_be_taken_back_is_not_offered_to_be() -> None:
    kill = record("kill-zombies", "interrupted", 1, TERM, TERM, server=None)
    assert ways(kill, ()) == "resume !"
    later = record("kill-zombies", "ok", 1, TERM, at=30.0, server=None)
    assert ways(kill, (), also=later) == ""
    done = {0: StepResult(0, "ok", 0.0, data={"undo": {}})}
    assert ways(replace(kill, done=done), ()) == "resume undo !"
