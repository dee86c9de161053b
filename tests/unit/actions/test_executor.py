"""The executor on real processes of this machine: recorded, checked, stopped, resumed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.actions.codec import encode
from console.actions.executor import Executor, raise_for
from console.actions.journal import (
    find,
    new_plan_id,
    plan_records,
    plan_undo,
    to_resume,
    unfinished,
)
from console.actions.kill import KillOptions, plan_kill
from console.actions.steps import Context, Outcome
from console.errors import ActionFailed, AgentError, Refused, UsageError
from console.model import Host, Plan, Process, Run, Snapshot, Step, StepKind, StepResult, Zombie
from console.zombies import Policy, classify
from tests import scale
from tests.unit.actions.local import LocalHost

HOST = Host("here", transport="local")

FAMILY = """
import os, signal, sys, time
for i in range(int(sys.argv[2])):
    if os.fork() == 0:
        break
if sys.argv[3:] == ["deaf"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
FORKING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
for i in range(60):  # the count bounds it, whatever becomes of the test
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
        time.sleep(20)
        os._exit(0)
    time.sleep(0.02)
time.sleep(20)
"""


@pytest.fixture
def place(tmp_path: Path) -> LocalHost:
    state = tmp_path / "journal"
    state.mkdir()
    return LocalHost(state, marker=f"run-{os.getpid()}-{tmp_path.name}")


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "state" / "audit.jsonl")


class Nursery:
    """Starts families and at the end kills by pidfd what a failed test left."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, code: str, *words: str, up: int = 1) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-I", "-S", "-c", code, "eagle3", *words]
        env = {"SPECOPS_RUN_ID": self.marker}
        child = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, start_new_session=True)
        self.children.append(child)
        assert child.stdout is not None
        for _ in range(up):
            assert child.stdout.readline() == b"up\n"
        return child


@pytest.fixture
async def nursery(place: LocalHost) -> AsyncIterator[Nursery]:
    made = Nursery(place.marker)
    yield made
    place.break_at = {}
    for _ in range(20):
        left = (await place.snapshot()).processes
        if not [p for p in left if p.state != "Z"]:
            break
        for process in left:
            place._signal(process.id, "KILL")
        await place.wait_gone([p.id for p in left], 0.5)
    for child in made.children:
        assert child.stdout is not None
        child.stdout.close()
        child.returncode = 0  # reaped by the host's wait


def _record(run_id: str) -> Run:
    gone = {"pid": 2**22 - 1, "start_ticks": 1, "boot_id": "x"}
    from console.actions.codec import decode

    return decode(
        Run,
        {
            "run_id": run_id, "server": "demo", "engine": "bundled", "host": "here", "argv": [],
            "env": {}, "cwd": "/", "log": "", "port": 1, "launcher": gone, "session": None,
            "unit": None, "launched_at": 0.0, "launched_by": "me",
        },
    )  # fmt: skip


async def _zombies(place: LocalHost) -> tuple[Snapshot, tuple[Zombie, ...]]:
    """The marked processes as orphans: their recorded launcher is gone, ``look`` adopts them."""
    first = await place.snapshot()
    second = await place.snapshot()
    found = classify(
        second,
        previous=replace(first, time=second.time - 3),
        runs=[_record(place.marker)],
        policy=Policy(kill_score=0.6),
    )
    return second, found


def _adopted(snapshot: Snapshot) -> Snapshot:
    """On a host the launcher's death gives its children to init; here the test is their parent."""
    processes = tuple(
        replace(p, ppid=1) if p.ppid == os.getpid() else p for p in snapshot.processes
    )
    return replace(snapshot, processes=processes)


async def _plan(
    place: LocalHost,
    *,
    drain_s: float = 3.0,
    look: Callable[[Snapshot], Snapshot] | None = None,
) -> Plan:
    place.look = look or _adopted
    snapshot, zombies = await _zombies(place)
    assert zombies, snapshot.processes
    return plan_kill(
        zombies,
        snapshot,
        [_record(place.marker)],
        host=HOST,
        options=KillOptions(drain_s=drain_s),
        policy=Policy(kill_score=0.6),
    )


async def _run(executor: Executor, plan: Plan) -> list[StepResult]:
    return [result async for result in executor.execute(plan)]


async def _alive(place: LocalHost) -> list[Process]:
    return [p for p in (await place.snapshot()).processes if p.state != "Z"]


