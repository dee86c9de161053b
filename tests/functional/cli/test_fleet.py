"""The fleet over a real agent on this machine: seen, lost, seen again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from console.config import Config
from console.model import Host, HostState, HostView
from console.planning.operations import Operations
from console.session import Headless
from console.watch import fleet as fleet_module
from console.watch.fleet import Fleet


@pytest.fixture
async def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setenv("SPECOPS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "operator"))
    monkeypatch.setattr(fleet_module, "BACKOFF_S", (0.1,))
    config = Config(tmp_path / "hosts.yaml", hosts={"here": Host("here", transport="local")})
    config.path.write_text("hosts:\n  here: {transport: local}\n")
    config.path.chmod(0o600)
    tmp_path.chmod(0o700)
    made = Fleet(config, Headless())
    yield made
    await made.stop()


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not what():
            await asyncio.sleep(0.02)


def view(fleet: Fleet) -> HostView:
    return fleet.views["here"]


async def test_a_killed_agent_is_noticed_and_replaced(fleet: Fleet) -> None:
    states: list[HostState] = []
    fleet.subscribe(lambda seen: states.append(seen.state))
    await fleet.start()
    await until(lambda: view(fleet).state is HostState.OK)
    first = view(fleet).hello
    assert first is not None
    assert view(fleet).snapshot is not None
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: HostState.UNREACHABLE in states or HostState.NO_AGENT in states)
    assert view(fleet).snapshot is not None, "what was last known is kept"
    await until(lambda: view(fleet).state is HostState.OK and view(fleet).hello != first)


async def test_commands_that_look_run_beside_the_console(fleet: Fleet) -> None:
    from console.config.presets import load_presets
    from console.errors import Refused

    await fleet.start()
    await until(lambda: view(fleet).state is HostState.OK)
    actions = Operations(fleet, fleet.config, load_presets())
    output = await actions.run_command("presets list --json")
    assert output.code == 0
    assert '"eagle3-3step"' in output.text
    for line in ("kill-zombies --yes", "presets save x", "config init", "launch one"):
        with pytest.raises(Refused):
            await actions.run_command(line)
    assert (await actions.run_command("status nowhere")).code == 2
