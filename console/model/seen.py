"""What a host shows: processes, devices, artefacts, one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for another: pid, start time in clock ticks, boot id."""

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a host. ``task_states`` maps each thread id to its state letter.

    ``inner_pid`` is its number in its own pid namespace, which ``pid_namespace`` names.
    """

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
    pid_namespace: str = ""
    inner_pid: int | None = None
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
    """One GPU (or MIG instance). ``error`` says why the fields are unknown.

    ``minor`` is the number of its device file (/dev/nvidiaN), which need not be its index.
    """

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
    minor: int | None = None

    @property
    def asks(self) -> str | None:
        """What its driver wants done before it is whole again; ``None`` where it names nothing."""
        return None if self.recovery_action in (None, "none") else self.recovery_action


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
    """What the agent says of itself and of the machine when it starts.

    ``through`` is set here where a host is seen by way of its hypervisor.
    """

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
    config_home: str = ""
    through: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything seen on a host in one sweep. ``time`` is the host's clock, seconds since 1970.

    ``gpu_source`` is ``nvml``, ``nvidia-smi`` or ``None`` (no NVIDIA). ``gpu_error`` set means
    that GPU values are unknown. ``protected`` are pids that must never be signalled: the agent,
    its ancestors and its session. Without ``ports_known`` an empty ``listening`` says nothing.
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
    ports_known: bool = True
    protected: frozenset[int] = frozenset()
    processes_complete: bool = True