async def test_a_family_ends_and_everything_is_recorded(
    place: LocalHost, audit: AuditLog, nursery: Nursery
) -> None:
    nursery.start(FAMILY, "5", up=6)
    plan = await _plan(place)
    results = await _run(Executor(place.remote, audit), plan)
    assert [r.outcome for r in results] == ["ok"] * 5, results
    assert not await _alive(place)
    assert {signal for _, signal in place.sent} == {"TERM"}
    assert len(place.sent) == len(set(place.sent)) == 6
    assert place.owner is None
    assert place.journalled == ["plan", *["intent", "result"] * 5, "end"]
    events = [line["event"] for line in audit.read()]
    assert events == ["plan", *["intent", "result"] * 5, "end"]
    assert stat.S_IMODE(audit.path.stat().st_mode) == 0o600


async def test_a_family_deaf_to_term_is_killed(
    place: LocalHost, audit: AuditLog, nursery: Nursery
) -> None:
    nursery.start(FAMILY, "2", "deaf", up=3)
    plan = await _plan(place, drain_s=0.3)
    results = await _run(Executor(place.remote, audit), plan)
    assert results[-1].outcome == "ok", results
    assert not await _alive(place)
    assert sorted(signal for _, signal in place.sent) == ["KILL"] * 3 + ["TERM"] * 3


async def test_a_tree_that_forks_while_it_is_killed_leaves_nothing(
    place: LocalHost, audit: AuditLog, nursery: Nursery
) -> None:
    nursery.start(FORKING)
    await asyncio.sleep(0.1)
    plan = await _plan(place, drain_s=0.2)
    results = await _run(Executor(place.remote, audit), plan)
    assert results[-1].outcome == "ok", results
    assert not await _alive(place)


@pytest.mark.long
async def test_many_zombies_end_together(
    place: LocalHost, audit: AuditLog, nursery: Nursery
) -> None:
    """As one plan: the looks at the host do not grow with their number."""
    number = scale.count(500)
    nursery.start(FAMILY.replace("print(", "os.setsid() if os.getppid() != 1 else 0; print("),
                  str(number), up=number)  # fmt: skip
    looks = 0

    def look(snapshot: Snapshot) -> Snapshot:
        nonlocal looks
        looks += 1
        return replace(snapshot, processes=tuple(replace(p, ppid=1) for p in snapshot.processes))

    plan = await _plan(place, look=look)
    looks = 0
    results = await _run(Executor(place.remote, audit), plan)
    assert results[-1].outcome == "ok", results
    assert not await _alive(place)
    assert len(place.sent) >= number
    assert looks <= 8


async def test_a_process_that_was_there_and_was_not_confirmed_stops_the_plan(
    place: LocalHost, audit: AuditLog, nursery: Nursery
) -> None:
    nursery.start(FAMILY, "0")
    plan = await _plan(place)
    nursery.start(FAMILY, "0")
    place.look = _adopted
    # The look that was confirmed knew of later starts: the second family was there already.
    later = {"newest": 1 << 60}
    steps = tuple(
        replace(step, params={**step.params, **later}) if step.kind is StepKind.SIGNAL else step
        for step in plan.steps
    )
    plan = replace(plan, steps=steps)
    results = await _run(Executor(place.remote, audit), plan)
    assert [r.outcome for r in results] == ["refused"]
    assert "grew beyond what was confirmed by 1" in results[0].detail
    assert place.sent == []
    with pytest.raises(Refused):
        raise_for(plan, results)


async def test_same_pid_other_start_is_another_process(
    place: LocalHost, audit: AuditLog, nursery: Nursery
) -> None:
    nursery.start(FAMILY, "0")
    plan = await _plan(place)
    fake = json.loads(json.dumps(encode(plan)).replace('"start_ticks": ', '"start_ticks": 1'))
    from console.actions.plan import plan_from_journal

    reused = plan_from_journal({**fake, "id": new_plan_id("kill")})
    place.marker, kept = "nobody", place.marker
    results = await _run(Executor(place.remote, audit), reused)
    place.marker = kept
    assert all(r.outcome == "ok" for r in results)
    assert place.sent == []
    assert await _alive(place)


