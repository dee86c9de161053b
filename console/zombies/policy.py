"""The thresholds of the rules, and what probing a server found: all that classify is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.model import Health


@dataclass(frozen=True, slots=True)
class Policy:
    """When a verdict is certain enough to act on without the operator naming the process.

    The defaults of the first block are the command line's contract (docs/zombies.md). All ``_s``
    are seconds, ``_mib`` MiB. ``users`` are further uids whose processes may be killed.
    """

    kill_score: float = 0.8
    samples_apart_s: float = 2.0
    hung_no_answer_s: float = 25.0
    hung_probes: int = 2
    hung_silent_s: float = 60.0
    never_ready_after_s: float = 1800.0
    never_ready_bundled_s: float = 60.0
    never_ready_learned: float = 3.0
    never_ready_still_s: float = 120.0
    leftover_age_s: float = 600.0

    young_s: float = 60.0
    """Below this age a worker without a recorded launcher may just be starting (SGLang re-parents
    schedulers at start-up in some versions)."""
    idle_cpu_pct: float = 1.0
    """Share of a core below which a process is not computing; polling threads use less."""
    ghost_mib: float = 300.0
    """Device memory no process accounts for; below it lies what contexts and the driver use."""
    users: frozenset[int] = frozenset()
    learned_ready_s: Mapping[str, float] = field(default_factory=dict)
    """Longest start seen per server, launch to ready; runs on the host are looked at as well."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One /health_generate request: when it was begun (host clock), how long it was waited for."""

    begun: float
    waited_s: float
    answer: Health

    @property
    def failed(self) -> bool:
        """Whether it shows that no token came; an answer that is unknown shows nothing."""
        return self.answer in (Health.TIMEOUT, Health.UNAVAILABLE, Health.REFUSED)


@dataclass(frozen=True, slots=True)
class Probe:
    """What asking one server gave.

    ``tokens_still_s``: how long the count of tokens has not moved, ``tokens_watched_s`` how long it
    was looked at without a move where that is too short to say so; ``still_s``: how long neither
    CPU nor I/O nor device memory of the server's processes moved; ``None`` where it could not be
    seen. Keys of the mapping given to classify: server name, else run id, else ``port:N``.
    """

    attempts: tuple[Attempt, ...] = ()
    health: Health = Health.UNKNOWN
    log_silent_s: float | None = None
    tokens_still_s: float | None = None
    tokens_watched_s: float | None = None
    metrics_answered: bool = False
    running_requests: int | None = None
    still_s: float | None = None
    vantage: str = "inside"

    @property
    def no_answer_s(self) -> float:
        """From the begin of the first of the trailing failed attempts to the end of the last."""
        failed = self.failed
        return failed[-1].begun + failed[-1].waited_s - failed[0].begun if failed else 0.0

    @property
    def failed(self) -> tuple[Attempt, ...]:
        """The failed attempts since the last answer of 200; what is unknown ends the row too."""
        row: list[Attempt] = []
        for attempt in self.attempts:
            row = [*row, attempt] if attempt.failed else []
        return tuple(row)
