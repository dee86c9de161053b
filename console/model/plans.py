"""Actions as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from console.model.seen import Artefact, ProcessId
from console.model.verdicts import Finding


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
    START_CONTAINER = "start-container"
    WATCH = "watch"
    RUN = "run"
    RESET_GPU = "reset-gpu"
    DUMP = "dump"


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
    """Steps in order; the executor stops at the first whose check fails.

    ``offered`` are steps that the operator may have put in front of them. ``undoes`` is the plan
    that it takes back, which has an end with it.
    """

    id: str
    action: str
    host: str
    steps: tuple[Step, ...]
    server: str | None = None
    created_at: float = 0.0
    summary: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    offered: tuple[Step, ...] = ()
    undoes: str | None = None

    @property
    def confirm(self) -> str | None:
        """What must be typed to allow it, letter by letter; ``None`` where a yes is enough."""
        words = (step.params.get("confirm") for step in self.steps)
        return next((str(word) for word in words if word), None)


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended. ``outcome`` is ok, failed, refused or skipped."""

    step: int
    outcome: Literal["ok", "failed", "refused", "skipped"]
    seconds: float
    detail: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
