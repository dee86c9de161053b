"""``K``: what the operator points at, by its identity; a stranger only when it is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.config import load
from console.config.presets import load_presets
from console.errors import UsageError
from console.model import Process, ProcessId, Run
from console.planning.planner import Planner
from console.session import Session
from tests.functional.session.conftest import make_run

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Processes in sessions of their own, ended after the test."""
    begun: list[subprocess.Popen[str]] = []

    def make(**env: str) -> subprocess.Popen[str]:
        code = "print('up', flush=True); import time; time.sleep(600)"
        one = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, **env},
        )  # fmt: skip
        begun.append(one)
        assert one.stdout is not None
        assert one.stdout.readline() == "up\n"
        return one

    yield make
    for one in begun:
        one.kill()
        one.communicate()


@pytest.fixture
def planner(session: Session, home: Path) -> Planner:
    file = home / "hosts.yaml"
    file.write_text("hosts:\n  here: {transport: local}\n")
    file.chmod(0o600)
    return Planner(session, load(file), load_presets(file), "me@here")


async def seen(session: Session, pid: int) -> Process:
    snapshot = await session.snapshot(full=True)
    return next(process for process in snapshot.processes if process.id.pid == pid)


async def test_a_stranger_wants_the_hosts_name_typed(
    planner: Planner, session: Session, start: Start
) -> None:
    one = start()
    plan = await planner.kill(((await seen(session, one.pid)).id,))
    assert plan.confirm == "here"
    assert plan.summary[0] == "end 1 named process"
    results = [r async for r in Executor(session, AuditLog()).execute(plan)]
    assert {r.outcome for r in results} == {"ok"}, results
    assert one.wait(60) == -15


async def test_a_process_of_a_recorded_run_wants_a_yes(
    planner: Planner, session: Session, start: Start, home: Path
) -> None:
    one = start(SPECOPS_RUN_ID="known")
    run: Run = make_run("known", ["python3"], home / "log")
    await session.save_run(run)
    plan = await planner.kill(((await seen(session, one.pid)).id,))
    assert plan.steps
    assert plan.confirm is None


async def test_what_no_name_makes_a_target_is_left_with_the_reason(
    planner: Planner, session: Session, start: Start
) -> None:
    mine = await seen(session, os.getpid())  # above the agent
    plan = await planner.kill((mine.id,))
    assert plan.steps == ()
    assert plan.confirm is None
    (reason,) = [line for line in plan.summary if line.startswith(f"left alone: {os.getpid()}: ")]
    assert "the session this console works through" in reason
    other = start()
    both = await planner.kill((mine.id, (await seen(session, other.pid)).id))
    assert {t.process.pid for step in both.steps for t in step.targets} == {other.pid}
    assert reason in both.summary


async def test_another_process_with_its_number_is_not_it(
    planner: Planner, session: Session, start: Start
) -> None:
    now = (await seen(session, start().pid)).id
    before = ProcessId(now.pid, now.start_ticks - 1, now.boot_id)
    with pytest.raises(UsageError, match=f"process {now.pid} is gone"):
        await planner.kill((before,))
