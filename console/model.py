"""The words of the house: frozen data that rules, agent client, actions, CLI and widgets share.

Nothing here does I/O and nothing here imports another room. Units are in the names: ``_mib`` is
mebibytes, ``_s`` seconds, ``_pct`` 0 to 100. ``None`` always means *unknown* and never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

SCHEMA = 1
"""Version of every JSON document printed by the command line."""


# ---------------------------------------------------------------------------- hosts and servers


class HostState(StrEnum):
    """How much of a host is known right now."""

    OK = "ok"
    CONNECTING = "connecting"
    STALE = "stale"
    UNREACHABLE = "unreachable"
    AUTH_FAILED = "auth-failed"
    NO_AGENT = "no-agent"


@dataclass(frozen=True, slots=True)
class Via:
    """An inner target on a host: a Proxmox container (``pct``) or a docker container."""

    kind: Literal["pct", "docker"]
    name: str


@dataclass(frozen=True, slots=True)
class Outer:
    """The hypervisor of a host, and which of its containers the host is."""

    host: str
    pct: int | None = None
    docker: str | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A managed machine as hosts.yaml names it. ``connect_timeout`` is in seconds."""

    name: str
    address: str = ""
    transport: Literal["ssh", "openssh", "local", "replay"] = "ssh"
    user: str = "root"
    port: int = 22
    connect_timeout: float = 5.0
    python: str = "python3"
    jump: str | None = None
    identity_files: tuple[str, ...] = ()
    known_hosts: str | None = None
    via: Via | None = None
    outer: Outer | None = None
    sudo: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Runner:
    """What keeps a server's process: nothing but its own scope, a unit, a container."""

    kind: Literal["process", "systemd", "docker"] = "process"
    unit: str | None = None
    container: str | None = None
    user_unit: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """A model server as hosts.yaml names it.

    ``args`` are flags without the leading dashes; ``True`` is a bare flag, ``False`` or ``None``
    leaves it out. ``never_ready_after`` is in seconds; ``None`` takes the engine's default.
    """

    name: str
    host: str
    engine: Literal["bundled", "sglang", "vllm"] = "sglang"
    model: str = ""
    draft: str | None = None
    port: int = 30000
    bind: str = "127.0.0.1"
    speculative: str | None = None
    nccl: str | None = None
    log: str | None = None
    runner: Runner = field(default_factory=Runner)
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    cwd: str | None = None
    hosts: tuple[str, ...] = ()
    never_ready_after: float | None = None


# ---------------------------------------------------------------------------- what a host shows


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for another: pid, start time in clock ticks, boot id."""

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a host. ``task_states`` maps each thread id to its state letter."""

    id: ProcessId
    ppid: int
    pgid: int
    sid: int
    uid: int
    user: str
    state: str
    comm: str
    argv: tuple[str, ...] = ()
    threads: int = 1
    task_states: Mapping[int, str] = field(default_factory=dict)
    cpu_ticks: int = 0
    rss_mib: float | None = None
    age_s: float = 0.0
    run_id: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cgroup: str = ""
    unit: str | None = None
    container: str | None = None
    foreign_namespace: bool = False
    listening: tuple[int, ...] = ()
    established: tuple[int, ...] = ()
    nvidia_minors: tuple[int, ...] = ()
    gpu_memory_mib: Mapping[int, float | None] = field(default_factory=dict)
    wchan: str | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    readable: bool = True

    @property
    def title(self) -> str:
        """The command line as ``ps`` shows it, or the short name of a process without one."""
        return " ".join(self.argv) if self.argv else self.comm


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process as the driver lists it. ``memory_mib`` is ``None`` where the driver hides it."""

    pid: int
    memory_mib: float | None
    kind: Literal["compute", "graphics", "mps"] = "compute"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU (or MIG instance). ``error`` says why the fields are unknown."""

    index: int
    uuid: str
    name: str
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    memory_reserved_mib: float | None = None
    utilization_pct: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    processes: tuple[GpuProcess, ...] = ()
    mig: str | None = None
    recovery_action: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Cpu:
    """The machine itself as a device, from /proc/meminfo and /proc/stat."""

    memory_used_mib: float
    memory_total_mib: float
    cores: int
    utilization_pct: float | None = None
    shm_used_mib: float | None = None
    shm_total_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Artefact:
    """Something a server may leave behind: a segment, a socket, a lock file, a held port.

    ``holders`` are pids that map or have it open; ``None`` means that could not be seen.
    """

    type: Literal["shm", "socket", "lock", "port"]
    path: str
    uid: int
    user: str
    size_bytes: int
    age_s: float
    device: int = 0
    inode: int = 0
    port: int | None = None
    holders: tuple[int, ...] | None = ()


