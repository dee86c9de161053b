"""What earlier starts took, and when a phase takes too long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from console.model import Phase, PhaseSpan

FLOOR_S: Mapping[Phase, float] = {
    Phase.SPAWN: 60.0,
    Phase.ARGS: 180.0,
    Phase.DIST_INIT: 180.0,
    Phase.LOAD_TARGET: 1800.0,
    Phase.KV_TARGET: 120.0,
    Phase.AUTOTUNE: 900.0,
    Phase.GRAPH_TARGET: 1800.0,
    Phase.LOAD_DRAFT: 600.0,
    Phase.KV_DRAFT: 120.0,
    Phase.GRAPH_DRAFT: 600.0,
    Phase.SCHEDULER_READY: 120.0,
    Phase.WARMUP: 600.0,
    Phase.DRAINING: 120.0,
}
"""Seconds a phase may take where nothing was learned. Warm-up: SGLang's own bound is 600 s."""

FACTOR = 3.0
"""A phase is stalled when it takes this many times what it took before."""
_SHORTEST_S = 30.0  # three times a phase of 0.2 s says nothing


@dataclass(frozen=True, slots=True)
class Learned:
    """How long a phase took in earlier starts, in seconds."""

    median_s: float
    p90_s: float
    runs: int


def learn(runs: Iterable[Iterable[PhaseSpan]]) -> dict[Phase, Learned]:
    """Median and 90th percentile per phase over earlier starts; unended spans don't count."""
    seconds: dict[Phase, list[float]] = {}
    for spans in runs:
        total: dict[Phase, float] = {}
        for span in spans:
            if span.seconds is not None:
                total[span.phase] = total.get(span.phase, 0.0) + span.seconds
        for phase, took in total.items():
            seconds.setdefault(phase, []).append(took)
    return {
        phase: Learned(median(values), _p90(sorted(values)), len(values))
        for phase, values in seconds.items()
    }


def _p90(values: list[float]) -> float:
    return values[min(len(values) - 1, int(0.9 * len(values)))]


def remaining_s(
    spans: Sequence[PhaseSpan], learned: Mapping[Phase, Learned], elapsed_s: float | None = None
) -> float | None:
    """Seconds until ready, by what earlier starts took; ``None`` where nothing was learned.

    ``elapsed_s`` is how long the present phase has lasted.
    """
    if not learned:
        return None
    if not spans:
        return sum(known.median_s for known in learned.values())
    now = spans[-1].phase
    if now in (Phase.READY, Phase.DRAINING, Phase.STOPPED, Phase.FAILED):
        return 0.0 if now is Phase.READY else None
    done = {span.phase for span in spans}
    ahead = sum(known.median_s for phase, known in learned.items() if phase not in done)
    here = learned[now].median_s if now in learned else 0.0
    return ahead + max(0.0, here - (elapsed_s or 0.0))


def limit_s(phase: Phase, learned: Mapping[Phase, Learned] | None = None) -> float | None:
    """Seconds after which the phase counts as stalled; ``None`` for one that may last."""
    if phase not in FLOOR_S:
        return None
    known = (learned or {}).get(phase)
    if known is None:
        return FLOOR_S[phase]
    return max(FACTOR * known.p90_s, _SHORTEST_S)
