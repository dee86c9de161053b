"""How presets have done: launches, times, failures and measurements, ranked by what worked. Pure.

The records are run records (:class:`console.model.Run`, kept on the hosts) and measurements
(:class:`Measured`, kept on the operator's machine, read by :mod:`console.planning.past`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from console.model import Preset, Run

VERDICTS = ("works", "worked", "untried", "fails")
"""Best first. ``works``: the last launch whose end is known served, and did not fail afterwards;
``worked``: an earlier one did; ``fails``: none ever did; ``untried``: no launch has an end that is
known."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement of a running server, as the bench history keeps it.

    ``tokens_per_s`` maps (concurrency, tokens asked for) to throughput; only figures under the same
    key may be compared. ``at`` is in seconds since 1970.
    """

    host: str
    model: str
    at: float
    speculative: str | None = None
    nccl: str | None = None
    preset: str | None = None
    run_id: str | None = None
    tokens_per_s: Mapping[tuple[int, int], float] = field(default_factory=dict)
    accept_length: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How one preset has done. Unknown is ``None``, never zero.

    ``launches`` counts all, ``served`` and ``failed`` those whose end is known, ``broke`` those of
    the served that failed later. ``start_s`` and ``phases`` are medians in seconds over launches
    that served. ``speed`` is throughput against the best preset measured under the same load (1.0:
    it is the best). ``last_failure`` is the root of the newest failure.
    """

    preset: str
    kind: str
    verdict: str
    launches: int = 0
    served: int = 0
    failed: int = 0
    broke: int = 0
    start_s: float | None = None
    phases: tuple[tuple[str, float], ...] = ()
    tokens_per_s: Mapping[tuple[int, int], float] = field(default_factory=dict)
    speed: float | None = None
    accept_length: float | None = None
    last_at: float | None = None
    last_failure: str = ""

    @property
    def why(self) -> str:
        """The standing in one line, for lists: ``3 of 4 launches served; 4.2 s; 812 tok/s``."""
        if not self.launches and not self.tokens_per_s:
            return "never launched here"
        known = self.served + self.failed
        parts = [f"{self.served} of {known} served"] if known else [f"{self.launches} unwatched"]
        parts += [f"{self.broke} broke later"] * bool(self.broke)
        if self.start_s is not None:
            parts.append(f"start {self.start_s:.1f} s")
        if self.tokens_per_s:
            key = max(self.tokens_per_s)
            parts.append(f"{self.tokens_per_s[key]:.0f} tok/s at {key[0]}")
        parts += [f"last failure: {self.last_failure}"] * bool(self.last_failure)
        return "; ".join(parts)


def rank_presets(
    presets: Iterable[Preset],
    runs: Iterable[Run],
    measured: Iterable[Measured] = (),
    *,
    host: str | None = None,
    model: str | None = None,
) -> tuple[Standing, ...]:
    """The presets, each with how it has done, what worked first.

    ``host`` and ``model`` keep only the records of that host and that model; ``None`` keeps all.
    Order: by verdict (:data:`VERDICTS`); then by throughput under the same load, those never
    measured last; then by the share of launches that served, by start-up time, by kind and name. So
    the order of presets without any record is that of a plain list.

    ``runs`` may be given in any order, from several hosts, with servers of other models among them:
    ``HostView.runs`` of every view as they are.
    """
    own = [r for r in runs if (host is None or r.host == host) and model in (None, r.model)]
    kept = [
        m for m in measured if (host is None or m.host == host) and model in (None, m.model)
    ]  # fmt: skip
    known = list(presets)
    speeds = {(p.kind, p.name): throughput([m for m in kept if uses(m, p)]) for p in known}
    found = []
    for preset in known:
        best = _best(p for (kind, _), p in speeds.items() if kind == preset.kind)
        mine = [m for m in kept if uses(m, preset)]
        counted = speeds[(preset.kind, preset.name)]
        found.append(standing(preset, [r for r in own if uses(r, preset)], mine, counted, best))
    return tuple(sorted(found, key=_order))