@pytest.mark.parametrize("call", ["snapshot", "signal", "answer to signal", "wait_gone", "journal"])
@pytest.mark.parametrize("after", range(4))
async def test_a_link_lost_anywhere_is_finished_by_resume(
    place: LocalHost, audit: AuditLog, nursery: Nursery, call: str, after: int
) -> None:
    nursery.start(FAMILY, "2", up=3)
    plan = await _plan(place)
    place.break_at = {call: after}
    results: list[StepResult] = []
    # Raised where the link breaks between steps; within a step it is that step's result.
    with contextlib.suppress(AgentError):
        results = await _run(Executor(place.remote, audit), plan)
    place.break_at = {}
    place.owner = None  # falls with the agent
    records = await plan_records(place.remote)
    if not records:  # broke before the first line was on the host: then nothing was done
        assert place.sent == []
        return
    record = await find(place.remote, plan.id)
    if record.outcome != "ok":
        again = Executor(place.remote, audit)
        record = to_resume(record)
        results = [
            r async for r in again.execute(record.plan, done=record.done, in_doubt=record.in_doubt)
        ]
    assert results[-1].outcome == "ok", results
    assert not await _alive(place)
    pids = {target.process.pid for step in plan.steps for target in step.targets}
    assert {pid for pid, _ in place.sent} <= pids
    if call != "answer to signal":  # then it may be asked once more to end, and only to end
        assert len(place.sent) == len(set(place.sent)), "nothing is signalled twice"
    assert (await find(place.remote, plan.id)).outcome == "ok"
    _audit_is_complete(audit)


async def test_cancelled_in_a_step_it_unlocks_and_says_interrupted(
    place: LocalHost, audit: AuditLog, nursery: Nursery
) -> None:
    nursery.start(FAMILY, "0", "deaf")
    plan = await _plan(place, drain_s=30.0)
    task = asyncio.ensure_future(_run(Executor(place.remote, audit), plan))
    while "KILL" not in str(place.sent) and len(place.journalled) < 4:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert place.owner is None
    record = await find(place.remote, plan.id)
    assert (record.outcome, record.in_doubt) == ("interrupted", 1)
    assert [line["event"] for line in audit.read()][-1] == "interrupted"


def _audit_is_complete(audit: AuditLog) -> None:
    """Each intent is followed by how it ended."""
    open_steps: set[object] = set()
    for line in audit.read():
        if line["event"] == "intent":
            open_steps.add(line["detail"]["step"])
        elif line["event"] in ("result", "interrupted"):
            open_steps.discard(line["step"])
    assert not open_steps


async def test_read_only_refuses_before_anything(tmp_path: Path, audit: AuditLog) -> None:
    place = LocalHost(tmp_path, read_only=True)
    step = Step(StepKind.SIGNAL, "here", "x", signal="TERM")
    with pytest.raises(Refused, match="read-only"):
        await _run(Executor(place.remote, audit), Plan("p", "kill", "here", (step,)))
    assert place.journalled == []
    look = Plan("q", "look", "here", (Step(StepKind.VERIFY, "here", "x"),))
    assert (await _run(Executor(place.remote, audit), look))[0].outcome == "ok"


async def test_a_held_lock_refuses_and_names_its_owner(place: LocalHost, audit: AuditLog) -> None:
    place.owner = "ann: relaunch k"
    step = Step(StepKind.RUN, "here", "x", argv=("true",))
    with pytest.raises(Refused, match="ann"):
        await _run(Executor(place.remote, audit), Plan("p", "x", "here", (step,)))
    assert place.owner == "ann: relaunch k"


