"""The console's side of serving: plans made and carried out over the fleet's own connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.config import load
from console.config.presets import load_presets
from console.errors import ActionFailed, Refused, UsageError
from console.model import (
    Change,
    HostState,
    Phase,
    Plan,
    ServerState,
    Severity,
    StepKind,
    StepResult,
)  # fmt: skip
from console.planning.measuring import Load, history
from console.planning.operations import Operations
from console.remote import LogSource
from console.session import Headless
from console.watch.fleet import Fleet
from tests.functional.cli.conftest import free_port

pytestmark = pytest.mark.server


@pytest.fixture
async def operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Operations]:
    monkeypatch.setenv("SPECOPS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "operator"))
    tmp_path.chmod(0o700)
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text(
        "hosts:\n  here: {transport: local}\nservers:\n"
        f"  one: {{host: here, engine: bundled, port: {free_port()}, speculative: eagle3-3step,\n"
        "        args: {max-running-requests: 8}}\n"
    )
    hosts.chmod(0o600)
    fleet = Fleet(load(hosts), Headless())
    await fleet.start()
    await until(lambda: fleet.views["here"].state is HostState.OK)
    made = Operations(fleet, fleet.config, load_presets(hosts), audit=AuditLog(tmp_path / "audit"))
    yield made
    await done(made, await made.plan("stop", "here", "one"))
    await fleet.stop()


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.05)


async def done(operations: Operations, plan: Plan) -> list[StepResult]:
    return [result async for result in operations.execute(plan)]


def seen(operations: Operations) -> ServerState:
    return operations.fleet.views["here"].servers[0]


def serves(operations: Operations) -> int | None:
    """The pid of a ready server."""
    state = seen(operations)
    return state.pid if state.phase is Phase.READY else None


async def test_a_server_lives_under_the_console(operations: Operations) -> None:
    plan = await operations.plan("launch", "here", "one", speculative=None, nccl=None, preset=None)
    assert [s.kind.value for s in plan.steps] == ["preflight", "launch", "watch"]
    assert [f async for f in operations.preflight_stream(plan)] == [], "no SGLang to be asked"
    results = await done(operations, plan)
    assert [r.outcome for r in results] == ["ok", "ok", "ok"], results
    await until(lambda: seen(operations).phase is Phase.READY)
    first = seen(operations)
    measured = [level async for level in operations.bench("one", Load((1, 2), 1, 8))]
    assert [(x.concurrency, x.failed) for x in measured] == [(1, 0), (2, 0)]
    kept = history("here", "one")[0]
    assert kept.levels[1].tokens_per_s == measured[1].tokens_per_s
    assert kept.presets == "eagle3-3step"
    with pytest.raises(ActionFailed, match="runs already"):
        await operations.plan("launch", "here", "one")

    change = Change(flags={"max-running-requests": 4}, why="a fix somebody decided on")
    chosen = {"speculative": "eagle3-1step", "change": change}
    plan = await operations.plan("relaunch", "here", "one", **chosen)
    assert any("--max-running-requests  8  →  4" in line for line in plan.summary)
    results = await done(operations, plan)
    assert {r.outcome for r in results} == {"ok"}, results
    await until(lambda: serves(operations) not in (None, first.pid))
    second = serves(operations)
    log = operations.fleet.views["here"].runs[0].log
    async for chunk in operations.tail("here", LogSource(path=log), last_lines=200):
        assert b"max_running_requests=4" in chunk.data
        break

    now = await operations.plan("relaunch", "here", "one", present=True)
    assert now.summary[0] == "relaunch one with eagle3-1step"
    assert now.summary[1].endswith("; hosts.yaml: speculative eagle3-3step")
    configured = await operations.plan("relaunch", "here", "one")
    assert configured.summary[0] == "relaunch one with eagle3-3step"

    back = await operations.plan("undo", "here", plan_id=plan.id)
    kinds = [s.kind for s in back.steps]
    assert kinds.index(StepKind.DRAIN) < kinds.index(StepKind.SIGNAL)
    assert kinds.index(StepKind.SIGNAL) < kinds.index(StepKind.LAUNCH)
    assert {r.outcome for r in await done(operations, back)} == {"ok"}
    await until(lambda: serves(operations) not in (None, second))
    # Records are read anew every few seconds: the process may be known before its run.
    await until(lambda: "8" in operations.fleet.views["here"].runs[0].argv)
    audited = await operations.audit()
    assert {entry["plan"] for entry in audited} >= {plan.id, back.id}


async def test_what_cannot_be_done_is_one_error(operations: Operations) -> None:
    with pytest.raises(UsageError, match="needs a server"):
        await operations.plan("relaunch", "here")
    with pytest.raises(UsageError, match="no action"):
        await operations.plan("reboot", "here", "one")
    with pytest.raises(UsageError):
        await operations.plan("launch", "here", "one", speculative="eagle3-9step")
    assert (await operations.plan("stop", "here", "one")).steps == ()
    plan = await operations.plan("launch", "here", "one")
    operations.fleet.read_only = True
    with pytest.raises(Refused):
        await done(operations, replace(plan, id=f"{plan.id}-x"))
    operations.fleet.read_only = False


async def test_a_preset_saved_meanwhile_can_be_launched_with(operations: Operations) -> None:
    known = operations.presets
    mine = replace(known.get("speculative", "eagle3-1step"), name="mine")
    with pytest.raises(UsageError, match="no speculative preset 'mine'"):
        await operations.plan("launch", "here", "one", speculative="mine")
    known.save(mine)
    plan = await operations.plan("launch", "here", "one", speculative="mine")
    argv = next(step.argv for step in plan.steps if step.kind is StepKind.LAUNCH)
    assert argv[argv.index("--speculative-num-steps") + 1] == "1"


async def test_a_preset_is_checked_before_it_is_saved(operations: Operations) -> None:
    known = operations.presets.get("speculative", "eagle3-3step")
    assert not any(
        f.severity is Severity.ERROR for f in await operations.check_preset("one", known)
    )
    flags = {k: v for k, v in known.flags.items() if k != "speculative-num-steps"}
    found = await operations.check_preset("one", replace(known, name="half", flags=flags))
    assert any(f.severity is Severity.ERROR for f in found)
    assert not (operations.presets.folder / "speculative" / "half.yaml").exists()
