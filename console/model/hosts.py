"""Hosts and servers as configured, runs as recorded, presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from console.model.seen import ProcessId


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
    """What keeps a server's process: nothing but its own scope, a unit, a container.

    ``image`` and docker's ``options`` make a container anew for each launch; without an image the
    container is started as it was made.
    """

    kind: Literal["process", "systemd", "docker"] = "process"
    unit: str | None = None
    container: str | None = None
    user_unit: bool = False
    image: str | None = None
    options: tuple[str, ...] = ()


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
    logs: tuple[str, ...] = ()
    runner: Runner = field(default_factory=Runner)
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    cwd: str | None = None
    hosts: tuple[str, ...] = ()
    never_ready_after: float | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The hosts it runs on, by node rank."""
        return self.hosts or (self.host,)

    def rank_on(self, host: str) -> int | None:
        """Its node's rank on a host; ``None`` where it runs on one host alone."""
        return self.nodes.index(host) if len(self.nodes) > 1 and host in self.nodes else None


@dataclass(frozen=True, slots=True)
class Run:
    """The record of one launch, kept on its host as ``runs/<run_id>.json``.

    ``env`` holds ``secret:NAME`` in place of secrets. ``baseline_mib`` is the device memory in
    use before the launch: GPU index to MiB, -1 for the machine itself. ``log_offset`` are the
    bytes that the log held before the launch, ``log_cursor`` the journal's last entry then.
    ``launched_at`` and ``ended_at`` are seconds since 1970 on the host's clock. ``preset`` is the
    server preset; ``failure`` the root of its failure in one line, once that was read.
    A launch over several hosts has one id and a record on each of them: ``nodes`` are the hosts,
    ``rank`` is this one's. ``acknowledged``: somebody has seen that it failed, so it is only
    stopped; its outcome stays what it was. ``cleared``: what its launcher left behind when it
    died by itself was later "stopped" or "killed"; the outcome stays what it was too.
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
    log_offset: int = 0
    log_cursor: str = ""
    preset: str | None = None
    failure: str = ""
    nodes: tuple[str, ...] = ()
    rank: int = 0
    acknowledged: bool = False
    cleared: str = ""

    @property
    def served(self) -> bool:
        """Whether it was ever ready; its outcome may have been overwritten by its end since."""
        return self.outcome == "ready" or any(name == "ready" for name, _ in self.phases)


@dataclass(frozen=True, slots=True)
class Preset:
    """A named set of flags and variables. ``flags`` have no dashes; ``None`` removes a flag.

    ``notes`` explains single flags and variables; ``origin`` is ``shipped`` or the file's path.
    """

    name: str
    kind: Literal["nccl", "speculative", "server"]
    description: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    source: str = ""
    origin: str = "shipped"
    notes: Mapping[str, str] = field(default_factory=dict)
