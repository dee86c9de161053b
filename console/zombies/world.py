"""One look at a host, indexed for the rules: processes by pid, runs, servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from console.model import (
    Health,
    Phase,
    Process,
    ProcessId,
    Run,
    Server,
    ServerState,
    Snapshot,
)
from console.zombies import family, roles
from console.zombies.policy import Policy, Probe
from console.zombies.roles import Part, Role
from console.zombies.vetoes import owned, veto


@dataclass(frozen=True, slots=True)
class Known:
    """What is known beside the processes: configuration, records, log and health of servers."""

    runs: Sequence[Run] = ()
    servers: Mapping[str, Server] = field(default_factory=dict)
    states: Sequence[ServerState] = ()
    probes: Mapping[str, Probe] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)


@dataclass(frozen=True, slots=True)
class Instance:
    """A server as processes: its launcher, the living processes that belong to it, the dead ranks.

    ``run``, ``server``, ``state`` and ``probe`` are what could be matched to it.
    """

    engine: str
    launcher: Process
    members: tuple[Process, ...]
    dead_ranks: tuple[Process, ...] = ()
    run: Run | None = None
    server: Server | None = None
    state: ServerState | None = None
    probe: Probe | None = None
    port: int | None = None

    @property
    def ranks(self) -> tuple[Process, ...]:
        """The living ranks."""
        return tuple(member for member in self.members if _is_rank(member))

    @property
    def name(self) -> str:
        """What an operator calls it."""
        if self.server is not None:
            return self.server.name
        return self.run.server if self.run else f"{self.engine} on port {self.port or '?'}"

    @property
    def managed(self) -> bool:
        """Whether hosts.yaml or a run record names it."""
        return self.server is not None or self.run is not None

    @property
    def health(self) -> Health:
        """The latest health known, from the probe or else from the observed state."""
        if self.probe is not None and self.probe.health is not Health.UNKNOWN:
            return self.probe.health
        return self.state.health if self.state else Health.UNKNOWN

    @property
    def log_silent_s(self) -> float | None:
        """Seconds since the log grew, ``None`` where that is unknown."""
        if self.probe is not None and self.probe.log_silent_s is not None:
            return self.probe.log_silent_s
        return self.state.log_silent_s if self.state else None

    @property
    def was_ready(self) -> bool:
        """Whether it is or was ready, as far as its log tells."""
        if self.state is None:
            return False
        return self.state.phase is Phase.READY or any(
            span.phase is Phase.READY for span in self.state.phases
        )


def _is_rank(process: Process) -> bool:
    found = roles.role(process)
    return found is not None and found.part is Part.RANK


class World:
    """A snapshot with what is known, and the questions the rules ask of it (pure, cached)."""

    def __init__(self, snapshot: Snapshot, known: Known, earlier: Snapshot | None = None) -> None:
        self.earlier = {process.id: process for process in earlier.processes} if earlier else {}
        self.devices_read = not (snapshot.gpu_error or (earlier and earlier.gpu_error))
        ordered = sorted(snapshot.processes, key=lambda p: p.id.pid)
        carried = tuple(self._carry(process) for process in ordered)
        self.snapshot = replace(snapshot, processes=carried)
        self.known = known
        self.policy = known.policy
        self.table = family.Table(self.snapshot)
        self.by_pid = self.table.by_pid
        self.runs = {run.run_id: run for run in known.runs}
        self._vetoes: dict[ProcessId, str | None] = {}
        self._roles: dict[ProcessId, Role | None] = {}

    def _carry(self, process: Process) -> Process:
        """A dying process has lost its command line and environment; the last look had them."""
        before = self.earlier.get(process.id)
        if before is None or process.argv or not before.argv:
            return process
        return replace(
            process,
            argv=before.argv,
            run_id=process.run_id or before.run_id,
            env=process.env or before.env,
        )

    def veto(self, process: Process) -> str | None:
        """Why the process must not be signalled, or ``None``."""
        if process.id not in self._vetoes:
            # Of a process whose main thread has ended the kernel shows neither command line nor
            # environment, to nobody: that is its state and not a lack of rights.
            ended = process.state in ("Z", "X")
            self._vetoes[process.id] = veto(
                replace(process, readable=True) if ended else process,
                self.snapshot,
                runs=self.runs,
                servers=self.known.servers,
                policy=self.policy,
            )
        return self._vetoes[process.id]

    def role(self, process: Process) -> Role | None:
        """The role its title suggests."""
        if process.id not in self._roles:
            self._roles[process.id] = roles.role(process)
        return self._roles[process.id]

    def alive(self, process: ProcessId | None) -> bool | None:
        """Whether exactly this process runs; ``None`` where no such identity was recorded."""
        if process is None:
            return None
        now = self.by_pid.get(process.pid)
        return now is not None and now.id == process and not family.dead(now)

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """All servers with a living launcher that may be looked into (no veto on it)."""
        recorded = {run.launcher for run in self.known.runs if run.launcher is not None}
        found = []
        for process in self.snapshot.processes:
            role = self.role(process)
            is_launcher = role is not None and role.part is Part.LAUNCHER
            if family.dead(process) or not (is_launcher or process.id in recorded):
                continue
            parent = self.by_pid.get(process.ppid)
            if parent is not None and parent.argv == process.argv and not family.dead(parent):
                continue  # forked from the launcher and not renamed yet
            found.append(self._instance(process, role))
        return tuple(found)

    @cached_property
    def belongs(self) -> dict[ProcessId, Instance]:
        """Process to the server it is part of."""
        return {m.id: instance for instance in self.instances for m in instance.members}

    def _instance(self, launcher: Process, role: Role | None) -> Instance:
        run = self.runs.get(launcher.run_id or "") or next(
            (run for run in self.known.runs if run.launcher == launcher.id), None
        )
        engine = role.engine if role else (run.engine if run else "")
        scope = self.table.scope_of((launcher,))
        if run is not None:
            scope = replace(scope, run_ids=scope.run_ids | {run.run_id})
        members = self.table.members(scope, self.veto)
        port = run.port if run else roles.port(launcher.argv, engine)
        server = self._server(launcher, run, engine, port)
        return Instance(
            engine,
            launcher,
            members,
            self._dead_ranks(launcher, run),
            run,
            server,
            self._state(launcher, run, server),
            self._probe(run, server, port),
            port,
        )

    def _dead_ranks(self, launcher: Process, run: Run | None) -> tuple[Process, ...]:
        return tuple(
            process
            for process in self.snapshot.processes
            if family.dead(process)
            and _is_rank(process)
            and (process.ppid == launcher.id.pid or (run and process.run_id == run.run_id))
        )

    def _server(
        self, launcher: Process, run: Run | None, engine: str, port: int | None
    ) -> Server | None:
        servers = self.known.servers
        if run is not None:
            return servers.get(run.server)
        for server in servers.values():
            units, containers = owned({server.name: server}, ())
            if launcher.unit in units or launcher.container in containers:
                return server
        return next(
            (s for s in servers.values() if s.port == port and s.engine == engine),
            None,
        )

    def _state(
        self, launcher: Process, run: Run | None, server: Server | None
    ) -> ServerState | None:
        for state in self.known.states:
            if run is not None and state.run_id == run.run_id:
                return state
            if state.pid == launcher.id.pid or (server and state.name == server.name):
                return state if run is None or state.run_id in (None, run.run_id) else None
        return None

    def _probe(self, run: Run | None, server: Server | None, port: int | None) -> Probe | None:
        keys = [server.name if server else None, run.server if run else None]
        keys += [run.run_id if run else None, f"port:{port}"]
        return next((self.known.probes[k] for k in keys if k and k in self.known.probes), None)
