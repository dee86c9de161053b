"""Launching under a real systemd, following its journal, over a real sshd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from console.errors import ActionFailed
from console.model import Host, Run, Target
from console.remote import Launch, LogSource
from console.session import Headless, Session, connect
from tests.functional.session.conftest import make_run
from tests.rig.nspawn import NspawnHost

pytestmark = pytest.mark.hosts


@pytest.fixture
async def session(
    python_host: NspawnHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Session]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    host = Host(
        "box",
        address=python_host.address,
        user="root",
        python=str(python_host.python),
        identity_files=(str(python_host.key.path),),
        known_hosts=str(python_host.known_hosts),
    )
    opened = await connect(host, hosts={}, prompts=Headless())
    assert opened.hello.systemd
    yield opened
    await opened.close()


def shell(run_id: str, script: str, **more: object) -> Run:
    return make_run(
        run_id, ["/bin/sh", "-c", script], Path(f"/root/{run_id}.log"), cwd="/root", **more
    )


async def test_a_launch_has_its_own_unit(session: Session) -> None:
    script = 'echo "$SPECOPS_RUN_ID|$TRICKY|$HF_TOKEN"; exec sleep 600'
    tricky = "a \"b\" $c `d` \\ % 'e'"
    run = await session.launch(
        Launch(shell("r-unit", script, env={"TRICKY": tricky}), secrets={"HF_TOKEN": "hush"})
    )
    assert run.unit == "specops-r-unit.service"
    assert run.launcher is not None
    lines = b""
    async for chunk in session.tail(LogSource(path=run.log)):
        lines += chunk.data
        if lines.endswith(b"\n"):
            break
    assert lines.decode() == f"r-unit|{tricky}|hush\n"
    snapshot = await session.snapshot(full=True)
    mine = next(item for item in snapshot.processes if item.id == run.launcher)
    assert (mine.unit, mine.run_id) == (run.unit, "r-unit")
    status = await session.unit_status(run.unit)
    assert (status.active, status.main_pid) == ("active", run.launcher.pid)
    shown = await session.run(["systemctl", "show", run.unit])
    assert b"hush" not in shown.stdout, "a unit's properties are everybody's to read"
    left = await session.run(["ls", session.hello.state_dir + "/runs"])
    assert left.stdout.split() == [b"r-unit.json"]
    target = Target(run.launcher, 0, "root", "sleep", "r-unit")
    assert (await session.signal([target], "KILL"))[0].outcome == "signalled"
    assert await session.wait_gone([run.launcher], 10) == []
    assert await ended(session, "r-unit") == -9


async def ended(session: Session, run_id: str) -> int | None:
    for _ in range(100):
        status = await session.exit_status(run_id)
        if status is not None:
            return status.code
        await asyncio.sleep(0.05)
    raise AssertionError("no exit status was written")


async def test_exit_status_and_exec_failure(session: Session) -> None:
    run = await session.launch(Launch(shell("r-exit", "sleep 0.2; exit 3")))
    assert run.unit is not None
    assert await ended(session, "r-exit") == 3
    missing = make_run("r-none", ["/no/such/program"], Path("/root/l"), cwd="/root")
    with pytest.raises(ActionFailed, match="systemd-run"):
        await session.launch(Launch(missing))
    dollars = make_run(
        "r-dollar", ["/bin/echo", "$HOME", "${X}", "100%"], Path("/root/d"), cwd="/root"
    )
    await session.launch(Launch(dollars))
    assert await ended(session, "r-dollar") == 0
    assert await session.read_file("/root/d") == b"$HOME ${X} 100%\n"


async def test_the_journal_of_a_unit(session: Session) -> None:
    words = ["systemd-run", "--unit=talker", "--", "/bin/sh", "-c",
             "for i in 1 2 3 4 5; do echo line $i; done; sleep 600"]  # fmt: skip
    assert (await session.run(words)).code == 0
    source = LogSource(unit="talker.service")
    lines, cursor = b"", None
    async for chunk in session.tail(source):
        lines += chunk.data
        cursor = chunk.cursor
        if b"line 5\n" in lines:
            break
    said = [line for line in lines.splitlines() if line.startswith(b"line ")]
    assert said == [b"line %d" % n for n in range(1, 6)], "systemd's own words may come between"
    assert (await session.run(["systemctl", "stop", "talker"])).code == 0
    more = [chunk async for chunk in session.tail(source, cursor=cursor, follow=False)]
    rest = b"".join(chunk.data for chunk in more)
    assert b"line 5\n" not in rest, "nothing comes twice"
    assert b"Stopped" in rest
    found = [line async for _, line in session.grep(source, "line [24]$")]
    assert found == [b"line 2", b"line 4"]
