"""Orphans in a container of a real docker: from inside by ``via``, and round it by ``outer``.

The daemon and its empty image are those of ``test_docker``; the container's init is a shell that
collects what it adopts, as an init does.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.model import Host, Outer, Via
from console.session import Headless, Session, connect
from tests.hosts.killing import Bench, local_host
from tests.hosts.test_docker import IMAGE, Docker, docker, mounts
from tests.rig.inside import Inside
from tests.rig.sshd import free_port
from tests.trouble.api import make

__all__ = ["docker"]
pytestmark = pytest.mark.hosts
INIT = "while :; do sleep 1; done"


class Contained(Inside):
    """A container whose programs have the rights that docker gives them, no more."""

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start ``argv`` by ``docker exec``, its three standard streams piped."""
        assert env is None
        pipe = subprocess.PIPE
        words = ["docker", "exec", "-i", "inner", *argv]
        return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.fixture
def inside(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inside]:
    """A running container ``inner``."""
    monkeypatch.setenv("DOCKER_HOST", docker.host)
    words = ["run", "--detach", "--name=inner", "--network=none", *mounts()]
    docker.run(*words, IMAGE, "/bin/sh", "-c", INIT)
    yield Contained(docker.inspect("inner")["State"]["Pid"])
    docker.run("rm", "--force", "inner", check=False)


@asynccontextmanager
async def to(host: Host, *others: Host) -> AsyncIterator[Session]:
    link = await connect(host, hosts={h.name: h for h in (host, *others)}, prompts=Headless())
    try:
        yield link
    finally:
        await link.close()


@pytest.mark.parametrize("way", ["via", "outer, by exec", "outer, from outside"])
async def test_orphans_in_a_container_are_ended(way: str, inside: Inside, tmp_path: Path) -> None:
    machine = replace(local_host(tmp_path), name="machine")
    host = Host("inner", transport="local", via=Via("docker", "inner"))
    if way != "via":
        host = Host(
            "inner", address="127.0.0.1", port=free_port(), known_hosts="/dev/null",
            outer=Outer("machine", docker="inner"),
            python="python3" if way == "outer, by exec" else "/no/such/python3",
        )  # fmt: skip
    run_id = f"docker-{time.time_ns():x}-{{}}"
    with make("orphan", 1, ranks=2, run_id=run_id, host=inside) as trouble:
        async with to(host, machine) as link:
            (specimen,) = trouble.specimens
            bench = Bench(link, ())
            found = await bench.look(everything=True)
            doomed = [z for z in found if z.killable and z.run_id == specimen.run_id]
            assert len(doomed) == 2, [(z.kind, z.pid, z.why_not) for z in found]
            executor = Executor(link, AuditLog(tmp_path / "audit.jsonl"))
            results = [r async for r in executor.execute(bench.plan(doomed))]
            assert {r.outcome for r in results} == {"ok"}, results
            left = (await link.snapshot(full=True)).processes
            assert not [p for p in left if p.run_id == specimen.run_id and p.state not in "ZX"]
