"""The console or the agent is killed in the middle of each step: resume finishes, nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.actions.journal import find, to_resume
from console.actions.plan import plan_to_journal
from console.model import Plan
from tests import scale
from tests.hosts.killing import Bench, running, session
from tests.rig.nspawn import missing as no_hosts
from tests.rig.plugin import require
from tests.trouble.api import make

pytestmark = [pytest.mark.hosts, pytest.mark.long]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _root() -> None:
    require(no_hosts())


EVERY = [(victim, step) for step in range(5) for victim in ("console", "agent")]
CASES = EVERY if scale.SHARE >= 1 else [EVERY[i] for i in (0, 3, 4, 7, 8)]


@pytest.mark.parametrize(("victim", "step"), CASES)
async def test_killed_in_a_step_and_resumed(victim: str, step: int, tmp_path: Path) -> None:
    with make("orphan", 2, ranks=2, run_id=f"cut-{time.time_ns():x}-{{}}") as trouble:
        async with session(tmp_path) as link:
            bench = Bench(link, trouble.specimens)
            bench.now = await link.snapshot(full=True)
            ranks = [pid for one in trouble.specimens for pid in one.ranks]
            plan = bench.plan([bench.verdict_on(pid) for pid in ranks])
        _run_and_kill(victim, plan, step, tmp_path)
        async with session(tmp_path) as link:
            record = to_resume(await find(link, plan.id))
            assert record.in_doubt == step
            assert sorted(record.done) == list(range(step))
            executor = Executor(link, AuditLog(tmp_path / "audit.jsonl"))
            results = [
                result
                async for result in executor.execute(
                    record.plan, done=record.done, in_doubt=record.in_doubt
                )
            ]
            assert [r.step for r in results] == list(range(step, len(plan.steps)))
            assert {r.outcome for r in results} == {"ok"}, results
            assert (await find(link, plan.id)).outcome == "ok"
        assert not {pid for one in trouble.specimens for pid in running(one)}
        # They ended at the first SIGTERM, so whatever was repeated reached nobody.
        again = [r.data.get("signalled") for r in results if "signalled" in r.data]
        assert not any(again), again
        _audit_tells_all(tmp_path / "audit.jsonl", len(plan.steps))


def _run_and_kill(victim: str, plan: Plan, step: int, folder: Path) -> None:
    path = folder / "plan.json"
    path.write_text(json.dumps(plan_to_journal(plan)))
    argv = [sys.executable, "-m", "tests.hosts.kill_console", str(folder), str(path), str(step)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as console:
        assert console.stdout is not None
        for line in console.stdout:
            if line.startswith("here"):
                agent = int(line.split()[1])
                os.kill(console.pid if victim == "console" else agent, signal.SIGKILL)
                break
        code = console.wait(30)
        if victim == "agent" and step == len(plan.steps) - 1:
            assert code == 0  # all was done and said; only the host's journal does not know yet
            return
        assert code != 0
        if victim == "agent":
            assert console.stderr is not None
            assert f"specops resume {plan.id}" in console.stderr.read()


def _audit_tells_all(path: Path, steps: int) -> None:
    """Each step has an intent and, after it, how it ended."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    ended = [event["step"] for event in events if event["event"] == "result"]
    begun = [event["detail"]["step"] for event in events if event["event"] == "intent"]
    assert set(begun) == set(ended) == set(range(steps))
    assert events[-1]["event"] == "end"
