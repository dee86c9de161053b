"""Sessions on this machine, with a state directory of the test's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from console.model import Host, Run
from console.session import Headless, Session, connect

LOCAL = Host("here", transport="local")
WAITS = "print('up', flush=True); import time; time.sleep(600)"
"""A program to be killed."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The agent's state goes below this folder, root or not."""
    from console.agent import machine

    monkeypatch.setenv("SPECOPS_STATE_DIR", str(tmp_path / "state"))
    assert machine.state_dir() == str(tmp_path / "state")
    return tmp_path


@pytest.fixture
async def session(home: Path) -> AsyncIterator[Session]:
    """A session on this machine."""
    opened = await connect(LOCAL, hosts={}, prompts=Headless())
    yield opened
    await opened.close()


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own that waits to be killed."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "up\n"
        yield one
        one.kill()


def make_run(run_id: str, argv: list[str], log: Path, **more: object) -> Run:
    """A run record ready for launching."""
    fields: dict[str, object] = {
        "run_id": run_id,
        "server": "s",
        "engine": "bundled",
        "host": "here",
        "argv": tuple(argv),
        "env": {},
        "cwd": str(log.parent),
        "log": str(log),
        "port": 0,
        "launcher": None,
        "session": None,
        "unit": None,
        "launched_at": 1.0,
        "launched_by": "tests",
    }
    return Run(**{**fields, **more})  # type: ignore[arg-type]