@dataclass(frozen=True, slots=True)
class Hello:
    """What the agent says of itself and of the machine when it starts."""

    agent_version: str
    python: str
    hostname: str
    uid: int
    user: str
    pid: int
    boot_id: str
    pid_namespace: str
    init_namespace: bool
    kernel: str
    systemd: bool
    state_dir: str
    read_only: bool
    clock_ticks: int
    time: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything seen on a host in one sweep. ``time`` is the host's clock, seconds since 1970.

    ``gpu_source`` is ``nvml``, ``nvidia-smi`` or ``None`` (no NVIDIA). ``gpu_error`` set means
    that GPU values are unknown. ``protected`` are pids that must never be signalled: the agent,
    its ancestors and its session.
    """

    boot_id: str
    time: float
    uid: int
    processes: tuple[Process, ...]
    gpus: tuple[Gpu, ...] = ()
    gpu_source: str | None = None
    gpu_error: str | None = None
    cpu: Cpu | None = None
    artefacts: tuple[Artefact, ...] = ()
    listening: Mapping[int, int | None] = field(default_factory=dict)
    protected: frozenset[int] = frozenset()
    processes_complete: bool = True


# ---------------------------------------------------------------------------- runs and presets


@dataclass(frozen=True, slots=True)
class Run:
    """The record of one launch, kept on its host as ``runs/<run_id>.json``.

    ``env`` holds ``secret:NAME`` in place of secrets. ``baseline_mib`` is the device memory in
    use before the launch: GPU index to MiB, -1 for the machine itself. ``launched_at`` and
    ``ended_at`` are seconds since 1970 on the host's clock.
    """

    run_id: str
    server: str
    engine: str
    host: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    log: str
    port: int
    launcher: ProcessId | None
    session: int | None
    unit: str | None
    launched_at: float
    launched_by: str
    model: str = ""
    draft: str | None = None
    speculative: str | None = None
    nccl: str | None = None
    baseline_mib: Mapping[int, float] = field(default_factory=dict)
    ended_at: float | None = None
    outcome: str | None = None
    adopted: bool = False
    phases: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Preset:
    """A named set of flags and variables. ``flags`` have no dashes; ``None`` removes a flag."""

    name: str
    kind: Literal["nccl", "speculative", "server"]
    description: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    source: str = ""
    origin: str = "shipped"


# ---------------------------------------------------------------------------- phases and health


class Phase(StrEnum):
    """Where a server is in its life; the order differs between engine versions."""

    SPAWN = "spawn"
    ARGS = "args"
    DIST_INIT = "dist_init"
    LOAD_TARGET = "load_target"
    KV_TARGET = "kv_target"
    AUTOTUNE = "autotune"
    GRAPH_TARGET = "graph_target"
    LOAD_DRAFT = "load_draft"
    KV_DRAFT = "kv_draft"
    GRAPH_DRAFT = "graph_draft"
    SCHEDULER_READY = "scheduler_ready"
    WARMUP = "warmup"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"


class Health(StrEnum):
    """What a health probe got, from the vantage that is named beside it."""

    NONE = "none"
    REFUSED = "refused"
    UNAVAILABLE = "503"
    OK = "ok"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One phase of one launch. Times are seconds since launch; ``end_s`` None = still in it."""

    phase: Phase
    start_s: float | None
    end_s: float | None
    start_line: int = 0
    end_line: int | None = None
    done: int | None = None
    total: int | None = None

    @property
    def seconds(self) -> float | None:
        """How long the phase took, or ``None`` where a boundary is unknown."""
        if self.start_s is None or self.end_s is None:
            return None
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class ServerState:
    """What is known of one server now. ``accept_length`` is tokens per verify step."""

    name: str
    phase: Phase
    health: Health
    pid: int | None = None
    port: int | None = None
    run_id: str | None = None
    preset: str | None = None
    accept_length: float | None = None
    throughput_tok_s: float | None = None
    running_requests: int | None = None
    queued_requests: int | None = None
    tokens_total: float | None = None
    phases: tuple[PhaseSpan, ...] = ()
    log_silent_s: float | None = None
    vantage: str = "inside"
    model: str = ""


# ---------------------------------------------------------------------------- zombies


