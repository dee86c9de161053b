"""Hosts that are odd: /proc that hides others' processes, a full disk below the records."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.actions.signals import target_of
from console.errors import ActionFailed
from console.model import Host, Plan, Step, StepKind
from console.session import Headless, Session, connect
from tests.functional.session.conftest import WAITS
from tests.rig.plugin import require

NOBODY = 65534
SYSTEM_PYTHON = shutil.which("python3", path="/usr/bin:/bin")


def _missing() -> str | None:
    if os.geteuid() != 0:
        return "only root can mount"
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return "needs unshare and setpriv"
    return None if SYSTEM_PYTHON else "needs a python3 that every user may run"


def program(folder: Path, text: str) -> Host:
    """This machine, seen by an agent that a script starts."""
    require(_missing())
    script = folder / "python"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return Host("here", transport="local", python=str(script))


@asynccontextmanager
async def opened(host: Host) -> AsyncIterator[Session]:
    session = await connect(host, hosts={}, prompts=Headless())
    try:
        yield session
    finally:
        await session.close()


@pytest.fixture
def nobodys() -> Iterator[subprocess.Popen[str]]:
    """A process of the user nobody."""
    require(_missing())
    argv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--",
            str(SYSTEM_PYTHON), "-c", WAITS]  # fmt: skip
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd="/"
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "up\n"
        yield one
        one.kill()


@pytest.mark.parametrize("hidden", ["1", "2"])
async def test_hidden_processes_are_unknown_and_ones_own_can_be_ended(
    tmp_path: Path, nobodys: subprocess.Popen[str], hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login that sees nobody else's processes knows that; its own it may end."""
    tmp_path.chmod(0o755)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.chdir("/")
    host = program(
        tmp_path,
        "exec unshare --mount --propagation private sh -c '"
        f"mount -t proc -o hidepid={hidden} proc /proc && "
        f'exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups -- {SYSTEM_PYTHON} "$@"'
        '\' sh "$@"',
    )
    segment = Path(f"/dev/shm/psm_odd{hidden}_{os.getpid()}")
    segment.write_bytes(b"\0" * 64)
    try:
        async with opened(host) as session:
            assert session.hello.uid == NOBODY
            snapshot = await session.snapshot(full=True, artefacts=True)
            assert not snapshot.processes_complete
            assert os.getpid() not in {p.id.pid for p in snapshot.processes}, "it is root's"
            mine = next(p for p in snapshot.processes if p.id.pid == nobodys.pid)
            found = next(a for a in snapshot.artefacts if a.path == str(segment))
            assert found.holders is None, "a hidden process may hold it"
            (result,) = await session.signal([target_of(mine)], "KILL")
            assert result.outcome == "signalled"
            assert nobodys.wait(60) == -9
            assert await session.wait_gone([mine.id], 30.0) == []
    finally:
        segment.unlink()


async def test_on_a_full_disk_only_ending_goes_on_and_nothing_stays_locked(
    tmp_path: Path, victim: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What begins something is not done unrecorded; ending is, recorded on this machine alone.

    A host that is full of its servers' logs would be lost otherwise.
    """
    state = tmp_path / "state"
    state.mkdir()
    monkeypatch.setenv("SPECOPS_STATE_DIR", str(state))
    host = program(
        tmp_path,
        "exec unshare --mount --propagation private sh -c '"
        f"mount -t tmpfs -o size=64k tmpfs {state} && mkdir {state}/runs {state}/journals && "
        f"head -c 1000000 /dev/zero > {state}/fill 2>/dev/null; : > {state}/lock; "
        f'exec {sys.executable} "$@"\' sh "$@"',
    )
    audit = AuditLog(tmp_path / "audit.jsonl")
    async with opened(host) as session:
        snapshot = await session.snapshot(full=True)
        process = next(p for p in snapshot.processes if p.id.pid == victim.pid)
        targets = (target_of(process),)
        kill = (
            Step(StepKind.SIGNAL, "here", "end it", signal="KILL", targets=targets,
                 dangerous=True, params={"exact": True}),
            Step(StepKind.WAIT_GONE, "here", "gone", targets=targets, timeout_s=30.0),
        )  # fmt: skip
        fills = f"head -c 1000000 /dev/zero > {state}/fill; head -c 7000 /dev/zero | tr '\\0' x"
        first = Step(StepKind.RUN, "here", "fill it up", argv=("sh", "-c", fills))
        plan = Plan("kill-full", "kill", "here", (first, *kill))
        for _ in range(2):  # the second attempt finds no lock of the first
            with pytest.raises(ActionFailed, match="No space left"):
                [r async for r in Executor(session, audit).execute(plan)]
        assert victim.poll() is None
        await session.run(("rm", f"{state}/fill"))
        with pytest.raises(ActionFailed, match="No space left"):  # it fills up in the middle
            [r async for r in Executor(session, audit).execute(plan)]
        assert victim.poll() is None
        assert not audit.open_steps(plan.id), "each intent has its end"
        told: list[str] = []
        again = Plan("kill-again", "kill", "here", kill)
        results = [r async for r in Executor(session, audit, say=told.append).execute(again)]
        assert [r.outcome for r in results] == ["ok", "ok"], results
        assert told[0] == "here: its disk is full: kill-again is recorded on this machine alone"
        assert sum("disk" in line for line in told) == 1
        assert await session.lock_owner() is None
        await session.run(("rm", f"{state}/fill"))
        assert not (await session.journals()).get("kill-again")
    assert victim.wait(60) == -9
    kept = audit.path.read_text()
    assert '"not-journalled"' in kept
    assert not audit.open_steps("kill-again")
