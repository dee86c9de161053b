"""A container whose inside does not answer: seen and cleared by way of its hypervisor."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.actions.journal import find
from console.errors import AuthError, HostError
from console.model import Host, Outer, Target
from console.remote import HostFileError
from console.session import Headless, Session, connect
from tests.functional.cli.conftest import Command
from tests.hosts.killing import Bench, local_host, running
from tests.rig import pct
from tests.rig.nspawn import NspawnHost
from tests.trouble.api import Trouble, make

pytestmark = pytest.mark.hosts
NO_PYTHON = "/no/such/python3"


@pytest.fixture
def tools(nspawn_host: NspawnHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``pct`` and ``lxc-info`` of a hypervisor that runs the test host as container 129."""
    folder = tmp_path / "bin"
    pct.install(folder, {129: nspawn_host.pid(), 130: None})
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


@pytest.fixture
def deaf(nspawn_host: NspawnHost) -> Iterator[NspawnHost]:
    """The test host without its sshd."""
    nspawn_host.run(["systemctl", "stop", "ssh"])
    yield nspawn_host
    nspawn_host.run(["systemctl", "start", "ssh"])
    nspawn_host.await_ssh()


@asynccontextmanager
async def to(box: NspawnHost, folder: Path, **more: object) -> AsyncIterator[Session]:
    """The host ``ct129``, with this machine as its hypervisor ``pve1``."""
    pve1 = replace(local_host(folder), name="pve1")
    values: dict[str, object] = {
        "address": box.address,
        "identity_files": (str(box.key.path),),
        "known_hosts": str(box.known_hosts),
        "connect_timeout": 3.0,
        "outer": Outer("pve1", pct=129),
        **more,
    }
    host = Host("ct129", **values)  # type: ignore[arg-type]
    link = await connect(host, hosts={"ct129": host, "pve1": pve1}, prompts=Headless())
    try:
        yield link
    finally:
        await link.close()


def orphans(box: NspawnHost | None, count: int = 1) -> Trouble:
    """Orphaned ranks inside the container, or on the hypervisor."""
    return make("orphan", count, ranks=2, run_id=f"outer-{time.time_ns():x}-{{}}", host=box)


async def test_an_inside_that_answers_is_asked_itself(
    nspawn_host: NspawnHost, tools: Path, tmp_path: Path
) -> None:
    async with to(nspawn_host, tmp_path) as link:
        assert link.hello.through == ""
        assert link.hello.hostname == nspawn_host.name


async def test_without_sshd_the_agent_runs_inside_all_the_same(
    deaf: NspawnHost, tools: Path, tmp_path: Path
) -> None:
    with orphans(deaf) as trouble:
        async with to(deaf, tmp_path) as link:
            assert link.hello.through == "pct exec on pve1"
            assert link.host.name == "ct129"
            assert link.hello.pid_namespace != str(Path("/proc/self/ns/pid").readlink())
            bench = Bench(link, trouble.specimens)
            found = [z for z in await bench.look() if z.killable]
            assert {z.pid for z in found} == set(trouble.specimens[0].ranks)
            plan = bench.plan(found)
            assert {step.host for step in plan.steps} == {"ct129"}
            executor = Executor(link, AuditLog(tmp_path / "audit.jsonl"))
            results = [result async for result in executor.execute(plan)]
            assert {r.outcome for r in results} == {"ok"}, results
            assert (await find(link, plan.id)).outcome == "ok"


