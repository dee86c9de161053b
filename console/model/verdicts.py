"""What the rules say: zombies, preflight findings, diagnoses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from console.model.seen import ProcessId

SAID_CHARS = 200


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


def first_line(message: str) -> str:
    """A message's first line for a summary, cut between words where it is long."""
    line = message.strip().partition("\n")[0]
    if len(line) <= SAID_CHARS:
        return line
    cut = line[:SAID_CHARS]
    return f"{cut.rpartition(' ')[0] or cut} …"


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
    victim_lines: tuple[int, ...] = ()

    @property
    def explanation(self) -> str:
        """The summary without the root's own message, for where that stands beside it."""
        if self.root is None:
            return self.summary
        first = first_line(self.root.message)
        head = f"{self.root.type}: {first}" if first else self.root.type
        return self.summary.removeprefix(f"{head} - ")
