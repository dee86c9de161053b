"""Real specimens of every kind on one host: detected, proved, killed or left alone, verified."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from console.model import Phase, Zombie, ZombieKind
from tests import scale
from tests.hosts.killing import Bench, carry_out, running, session
from tests.rig.nspawn import missing as no_hosts
from tests.rig.plugin import require
from tests.trouble.api import Specimen, make

pytestmark = [pytest.mark.hosts, pytest.mark.long]
ROOT = Path(__file__).parents[2]
NUMBER = 10
"""Specimens a kind in a full run; a twentieth, so one, in an ordinary one."""


@dataclass(frozen=True)
class Row:
    """What must come out for a kind of trouble. ``role`` is the process that gets the verdict.

    ``also``: a second verdict that is true of another process of the same specimen.
    """

    trouble: str
    kind: str | None
    role: str = "rank0"
    killed: bool = True
    evidence: str = ""
    phase: Phase = Phase.READY
    age_s: float = 3600.0
    also: str | None = None


NEVER = (ZombieKind.STUCK_IO, ZombieKind.DEFUNCT)
ROWS = (
    Row("orphan", "orphan", evidence="has exited"),
    Row("held-port", "orphan", evidence="has exited"),
    Row("unlinked", "orphan", evidence="has exited"),
    Row("half-dead", "half-dead", evidence="threads still run"),
    Row("headless", "headless", "launcher", evidence="0 of 2 ranks"),
    Row("never-ready", "never-ready", "launcher", evidence="no I/O", phase=Phase.GRAPH_TARGET),
    Row("hung-stopped", "hung", "launcher", evidence="stopped (state T)"),
    Row("hung-deadlocked", "hung", "launcher", evidence="/health_generate no answer"),
    Row("defunct", "defunct", killed=False, evidence="has not collected it", also="headless"),
    Row("stuck-vfork", "stuck-io", killed=False, evidence="state D"),
    Row("stuck-frozen", "stuck-io", "writer", killed=False, evidence="state D"),
    Row("healthy", None, killed=False),
    Row("busy", None, killed=False),
    Row("double-fork", None, killed=False),
    Row("slow-loader", None, killed=False, phase=Phase.LOAD_TARGET, age_s=0.0),
    Row("foreign-training", None, killed=False),
    Row("foreign-python", None, killed=False),
    Row("foreign-monitor", None, killed=False),
    Row("foreign-user", None, killed=False),
    Row("other-namespace", None, killed=False),
)


@pytest.fixture(autouse=True)
def _root() -> None:
    require(no_hosts())


async def test_every_kind_on_one_host(tmp_path: Path, capsys: Any) -> None:
    number = scale.count(NUMBER)
    with ExitStack() as stack:
        made = {
            row.trouble: stack.enter_context(
                make(row.trouble, number, ranks=2, mib=4, run_id=_run_id(row), age_s=row.age_s)
            ).specimens
            for row in ROWS
        }
        specimens = tuple(one for group in made.values() for one in group)
        async with session(tmp_path) as link:
            bench = Bench(link, specimens, {row.trouble: row.phase for row in ROWS})
            found = await bench.look()
            verdicts = {row: _verdicts(row, made[row.trouble], found) for row in ROWS}
            doomed = [z for row in ROWS if row.killed for z in verdicts[row]]
            spared = {row: _alive(made[row.trouble]) for row in ROWS if not row.killed}
            assert bench.plan(_never(verdicts), named=True).steps == ()
            plan = bench.plan(doomed)
            results = await carry_out(link, plan, tmp_path)
            assert [r.outcome for r in results] == ["ok"] * len(plan.steps), results
            assert results[-1].data["verified"] is True
            for row, before in spared.items():
                assert _alive(made[row.trouble]) == before, row
                assert not _signalled(made[row.trouble]), row
            for row in ROWS:
                if row.killed:
                    assert not _alive(made[row.trouble]), row
    with capsys.disabled():
        print("\n" + "\n".join(_lines(number, verdicts, results[-1].detail)))


def _verdicts(row: Row, group: tuple[Specimen, ...], found: tuple[Zombie, ...]) -> list[Zombie]:
    """The verdicts on a row's specimens, each checked."""
    pids = {pid for one in group for pid in one.pids.values()}
    heads = {one.pids.get(row.role) for one in group}
    here = [z for z in found if z.pid in pids]
    mine = [z for z in here if z.pid in heads and z.kind.value == row.kind]
    detail = [(z.kind.value, z.pid, z.killable, z.why_not, z.evidence) for z in here]
    assert len(mine) == (len(group) if row.kind else 0), (row.trouble, detail)
    assert all(row.evidence in " | ".join(z.evidence) for z in mine), (row.trouble, detail)
    assert all(z.killable is row.killed for z in mine), (row.trouble, detail)
    wrong = [z for z in here if z.killable and z.kind.value not in (row.kind, row.also)]
    assert not wrong, (row.trouble, wrong)
    return [z for z in here if z.killable and row.killed] if row.killed else mine