class ZombieKind(StrEnum):
    """Why a process or resource is called a zombie; docs/zombies.md explains each."""

    DEFUNCT = "defunct"
    HALF_DEAD = "half-dead"
    ORPHAN = "orphan"
    HEADLESS = "headless"
    NEVER_READY = "never-ready"
    HUNG = "hung"
    GHOST_MEMORY = "ghost-memory"
    STUCK_IO = "stuck-io"
    LEFTOVER = "leftover"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Resource:
    """What a zombie without a process is: a path, a port or a GPU."""

    type: str
    path: str | None = None
    port: int | None = None
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Zombie:
    """A verdict with its evidence. ``killable`` False always comes with ``why_not``."""

    id: str
    kind: ZombieKind
    pid: int | None
    process: ProcessId | None
    start_time: float | None
    user: str
    score: float
    evidence: tuple[str, ...]
    killable: bool
    why_not: str | None = None
    resource: Resource | None = None
    device: Literal["cuda", "cpu"] = "cpu"
    memory_mib: float | None = None
    gpu_memory_mib: float | None = None
    run_id: str | None = None
    title: str = ""


# ---------------------------------------------------------------------------- findings, diagnosis


class Severity(StrEnum):
    """error: that version exits or raises; warning: it overrides; info: only slower."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Change:
    """A fix that can be applied: flags (no dashes, ``None`` removes) and variables to set."""

    flags: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    preset: str | None = None
    why: str = ""
    risk: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of preflight. ``rule`` is a stable id; ``source`` the engine's line behind it."""

    rule: str
    severity: Severity
    message: str
    fix: str = ""
    flags: tuple[str, ...] = ()
    change: Change | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Root:
    """The exception, signal or event that everything else followed from."""

    type: str
    message: str
    file: str | None = None
    line: int | None = None
    rank: str | None = None
    log_line: int | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a log says went wrong. ``root`` is ``None`` when nothing was raised."""

    root: Root | None
    category: str
    phase: str | None = None
    summary: str = ""
    fix: str = ""
    change: Change | None = None
    victims: tuple[str, ...] = ()
    incomplete: bool = False
    incidents: int = 1


# ---------------------------------------------------------------------------- plans


class StepKind(StrEnum):
    """What a step of a plan does."""

    PREFLIGHT = "preflight"
    DRAIN = "drain"
    SIGNAL = "signal"
    STOP_UNIT = "stop-unit"
    WAIT_GONE = "wait-gone"
    CLEAN = "clean"
    VERIFY = "verify"
    WRITE_UNIT = "write-unit"
    LAUNCH = "launch"
    START_UNIT = "start-unit"
    WATCH = "watch"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Target:
    """A process named for a signal: identity plus what the operator was shown."""

    process: ProcessId
    uid: int
    user: str
    title: str
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One action as data: printed by a dry run, shown in the dialog, audited and executed.

    ``argv`` is the exact command where there is one; ``signal`` with ``targets`` names exact
    processes. ``timeout_s`` bounds the step; ``verify`` says in words what is checked after it.
    ``params`` holds what the executor needs beyond that, as JSON values.
    """

    kind: StepKind
    host: str
    why: str
    argv: tuple[str, ...] = ()
    signal: str | None = None
    targets: tuple[Target, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    dangerous: bool = False
    verify: str = ""
    timeout_s: float = 60.0
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order; the executor stops at the first whose check fails."""

    id: str
    action: str
    host: str
    steps: tuple[Step, ...]
    server: str | None = None
    created_at: float = 0.0
    summary: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended. ``outcome`` is ok, failed, refused or skipped."""

    step: int
    outcome: Literal["ok", "failed", "refused", "skipped"]
    seconds: float
    detail: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


# ---------------------------------------------------------------------------- views


@dataclass(frozen=True, slots=True)
class HostView:
    """One host as the two faces show it. ``seen_at`` is the operator's clock, seconds since 1970.

    On a lost host everything stays as last seen, ``state`` and ``error`` say what happened.
    """

    host: Host
    state: HostState
    error: str = ""
    seen_at: float | None = None
    hello: Hello | None = None
    snapshot: Snapshot | None = None
    servers: tuple[ServerState, ...] = ()
    zombies: tuple[Zombie, ...] = ()
    runs: tuple[Run, ...] = ()

    def age_s(self, now: float) -> float | None:
        """Seconds since the values were seen, ``None`` when they never were."""
        return None if self.seen_at is None else max(0.0, now - self.seen_at)