def uses(record: Run | Measured, preset: Preset) -> bool:
    """Whether a launch or a measurement was made with this preset."""
    name = {"speculative": record.speculative, "nccl": record.nccl}.get(preset.kind, record.preset)
    return name == preset.name


def has_failed(run: Run) -> bool:
    """Whether a run ended by itself, before or after it served; not: was stopped or is unknown."""
    outcome = run.outcome or ""
    by_itself = outcome.startswith("exit ") and outcome != "exit 0"
    return by_itself or outcome in ("failed", "stalled")


def standing(
    preset: Preset,
    runs: Sequence[Run],
    measured: Sequence[Measured] = (),
    tokens_per_s: Mapping[tuple[int, int], float] | None = None,
    best: Mapping[tuple[int, int], float] | None = None,
) -> Standing:
    """One preset's standing from the records that used it; ``best`` is what it is compared with."""
    counted = throughput(measured) if tokens_per_s is None else tokens_per_s
    newest = sorted(runs, key=lambda run: run.launched_at, reverse=True)
    served = [run for run in newest if run.served]
    failed = [run for run in newest if has_failed(run) and not run.served]
    broke = [run for run in served if has_failed(run)]
    times = [m.at for m in measured] + [run.launched_at for run in newest[:1]]
    accepted = [m.accept_length for m in measured if m.accept_length is not None]
    failures = [run.failure for run in newest if has_failed(run) and run.failure]
    return Standing(
        preset=preset.name,
        kind=preset.kind,
        verdict=_verdict(newest, bool(counted)),
        launches=len(newest),
        served=len(served),
        failed=len(failed),
        broke=len(broke),
        start_s=_median([s for run in served if (s := _start_s(run)) is not None]),
        phases=_phases(served),
        tokens_per_s=counted,
        speed=_speed(counted, best or counted),
        accept_length=_median(accepted),
        last_at=max(times, default=None),
        last_failure=failures[0] if failures else "",
    )


def throughput(measured: Iterable[Measured]) -> dict[tuple[int, int], float]:
    """The median throughput under each load."""
    found: dict[tuple[int, int], list[float]] = {}
    for row in measured:
        for key, value in row.tokens_per_s.items():
            found.setdefault(key, []).append(value)
    return {key: statistics.median(values) for key, values in sorted(found.items())}


def _verdict(newest: Sequence[Run], was_measured: bool) -> str:
    known = [run for run in newest if run.served or has_failed(run)]
    if not known:
        return "works" if was_measured else "untried"  # what was measured served
    if known[0].served and not has_failed(known[0]):
        return "works"
    return "worked" if any(run.served for run in known) else "fails"


def _best(
    speeds: Iterable[Mapping[tuple[int, int], float]],
) -> dict[tuple[int, int], float]:
    best: dict[tuple[int, int], float] = {}
    for one in speeds:
        for key, value in one.items():
            best[key] = max(value, best.get(key, 0.0))
    return best


def _speed(
    mine: Mapping[tuple[int, int], float], best: Mapping[tuple[int, int], float]
) -> float | None:
    """The geometric mean of the shares of the best, over the loads that it was measured under."""
    shares = [value / best[key] for key, value in mine.items() if value > 0 and best.get(key)]
    return math.exp(statistics.fmean(map(math.log, shares))) if shares else None


def _start_s(run: Run) -> float | None:
    took = [seconds for _, seconds in run.phases]
    return sum(took) if took else None


def _phases(runs: Sequence[Run]) -> tuple[tuple[str, float], ...]:
    """Each phase's median in the order in which the newest run went through them."""
    took: dict[str, list[float]] = {}
    for run in runs:
        for name, seconds in run.phases:
            took.setdefault(name, []).append(seconds)
    return tuple((n, statistics.median(s)) for n, s in took.items() if n != "ready")


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _order(one: Standing) -> tuple[int, float, float, float, str, str]:
    known = one.served + one.failed
    share = one.served / known if known else 0.0
    return (
        VERDICTS.index(one.verdict),
        -(one.speed or 0.0),
        -share,
        math.inf if one.start_s is None else one.start_s,
        one.kind,
        one.preset,
    )