def _never(verdicts: dict[Row, list[Zombie]]) -> list[Zombie]:
    """What is explained and never signalled, not even when it is named."""
    never = [z for found in verdicts.values() for z in found if z.kind in NEVER]
    assert {z.kind for z in never} == set(NEVER)
    return never


def _alive(group: tuple[Specimen, ...]) -> set[int]:
    return {pid for one in group for pid in running(one)}


def _signalled(group: tuple[Specimen, ...]) -> list[int]:
    """Those to which a signal is on its way: nothing else shows in a process that sleeps in D."""
    found = []
    for pid in _alive(group):
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        pending = [line.split()[1] for line in status if line.startswith(("SigPnd", "ShdPnd"))]
        assert len(pending) == 2
        if any(int(mask, 16) for mask in pending):
            found.append(pid)
    return found


def _run_id(row: Row) -> str:
    """Strangers carry no run id of ours."""
    if row.trouble.startswith(("foreign", "other")):
        return ""
    return f"{row.trouble}-{time.time_ns():x}-{{}}"


def _lines(number: int, verdicts: dict[Row, list[Zombie]], verified: str) -> list[str]:
    lines = [f"{'trouble':<17} {'verdict':<12} made detected proved killed"]
    for row in verdicts:
        seen = number if row.kind else 0
        killed = number if row.killed else 0
        kind = row.kind or "none"
        lines.append(f"{row.trouble:<17} {kind:<12} {number:>4} {seen:>8} {seen:>6} {killed:>6}")
    return [*lines, f"afterwards: {verified}"]


def test_leftovers_go_and_what_is_mapped_stays(tmp_path: Path) -> None:
    argv = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
    argv += [sys.executable, "-m", "tests.hosts.leftovers", str(scale.count(NUMBER)), str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert set(said["made"]) <= set(said["proposed"]), said
    assert said["outcomes"] == ["ok"], said
    assert not set(said["proposed"]) & set(said["left"]), said
    assert not set(said["mapped"]) & set(said["proposed"]), said
    assert said["mapped_left"] == said["mapped"], said
    # Semaphores have no time of use, only one of birth: what counts is who maps them.
    assert len(said["live"]) == len(said["dead"]) == 2
    assert set(said["dead"]) <= set(said["proposed"]), said
    assert not set(said["live"]) & set(said["proposed"]), said
    assert said["live_left"] == said["live"], said
    assert not set(said["dead"]) & set(said["left"]), said


async def test_a_tree_that_forks_while_it_is_killed_leaves_nothing(tmp_path: Path) -> None:
    run_id = f"storm-{time.time_ns():x}"
    with make("storm", 1, ranks=3, run_id=run_id) as trouble:
        async with session(tmp_path) as link:
            bench = Bench(link, trouble.specimens)
            bench.now = await link.snapshot(full=True)
            launcher = trouble.specimens[0].pids["launcher"]
            plan = bench.plan([bench.verdict_on(launcher)], drain_s=0.5)
            results = await carry_out(link, plan, tmp_path)
            assert results[-1].outcome == "ok", results
            left = [p for p in (await link.snapshot(full=True)).processes if p.run_id == run_id]
            assert not [p for p in left if p.state not in ("Z", "X")]