async def test_where_no_agent_starts_inside_its_processes_are_ended_from_outside(
    deaf: NspawnHost, tools: Path, tmp_path: Path
) -> None:
    with orphans(deaf, 2) as inside, orphans(None) as outside:
        ranks = {pid for one in inside.specimens for pid in one.ranks}
        by_host_pid = {deaf.outer_pid(pid): pid for pid in ranks}
        async with to(deaf, tmp_path, python=NO_PYTHON) as link:
            assert link.hello.through == "the processes on pve1"
            bench = Bench(link, ())
            found = [z for z in await bench.look(everything=True) if z.killable]
            assert {z.pid for z in found} == set(by_host_pid), found
            for zombie in found:
                assert zombie.pid is not None
                words = f"pid {by_host_pid[zombie.pid]} inside its container"
                assert words in zombie.evidence
            plan = bench.plan(found)
            executor = Executor(link, AuditLog(tmp_path / "audit.jsonl"))
            results = [result async for result in executor.execute(plan)]
            assert {r.outcome for r in results} == {"ok"}, results
            assert (await find(link, plan.id)).outcome == "ok"
            now = {p.id.pid: p for p in (await link.snapshot(full=True)).processes}
            assert not [pid for pid in by_host_pid if pid in now and now[pid].state not in "ZX"]
            # The same trouble on the hypervisor itself is another host's matter.
            (other,) = outside.specimens
            assert running(other) == set(other.ranks)
            stranger = now[other.ranks[0]]
            target = Target(stranger.id, stranger.uid, stranger.user, stranger.title, None)
            (refused,) = await link.signal([target], "KILL")
            assert refused.outcome == "denied"
            assert running(other) == set(other.ranks)


async def test_nothing_of_the_hypervisor_is_taken_for_the_inside(
    deaf: NspawnHost, tools: Path, tmp_path: Path
) -> None:
    deaf.write("/etc/only-inside", "x")
    async with to(deaf, tmp_path, python=NO_PYTHON) as link:
        snapshot = await link.snapshot(full=True, artefacts=True)
        assert (snapshot.listening, snapshot.artefacts, snapshot.ports_known) == ({}, (), False)
        mine = [p for p in snapshot.processes if not p.foreign_namespace]
        assert {p.inner_pid for p in mine} >= {1}
        assert all(p.pid_namespace == mine[0].pid_namespace for p in mine)
        with pytest.raises(HostFileError, match="cannot be had from pve1"):
            await link.read_file("/etc/hostname")
        with pytest.raises(HostFileError):
            await link.write_file("/tmp/never", b"")
        assert (await link.run(["cat", "/etc/only-inside"])).stdout == b"x"
        assert await link.runs() == []


async def test_a_container_that_does_not_run_says_both_reasons(
    deaf: NspawnHost, tools: Path, tmp_path: Path
) -> None:
    with pytest.raises(HostError, match=r"(?s)refused.*nor through its hypervisor.*129|130") as no:
        async with to(deaf, tmp_path, outer=Outer("pve1", pct=130)):
            pass
    assert "container 130 does not run" in str(no.value)


async def test_a_refused_login_is_not_gone_round(
    nspawn_host: NspawnHost, tools: Path, tmp_path: Path
) -> None:
    with pytest.raises(AuthError):
        async with to(nspawn_host, tmp_path, user="nobody-here"):
            pass


def test_the_commands_go_round_it_by_themselves(
    deaf: NspawnHost, tools: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    command = Command(tmp_path)
    keys = {
        "address": deaf.address, "identity_files": [str(deaf.key.path)], "connect_timeout": 3,
        "known_hosts": str(deaf.known_hosts), "outer": {"host": "pve1", "pct": 129},
    }  # fmt: skip
    pve1 = {"transport": "local", "python": sys.executable}
    command.write(json.dumps({"hosts": {"pve1": pve1, "ct129": keys}}))
    with orphans(deaf) as trouble:
        ranks = set(trouble.specimens[0].ranks)
        seen = command("zombies", "ct129", "--quick", "--json")
        assert seen.json["hosts"][0]["through"] == "pct exec on pve1"
        assert ranks <= {z["pid"] for z in seen.json["hosts"][0]["zombies"]}
        named = [word for pid in ranks for word in ("--named", str(pid))]
        done = command("kill-zombies", "ct129", *named, "--quick", "--yes", "--json")
        assert done.code == 0, (done.out, done.err)
        assert ranks <= {z["pid"] for z in done.json["hosts"][0]["killed"]}
        said = command("status", "ct129")
        assert "pct exec on pve1" in said.out + said.err
