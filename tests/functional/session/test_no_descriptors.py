"""A host without free descriptors: what cannot be looked at is neither gone nor free nor unheld."""

from __future__ import annotations

import mmap
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.actions.signals import target_of
from console.errors import ActionFailed, HostError
from console.model import Artefact, Plan, Process, Snapshot, Step, StepKind
from console.session import Session
from tests.functional.session.conftest import LOCAL


@contextmanager
def exhausted(session: Session) -> Iterator[None]:
    """The agent may open nothing more."""
    pid = session.hello.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


async def look(session: Session, pid: int) -> tuple[Snapshot, Process]:
    snapshot = await session.snapshot(full=True)
    return snapshot, next(p for p in snapshot.processes if p.id.pid == pid)


async def test_a_living_process_is_neither_gone_nor_signalled(
    session: Session, victim: subprocess.Popen[str]
) -> None:
    _, process = await look(session, victim.pid)
    with exhausted(session):
        assert await session.wait_gone([process.id], 0.3) == [process.id]
        with pytest.raises(ActionFailed, match="Too many open files"):
            await session.signal([target_of(process)], "KILL")
    assert victim.poll() is None
    (result,) = await session.signal([target_of(process)], "KILL")
    assert result.outcome == "signalled"
    assert victim.wait(60) == -9


async def test_no_look_is_an_error_and_not_an_empty_host(
    session: Session, victim: subprocess.Popen[str]
) -> None:
    await look(session, victim.pid)
    with exhausted(session), pytest.raises(HostError, match=r"cannot be looked at.*Too many open"):
        await session.snapshot(full=True)
    _, process = await look(session, victim.pid)
    assert process.readable


async def test_a_held_segment_stays(session: Session) -> None:
    path = Path(f"/dev/shm/psm_test_{os.getpid()}")
    path.write_bytes(b"\0" * 4096)
    try:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
            info = path.stat()
            held = Artefact(
                "shm", str(path), info.st_uid, "me", 4096, 0.0, info.st_dev, info.st_ino
            )
            with exhausted(session), pytest.raises(ActionFailed, match="Too many open files"):
                await session.remove([held])
        assert path.exists()
    finally:
        path.unlink()


async def test_a_plan_stops_at_what_it_cannot_see_and_is_resumed(
    session: Session, victim: subprocess.Popen[str]
) -> None:
    snapshot, process = await look(session, victim.pid)
    targets = (target_of(process),)
    plan = Plan(
        "kill-nofile", "kill", LOCAL.name,
        (
            Step(StepKind.SIGNAL, LOCAL.name, "end it", signal="KILL", targets=targets,
                 dangerous=True, params={"exact": True}),
            Step(StepKind.WAIT_GONE, LOCAL.name, "gone", targets=targets, timeout_s=30.0),
        ),
        created_at=snapshot.time,
    )  # fmt: skip
    with exhausted(session), pytest.raises((ActionFailed, HostError), match="Too many open files"):
        [result async for result in Executor(session, AuditLog()).execute(plan)]
    assert victim.poll() is None
    results = [result async for result in Executor(session, AuditLog()).execute(plan)]
    assert [result.outcome for result in results] == ["ok", "ok"], results
    assert victim.wait(60) == -9
