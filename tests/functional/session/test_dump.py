"""Stacks before a kill: kept privately, bounded and masked; nothing about them stops the kill."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.actions.dump import KEPT
from console.actions.executor import Executor
from console.actions.signals import target_of
from console.model import Plan, Process, Step, StepKind, StepResult
from console.session import Headless, Session, connect
from tests.functional.session.conftest import LOCAL

HANGS = """
import sys, time
def where_it_hangs():
    print("up", flush=True)
    time.sleep(600)
where_it_hangs()
"""
REAL = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
SECRET = "sk-thisIsNobodysKey0123456789abcdef"


@pytest.fixture
def hung() -> Iterator[subprocess.Popen[str]]:
    """A process that hangs in a function of a known name, with a secret in its arguments."""
    argv = [sys.executable, "-c", HANGS, "--api-key", SECRET]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "up\n"
        yield one
        one.kill()


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on the PATH and holds no py-spy; nor does any other folder of it."""
    folder = tmp_path / "tools"
    folder.mkdir()
    others = [
        part for part in os.environ["PATH"].split(os.pathsep) if not Path(part, "py-spy").exists()
    ]
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), *others]))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "operator"))
    return folder


@pytest.fixture
async def link(tools: Path, home: Path) -> AsyncIterator[Session]:
    """A session whose agent has that PATH."""
    opened = await connect(LOCAL, hosts={}, prompts=Headless())
    yield opened
    await opened.close()


def script(tools: Path, text: str) -> None:
    """A py-spy that does this when it is to dump."""
    path = tools / "py-spy"
    path.write_text(f'#!/bin/sh\n[ "$1" = dump ] || exit 0\n{text}\n')
    path.chmod(0o755)


async def found(link: Session, pid: int) -> Process:
    snapshot = await link.snapshot(full=True)
    return next(process for process in snapshot.processes if process.id.pid == pid)


async def carried_out(link: Session, process: Process) -> list[StepResult]:
    """A plan of the stacks and then the kill."""
    targets = (target_of(process),)
    plan = Plan(
        "kill-abc123",
        "kill",
        LOCAL.name,
        (
            Step(StepKind.DUMP, LOCAL.name, "stacks", targets=targets,
                 argv=("py-spy", "dump", "--pid", str(process.id.pid)), timeout_s=30.0),
            Step(StepKind.SIGNAL, LOCAL.name, "end it", signal="KILL", targets=targets,
                 params={"exact": True}),
        ),
    )  # fmt: skip
    return [result async for result in Executor(link, AuditLog()).execute(plan)]


async def test_a_real_py_spy_tells_where_it_hangs(
    link: Session, tools: Path, hung: subprocess.Popen[str], tmp_path: Path
) -> None:
    if REAL is None:
        pytest.skip("py-spy is not installed")
    (tools / "py-spy").symlink_to(REAL)
    dump, kill = await carried_out(link, await found(link, hung.pid))
    assert (dump.outcome, kill.outcome) == ("ok", "ok"), dump.detail
    path = Path(str(dump.data["path"]))
    assert str(path) in dump.detail
    assert path.parent == tmp_path / "operator" / "specops" / "dumps"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    text = path.read_text()
    assert "where_it_hangs" in text
    assert f"pid {hung.pid} " in text
    assert SECRET not in text
    assert hung.wait(60) == -9


async def test_without_py_spy_it_is_said_and_the_kill_goes_on(
    link: Session, hung: subprocess.Popen[str]
) -> None:
    dump, kill = await carried_out(link, await found(link, hung.pid))
    assert (dump.outcome, kill.outcome) == ("skipped", "ok")
    assert dump.detail == "no stacks: py-spy is not on here (pip install it there)"
    assert hung.wait(60) == -9


async def test_one_that_hangs_is_bounded_and_ended(
    link: Session, tools: Path, hung: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.actions.dump.EACH_S", 1.0)
    script(tools, f"trap '' TERM INT HUP; echo $$ > {tools}/pid; while :; do sleep 1; done")
    dump, kill = await carried_out(link, await found(link, hung.pid))
    assert (dump.outcome, kill.outcome) == ("skipped", "ok")
    assert f"{hung.pid}: no answer in 1 s" in dump.detail
    pid = int((tools / "pid").read_text())
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < end, "py-spy outlived its bound"
        time.sleep(0.05)


async def test_what_it_says_is_bounded_inert_and_without_secrets(
    link: Session, tools: Path, hung: subprocess.Popen[str]
) -> None:
    script(
        tools,
        f"printf 'Thread 1: \\033]0;evil\\007 HF_TOKEN={SECRET}\\n\\377\\376\\n';"
        " yes 'a frame (file.py:1)' | head -c 20000000",
    )
    dump, _ = await carried_out(link, await found(link, hung.pid))
    assert dump.outcome == "ok", dump.detail
    data = Path(str(dump.data["path"])).read_bytes()
    assert len(data) < KEPT + 4096
    assert b"(cut here)" in data
    assert SECRET.encode() not in data
    assert b"\x1b" not in data
    assert b"\x07" not in data


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo 'Error: Permission Denied: Try running again with elevated permissions' >&2; exit 1",
         "Permission Denied"),
        ("exit 0", "no output"),
        ("kill -9 $$", "no output"),
    ],
)  # fmt: skip
async def test_one_that_fails_is_said(
    link: Session, tools: Path, hung: subprocess.Popen[str], text: str, said: str
) -> None:
    script(tools, text)
    dump, kill = await carried_out(link, await found(link, hung.pid))
    assert (dump.outcome, kill.outcome) == ("skipped", "ok")
    assert f"{hung.pid}: " in dump.detail
    assert said in dump.detail


async def test_no_place_to_keep_them_stops_nothing(
    link: Session, tools: Path, hung: subprocess.Popen[str], tmp_path: Path
) -> None:
    script(tools, "echo 'Thread 1'")
    folder = tmp_path / "operator" / "specops"
    folder.mkdir(parents=True)
    (folder / "dumps").write_text("in the way")
    dump, kill = await carried_out(link, await found(link, hung.pid))
    assert (dump.outcome, kill.outcome) == ("skipped", "ok")
    assert str(folder / "dumps") in dump.detail


async def test_a_process_that_is_somebody_else_by_now_is_not_looked_into(
    link: Session, tools: Path, hung: subprocess.Popen[str]
) -> None:
    script(tools, f"echo called > {tools}/called; echo 'Thread 1'")
    process = await found(link, hung.pid)
    from dataclasses import replace

    other = replace(process, id=replace(process.id, start_ticks=process.id.start_ticks - 1))
    dump, _ = await carried_out(link, other)
    assert dump.outcome == "skipped"
    assert not (tools / "called").exists()
    assert hung.poll() is None
