"""What the kill tests share: a session on this machine, real health probes, real run records."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.actions.kill import KillOptions, plan_kill
from console.model import (
    Health,
    Host,
    Phase,
    Plan,
    ProcessId,
    Run,
    Server,
    ServerState,
    Snapshot,
    StepResult,
    Zombie,
    ZombieKind,
)
from console.session import Headless, Session, connect
from console.zombies import Attempt, Policy, Probe, classify
from tests.trouble.api import Specimen

PROBE_S = 0.6
QUICK = Policy(
    young_s=0.5,
    hung_no_answer_s=2 * PROBE_S - 0.1,
    never_ready_after_s=0.5,
    never_ready_still_s=2.0,
    leftover_age_s=1.5,
)
"""The rules with waits of seconds in place of minutes; what is weighed is the same."""


_OWN_STATE = """#!/bin/sh
exec unshare --mount sh -c 'mkdir -p /var/lib/specops && mount --bind "$0" /var/lib/specops \\
    && exec {python} "$@"' {state} "$@"
"""


def local_host(folder: Path) -> Host:
    """This machine, with records, journals and lock in ``folder`` for the agent alone."""
    state, python = folder / "state", folder / "python"
    state.mkdir(exist_ok=True)
    python.write_text(_OWN_STATE.format(python=sys.executable, state=state))
    python.chmod(0o755)
    return Host("here", transport="local", python=str(python))


@asynccontextmanager
async def session(folder: Path) -> AsyncIterator[Session]:
    """A session to this machine with its state in ``folder``, closed at the end."""
    host = local_host(folder)
    link = await connect(host, hosts={host.name: host}, prompts=Headless())
    try:
        yield link
    finally:
        await link.close()


@dataclass
class Bench:
    """Specimens on a host, with what is known of them beside their processes."""

    link: Session
    specimens: tuple[Specimen, ...]
    phases: Mapping[str, Phase] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    servers: dict[str, Server] = field(default_factory=dict)
    probes: dict[str, Probe] = field(default_factory=dict)
    states: list[ServerState] = field(default_factory=list)
    now: Snapshot | None = None

    async def look(self, *, everything: bool = False) -> tuple[Zombie, ...]:
        """Two samples 2.2 s apart and probes of every port between them; only our specimens."""
        await self._describe()
        before = await self.link.snapshot(full=True, artefacts=True)
        started = time.monotonic()
        await self._probe()
        await asyncio.sleep(max(0.0, 2.2 - (time.monotonic() - started)))
        self.now = await self.link.snapshot(full=True, artefacts=True)
        found = classify(
            self.now,
            previous=before,
            runs=self.runs,
            servers=self.servers,
            states=self.states,
            probes=self.probes,
            policy=QUICK,
        )
        return tuple(zombie for zombie in found if everything or self.mine(zombie))

    def mine(self, zombie: Zombie) -> bool:
        """Whether it is one of the specimens; others test on the same machine."""
        pids = {pid for one in self.specimens for pid in one.pids.values()}
        paths = {path for one in self.specimens for path in one.paths}
        path = zombie.resource.path if zombie.resource else None
        return zombie.pid in pids or path in paths

    async def _describe(self) -> None:
        boot = self.link.hello.boot_id
        for number, one in enumerate(self.specimens):
            port = one.ports[0] if one.ports else 59_000 + number
            name = f"s{number}"
            self.servers[name] = Server(name, "here", port=port)
            launcher = None
            if "launcher" in one.pids:
                start = one.starts["launcher"]
                launcher = ProcessId(one.pids["launcher"], start or 1, boot)
            if one.run_id:
                self.runs.append(_run(one.run_id, name, port, launcher))
            silent = await self._silence(one)
            self.states.append(
                ServerState(
                    name,
                    self.phases.get(one.kind, Phase.READY),
                    Health.UNKNOWN,
                    pid=one.pids.get("launcher"),
                    port=port,
                    run_id=one.run_id,
                    log_silent_s=silent,
                )
            )

    async def _silence(self, one: Specimen) -> float | None:
        logs = [path for path in one.paths if path.endswith(".log")]
        if not logs:
            return None
        stats = await self.link.stat(logs)
        return self.link.hello.time - stats[0].mtime

    async def _probe(self) -> None:
        """Two requests in a row to each port, as the agent's side sees them."""
        await asyncio.gather(
            *(self._probe_one(name, server.port) for name, server in self.servers.items())
        )

    async def _probe_one(self, name: str, port: int) -> None:
        attempts: list[Attempt] = []
        for _ in range(2):
            began = time.time()
            answer = await _ask(self.link, port)
            # A refused connection is answered at once; the rules want the time without a 200.
            if answer is Health.REFUSED:
                await asyncio.sleep(PROBE_S)
            attempts.append(Attempt(began, time.time() - began, answer))
        self.probes[name] = Probe(tuple(attempts), health=attempts[-1].answer)

    def verdict_on(self, pid: int) -> Zombie:
        """A verdict as the rules would give it, on a process that is none of their kinds."""
        assert self.now is not None
        process = next(p for p in self.now.processes if p.id.pid == pid)
        kind = ZombieKind.HUNG
        return Zombie(f"u{pid}", kind, pid, process.id, None, process.user, 1.0, (), True)

    def plan(self, zombies: Iterable[Zombie], *, drain_s: float = 1.0, named: bool = False) -> Plan:
        """The kill of some of them; ``named``: the operator typed each one's id."""
        assert self.now is not None
        zombies = tuple(zombies)
        ids = frozenset(zombie.id for zombie in zombies) if named else frozenset()
        return plan_kill(
            zombies,
            self.now,
            self.runs,
            host=self.link.host,
            servers=self.servers,
            policy=QUICK,
            options=KillOptions(drain_s=drain_s, named=ids),
        )


async def _ask(link: Session, port: int) -> Health:
    async with httpx.AsyncClient(transport=link.http(), timeout=PROBE_S) as client:
        try:
            response = await client.get(f"http://127.0.0.1:{port}/health_generate")
        except httpx.ConnectError:
            return Health.REFUSED
        except httpx.TimeoutException:
            return Health.TIMEOUT
        except httpx.HTTPError:
            return Health.REFUSED
    return Health.OK if response.status_code == 200 else Health.UNAVAILABLE


def _run(run_id: str, server: str, port: int, launcher: ProcessId | None) -> Run:
    return Run(
        run_id, server, "sglang", "here", (), {}, "/", "", port, launcher, None, None,
        time.time(), "test",
    )  # fmt: skip


async def carry_out(link: Session, plan: Plan, folder: Path) -> list[StepResult]:
    """The plan's results."""
    executor = Executor(link, AuditLog(folder / "audit.jsonl"))
    return [result async for result in executor.execute(plan)]


def running(one: Specimen, roles: Iterable[str] | None = None) -> set[int]:
    """Those of a specimen's processes that still run (any thread of them)."""
    found = set()
    for role in roles or one.pids:
        pid, start = one.pids[role], one.starts[role]
        tasks = Path(f"/proc/{pid}/task")
        try:
            fields = [
                (t / "stat").read_bytes().rpartition(b")")[2].split() for t in tasks.iterdir()
            ]
        except (FileNotFoundError, ProcessLookupError):
            continue
        leader = Path(f"/proc/{pid}/stat")
        same = leader.exists() and int(leader.read_bytes().rpartition(b")")[2].split()[19]) == start
        if same and any(words[0] not in (b"Z", b"X") for words in fields):
            found.add(pid)
    return found