async def test_what_cannot_be_recorded_is_not_done(place: LocalHost, tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    audit.path.mkdir()
    step = Step(StepKind.RUN, "here", "x", argv=("true",))
    with pytest.raises(ActionFailed, match="audit file"):
        await _run(Executor(place.remote, audit), Plan("p", "x", "here", (step,)))
    assert place.commands == []


async def test_the_first_failed_step_ends_the_plan(place: LocalHost, audit: AuditLog) -> None:
    from console.remote import Completed

    place.answers = lambda argv: Completed(int(argv[0] == "false"), b"", b"no")
    steps = tuple(Step(StepKind.RUN, "here", "x", argv=(w,)) for w in ("true", "false", "true"))
    plan = Plan("p", "x", "here", steps)
    results = await _run(Executor(place.remote, audit), plan)
    assert [r.outcome for r in results] == ["ok", "failed"]
    with pytest.raises(ActionFailed, match="false: exit 1: no"):
        raise_for(plan, results)
    assert (await find(place.remote, "p")).outcome == "failed"


async def test_undo_takes_the_steps_that_can_be_undone_in_reverse(
    place: LocalHost, audit: AuditLog
) -> None:
    async def write(step: Step, context: Context) -> Outcome:
        back = Step(StepKind.WRITE_UNIT, "here", f"back {step.why}")
        return Outcome("ok", data={"undo": encode(back)})

    steps = tuple(Step(StepKind.WRITE_UNIT, "here", why) for why in ("one", "two"))
    executor = Executor(place.remote, audit, handlers={StepKind.WRITE_UNIT: write})
    await _run(executor, Plan("p", "x", "here", steps))
    undo = plan_undo(await find(place.remote, "p"))
    assert [step.why for step in undo.steps] == ["back two", "back one"]
    with pytest.raises(UsageError, match="was finished"):
        to_resume(await find(place.remote, "p"))
    with pytest.raises(UsageError, match="no plan nope"):
        await find(place.remote, "nope")


async def test_recheck_is_asked_before_the_first_step(place: LocalHost, audit: AuditLog) -> None:
    async def recheck(_plan: Plan) -> str | None:
        return "the server answers again"

    step = Step(StepKind.RUN, "here", "x", argv=("true",))
    executor = Executor(place.remote, audit, recheck=recheck)
    with pytest.raises(Refused, match="answers again"):
        await _run(executor, Plan("p", "x", "here", (step,)))
    assert place.commands == []
    assert place.owner is None


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _over_two(place: LocalHost, tmp_path: Path) -> tuple[Plan, LocalHost]:
    """A plan with a step on each of two hosts, and the other one."""
    folder = tmp_path / "other"
    folder.mkdir()
    other = LocalHost(folder, marker="nobody")
    other.host = Host("there", transport="local")
    params = {"server": "big", "counts": False}
    steps = tuple(
        Step(StepKind.DRAIN, name, "", dangerous=True, params=params) for name in ("here", "there")
    )
    return Plan(new_plan_id("stop"), "stop", "here", steps, "big"), other


async def _ok(step: Step, context: Context) -> Outcome:
    return Outcome("ok")


async def test_each_node_has_the_journal(place: LocalHost, audit: AuditLog, tmp_path: Path) -> None:
    plan, other = _over_two(place, tmp_path)
    executor = Executor(
        place.remote, audit, handlers={StepKind.DRAIN: _ok}, others={"there": other.remote}
    )
    assert [r.outcome async for r in executor.execute(plan)] == ["ok", "ok"]
    (own,), (copy,) = await plan_records(place.remote), await plan_records(other.remote)
    assert own == copy
    assert (copy.plan, copy.outcome, sorted(copy.done)) == (plan, "ok", [0, 1])


async def test_a_node_that_takes_no_more_is_behind_and_holds_nothing_up(
    place: LocalHost, audit: AuditLog, tmp_path: Path
) -> None:
    plan, other = _over_two(place, tmp_path)
    other.break_at = {"journal": 2}
    executor = Executor(
        place.remote, audit, handlers={StepKind.DRAIN: _ok}, others={"there": other.remote}
    )
    assert [r.outcome async for r in executor.execute(plan)] == ["ok", "ok"]
    other.break_at = {}
    (own,), (copy,) = await plan_records(place.remote), await plan_records(other.remote)
    assert own.outcome == "ok"
    assert (copy.outcome, copy.in_doubt) == ("interrupted", 0)
    assert copy.entries < own.entries
    told = [entry for entry in audit.read() if entry["event"] == "not-copied"]
    assert [entry["host"] for entry in told] == ["there"]
    left = await unfinished([other.remote], "big")
    assert left is not None
    assert "as there remembers it" in left.words
    assert await unfinished([other.remote, place.remote], "big") is None, "the fuller one counts"


async def test_what_was_done_is_known_to_the_other_node_though_the_plans_own_host_is_lost(
    place: LocalHost, audit: AuditLog, tmp_path: Path
) -> None:
    plan, other = _over_two(place, tmp_path)
    place.break_at = {"journal": 2}  # plan and intent; the result of the first step is not written
    executor = Executor(
        place.remote, audit, handlers={StepKind.DRAIN: _ok}, others={"there": other.remote}
    )
    with pytest.raises(AgentError):
        _ = [r async for r in executor.execute(plan)]
    (copy,) = await plan_records(other.remote)
    assert sorted(copy.done) == [0]
