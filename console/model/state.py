"""Where a server is in its life, and how it answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from console.model.verdicts import Diagnosis


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
class NodeState:
    """One node of a server over several hosts. ``lacks`` says in words why it does not take part.

    ``None`` there: it runs. A host that is not reached is no missing node; it says so.
    """

    rank: int
    host: str
    phase: Phase
    pid: int | None = None
    lacks: str | None = None

    @property
    def words(self) -> str:
        """What is wrong with it: ``rank 1 on gpu2 is missing``."""
        return f"rank {self.rank} on {self.host} {self.lacks or 'runs'}"


@dataclass(frozen=True, slots=True)
class ServerState:
    """What is known of one server now. ``accept_length`` is tokens per verify step.

    ``diagnosis`` is what the log of a failed or silent server says, once it was read. ``stalled``
    says in words that its present phase takes longer than it may; ``None``: it does not.
    ``elapsed_s`` is how long it has been in that phase, by its log's clock. ``note`` says what of
    it is not as hosts.yaml and the records have it: another port, not launched from here.
    Of a server over several hosts this is one node: ``rank`` is its own, ``nodes`` are all of them
    where they were looked at together.
    """

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
    diagnosis: Diagnosis | None = None
    stalled: str | None = None
    elapsed_s: float | None = None
    rank: int | None = None
    nodes: tuple[NodeState, ...] = ()
    note: str | None = None

    @property
    def lacking(self) -> tuple[NodeState, ...]:
        """The nodes that do not take part while others do."""
        some = any(node.lacks is None for node in self.nodes)
        return tuple(node for node in self.nodes if node.lacks is not None) if some else ()
