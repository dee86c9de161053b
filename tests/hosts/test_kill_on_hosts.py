"""Kills on a real Debian host: over ssh, by sudo, through a hypervisor, and of a systemd unit."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.actions.journal import find
from console.actions.kill import plan_kill
from console.errors import AuthError
from console.model import Host, Plan, Runner, Server, StepKind, StepResult, Via
from console.session import Headless, Session, connect
from tests.hosts.killing import QUICK, Bench
from tests.rig import pct
from tests.rig.nspawn import NspawnHost
from tests.trouble.api import Specimen, make

pytestmark = pytest.mark.hosts

UNIT = """[Service]
ExecStart=/usr/bin/python3 /opt/sglang/launch_server.py --port 30001
Restart=always
RestartSec=0
"""
SERVER = """import os, time
if os.fork() == 0:
    os.setsid()
time.sleep(600)
"""


@asynccontextmanager
async def _to(host: Host) -> AsyncIterator[Session]:
    link = await connect(host, hosts={host.name: host}, prompts=Headless())
    try:
        yield link
    finally:
        await link.close()


def _ssh(box: NspawnHost, **values: object) -> Host:
    given: dict[str, object] = {
        "address": box.address,
        "identity_files": (str(box.key.path),),
        "known_hosts": str(box.known_hosts),
        **values,
    }
    return Host(box.name, **given)  # type: ignore[arg-type]


async def _carry_out(link: Session, plan: Plan, folder: Path) -> list[StepResult]:
    executor = Executor(link, AuditLog(folder / "audit.jsonl"))
    return [result async for result in executor.execute(plan)]


async def _kill_orphans(link: Session, specimens: tuple[Specimen, ...], folder: Path) -> None:
    """Seen as orphans, killed, gone from the host's own list, journalled on it."""
    bench = Bench(link, specimens)
    found = [z for z in await bench.look() if z.killable]
    ranks = {pid for one in specimens for pid in one.ranks}
    assert {z.pid for z in found} == ranks, found
    plan = bench.plan(found)
    results = await _carry_out(link, plan, folder)
    assert {r.outcome for r in results} == {"ok"}, results
    after = await link.snapshot(full=True)
    assert not [p for p in after.processes if p.id.pid in ranks and p.state not in ("Z", "X")]
    assert (await find(link, plan.id)).outcome == "ok"


def _run_id() -> str:
    return f"box-{time.time_ns():x}-{{}}"


async def test_a_unit_with_restart_is_stopped_and_stays_down(
    nspawn_host: NspawnHost, tmp_path: Path
) -> None:
    nspawn_host.write("/opt/sglang/launch_server.py", SERVER)
    nspawn_host.write("/etc/systemd/system/k26.service", UNIT)
    nspawn_host.run(["systemctl", "daemon-reload"])
    nspawn_host.run(["systemctl", "start", "k26"])
    async with _to(_ssh(nspawn_host)) as link:
        bench = Bench(link, ())
        bench.now = await link.snapshot(full=True)
        mine = [p for p in bench.now.processes if p.unit == "k26.service"]
        assert len(mine) == 2
        launcher = min(mine, key=lambda p: p.id.start_ticks)
        runner = Runner("systemd", unit="k26.service")
        servers = {"k26": Server("k26", link.host.name, port=30001, runner=runner)}
        plan = plan_kill(
            [bench.verdict_on(launcher.id.pid)],
            bench.now,
            host=link.host,
            servers=servers,
            policy=QUICK,
        )
        assert [step.kind for step in plan.steps] == [StepKind.STOP_UNIT, StepKind.VERIFY]
        results = await _carry_out(link, plan, tmp_path)
        assert [r.outcome for r in results] == ["ok", "ok"], results
        after = await link.snapshot(full=True)
        assert not [p for p in after.processes if p.unit == "k26.service"]
    shown = nspawn_host.run(["systemctl", "show", "k26", "-p", "ActiveState,NRestarts"])
    assert shown.stdout.split() == [b"NRestarts=0", b"ActiveState=inactive"]


async def test_an_admin_kills_roots_orphans_by_sudo(
    nspawn_host: NspawnHost, tmp_path: Path
) -> None:
    with make("orphan", 1, ranks=2, run_id=_run_id(), host=nspawn_host) as trouble:
        async with _to(_ssh(nspawn_host, user="admin", sudo=True)) as link:
            assert link.hello.uid == 0
            await _kill_orphans(link, trouble.specimens, tmp_path)


async def test_without_sudo_roots_processes_are_foreign(nspawn_host: NspawnHost) -> None:
    with make("orphan", 1, ranks=1, run_id="", host=nspawn_host) as trouble:
        async with _to(_ssh(nspawn_host, user="admin")) as link:
            bench = Bench(link, trouble.specimens)
            assert not [z for z in await bench.look() if z.killable]
    with pytest.raises(AuthError):
        async with _to(_ssh(nspawn_host, user="other", sudo=True)):
            pass


@pytest.mark.parametrize("kind", ["pct", "docker"])
async def test_from_the_hypervisor_when_the_inside_has_no_sshd(
    kind: str, nspawn_host: NspawnHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    command = pct.install(tools, {129: nspawn_host.pid()})
    docker = tools / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "exec -i 129" ] || exit 1\nshift 3\n'
                      f'exec {command} exec 129 -- "$@"\n')  # fmt: skip
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    nspawn_host.run(["systemctl", "stop", "ssh"])
    try:
        host = Host("ct129", transport="local", via=Via(kind, "129"))  # type: ignore[arg-type]
        with make("orphan", 1, ranks=2, run_id=_run_id(), host=nspawn_host) as trouble:
            async with _to(host) as link:
                await _kill_orphans(link, trouble.specimens, tmp_path)
    finally:
        nspawn_host.run(["systemctl", "start", "ssh"])
