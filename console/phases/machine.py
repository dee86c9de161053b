"""The phase machine: fed line by line, it knows where a start is, how far, and who is behind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from console.model import Phase, PhaseSpan
from console.phases.events import STEP_PHASE, Event, event_of
from console.phases.learned import Learned, limit_s
from console.phases.lines import Clock, Line, parse

_PROGRESS = re.compile(r"(\d{1,7})/(\d{1,7}) \[")
_SPECULATIVE = re.compile(r"speculative_algorithm['\"]?[=:] ?['\"](?!None)\w+")
_BAR_STEPS = frozenset(
    ("load", "draft-load", "graph", "piecewise-graph", "draft-graph", "draft-extend-graph")
)
_EXCEPTION = re.compile(r"[A-Z][\w.]*(?:Error|Exception)(?:: |$)")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a start. Lines count from 1; times are seconds since the first known time."""

    name: str
    start_line: int
    start_s: float | None
    end_line: int | None = None
    end_s: float | None = None
    done: int | None = None
    total: int | None = None

    @property
    def phase(self) -> Phase:
        """The phase of the contract that the step belongs to."""
        return STEP_PHASE[self.name]


@dataclass(frozen=True, slots=True)
class Stall:
    """A phase that takes too long: how long, and how long it may take."""

    phase: Phase
    elapsed_s: float
    limit_s: float


class PhaseMachine:
    """Event-driven, because the order of phases differs between engines and versions.

    ``feed`` takes lines as the log holds them. Times come from the log's own stamps; ``now_s`` (any
    clock that does not stop) only fills in for lines without one and measures what passed since.
    ``known`` says that some line told of a phase; ``failed_in`` is where a failed start was.
    """

    def __init__(self, engine: str | None = None) -> None:
        self.engine = engine
        self.starts = 0
        self._number = 0
        self._zero: float | None = None
        self._time: float | None = None
        self._now: float | None = None
        self._clock = Clock()
        self._reset()

    def _reset(self) -> None:
        self.steps: list[Step] = []
        self.failed_in: Phase | None = None
        self.known = False
        self._open: Step | None = None
        self._gap = ""
        self._speculative = False
        self._followed: str | None = None
        self._loads: dict[str, int] = {}
        self._reached: dict[str, int] = {}
        self._marks: dict[str, int] = {}
        self._kv_done = 0
        self._traceback = False
        self._argued = False

    # ------------------------------------------------------------------ what it knows

    @property
    def phase(self) -> Phase:
        """Where the start is now."""
        return self.steps[-1].phase if self.steps else Phase.SPAWN

    @property
    def progress(self) -> tuple[int, int] | None:
        """Done and total of the step under way, where it prints a bar."""
        step = self._open
        if step is None or step.done is None or step.total is None:
            return None
        return step.done, step.total

    @property
    def spans(self) -> tuple[PhaseSpan, ...]:
        """Phases in order; steps of one phase that follow each other make one span.

        A phase lasts until the next one begins: the log's silence after its last line is its own.
        """
        spans: list[PhaseSpan] = []
        for step in self.steps:
            if spans and spans[-1].phase is step.phase:
                spans[-1] = replace(
                    spans[-1],
                    end_s=step.end_s,
                    end_line=step.end_line,
                    done=step.done,
                    total=step.total,
                )
            else:
                spans.append(
                    PhaseSpan(
                        step.phase,
                        step.start_s,
                        step.end_s,
                        step.start_line,
                        step.end_line,
                        step.done,
                        step.total,
                    )
                )
        for at, (one, after) in enumerate(pairwise(spans)):
            if one.start_s is not None and after.start_s is not None:
                spans[at] = replace(one, end_s=max(one.start_s, after.start_s))
        return tuple(spans)

    @property
    def behind(self) -> tuple[str, ...]:
        """Ranks that have not yet reached what the furthest rank has."""
        if len(self._reached) < 2:
            return ()
        furthest = max(self._reached.values())
        return tuple(
            sorted(rank for rank, mark in self._reached.items() if rank and mark < furthest)
        )

    def elapsed_s(self, now_s: float | None = None) -> float | None:
        """Seconds in the present phase; ``None`` when the log gave no time."""
        spans = self.spans
        if not spans or spans[-1].start_s is None:
            return None
        at = self._since(self._time)
        if at is None:
            return None
        waited = now_s - self._now if now_s is not None and self._now is not None else 0.0
        return max(0.0, at - spans[-1].start_s) + max(0.0, waited)

    def stalled(
        self, now_s: float | None = None, learned: Mapping[Phase, Learned] | None = None
    ) -> Stall | None:
        """Whether the present phase takes longer than it may; see :func:`limit_s`."""
        bound, elapsed = limit_s(self.phase, learned), self.elapsed_s(now_s)
        if bound is None or elapsed is None or elapsed <= bound:
            return None
        return Stall(self.phase, elapsed, bound)

    # ------------------------------------------------------------------ feeding

    def feed(self, line: str, now_s: float | None = None) -> None:
        """Take the next raw line of the log."""
        self._number += 1
        parsed = parse(line, self._number)
        bar = line if "%|" in line or "Completed |" in line else ""
        self._take(parsed, bar, now_s)

    def skip(self, count: int) -> None:
        """Pass over lines that are known to mean nothing; they are counted."""
        self._number += count

    def feed_line(self, line: Line, now_s: float | None = None) -> None:
        """Take a line that is already parsed; its own number is kept."""
        self._number = line.number
        text = line.text
        self._take(line, text if "%|" in text or "Completed |" in text else "", now_s)

    def _take(self, line: Line, bar: str, now_s: float | None) -> None:
        if now_s is not None:
            self._now = now_s
        carried = not self._clock.own
        stamp = self._clock.read(line)
        if carried and self._clock.own and self._zero is not None:
            self._rebase(stamp)
        line = line._replace(time=stamp)
        time = stamp if stamp is not None else (now_s if self._time is None else None)
        if time is not None:
            self._time = time
            if self._zero is None:
                self._zero = time
                if self._open is not None and self._open.start_s is None:
                    self._replace(replace(self._open, start_s=0.0))
        if bar:
            self._bar(bar)
        event = event_of(line.text)
        if event is not None:
            self._handle(event, line)
        elif not self.steps:
            self._begin("args", line)
        elif self._gap and line.text.strip() and not bar:
            self._begin(self._gap, line)
        self._watch_traceback(line)

    def _rebase(self, stamp: float | None) -> None:
        """The logger's own clock takes over from a carrier's; what was before it has no times."""
        self._zero = self._time = stamp
        self.steps = [
            replace(s, start_s=0.0, end_s=None if s.end_line is None else 0.0) for s in self.steps
        ]
        if self._open is not None:
            self._open = self.steps[-1]

    def _since(self, time: float | None) -> float | None:
        return None if time is None or self._zero is None else time - self._zero

    def _bar(self, text: str) -> None:
        counts = _PROGRESS.findall(text[-600:])
        if counts and self._open and self._open.name in _BAR_STEPS:
            done, total = counts[-1]
            self._replace(replace(self._open, done=int(done), total=int(total)))

    def _replace(self, step: Step) -> None:
        self._open = step
        self.steps[-1] = step

    def _begin(self, name: str, line: Line) -> None:
        self._gap = ""
        if self.steps and self.steps[-1].name == name and self.steps[-1].end_line is None:
            return
        self._end(line.number - 1, line)
        self._open = Step(
            name, line.number, self._since(line.time if line.time is not None else self._time)
        )
        self.steps.append(self._open)

    def _end(self, number: int, line: Line) -> None:
        """Close the open step at a line, if one is open."""
        if self._open is not None:
            time = line.time if line.time is not None else self._time
            self._replace(replace(self._open, end_line=number, end_s=self._since(time)))
            self._open = None

    # ------------------------------------------------------------------ events

    def _handle(self, event: Event, line: Line) -> None:
        self.known = self.known or event.step != "failed"
        if event.what == "start":
            self._on_start(line)
        elif event.step == "failed":
            if self.phase is not Phase.FAILED:
                self.failed_in = self.phase
            self._begin("failed", line)
        elif event.step in ("draining", "stopped"):
            if self.phase is not Phase.FAILED:
                self._begin(event.step, line)
        elif self.phase is Phase.FAILED:
            return  # what other ranks still print while they go down
        elif event.what in ("begin", "end", "nccl", "bar") and event.step not in ("http", "ready"):
            self._on_step(event, line)
        else:
            self._on_server(event, line)

    def _on_start(self, line: Line) -> None:
        if self._argued:
            self._end(line.number - 1, line)
            self._reset()
        self._argued = True
        self.starts += 1
        self._speculative = bool(_SPECULATIVE.search(line.text))
        if not self.steps:
            self._begin("args", line)
        self._end(line.number, line)
        self._gap = "tokenizer"

    def _on_step(self, event: Event, line: Line) -> None:
        rank = line.rank or ""
        step = self._named(event, rank)
        if step is None:
            return
        self._mark(step, event.what, rank)
        if self._followed is None:
            self._followed = rank
        if rank != self._followed and step != "load":
            return
        if event.what == "nccl":
            if not any(s.name == "distributed" for s in self.steps) and not self._loads:
                self._begin(step, line)
        elif event.what in ("begin", "bar"):
            self._begin(step, line)
        elif self._open is not None and self._open.name == step:
            self._end(line.number, line)
            self._gap = self._after(step)

    def _named(self, event: Event, rank: str) -> str | None:
        """The step that an event means for this rank: target's or draft's."""
        step, loads = event.step, self._loads.get(rank, 0)
        if step == "load":
            if event.what == "begin":
                self._loads[rank] = loads = loads + 1
            return "load" if loads <= 1 else "draft-load"
        if step == "draft-load":
            self._loads[rank] = 2
        elif step == "distributed" and loads:
            return "draft-init" if event.what == "begin" else None
        elif step == "kv-cache":
            own = self._open.name if self._open else ""
            if own in ("kv-cache", "draft-kv-cache"):
                return own
            if event.what == "end":
                return None
            return "draft-kv-cache" if self._kv_seen() else "kv-cache"
        elif step == "graph" and loads > 1 and self._closed("graph"):
            return "draft-graph"
        return step

    def _kv_seen(self) -> bool:
        return any(step.name == "kv-cache" for step in self.steps)

    def _closed(self, name: str) -> bool:
        return any(s.name == name and s.end_line is not None for s in self.steps)

    def _mark(self, step: str, what: str, rank: str) -> None:
        """Remember how far a rank has come; only ``Load weight`` lines come from every rank."""
        if "load" in step:
            key = f"{step} {what}"
            self._marks.setdefault(key, len(self._marks))
            self._reached[rank] = max(self._reached.get(rank, -1), self._marks[key])

    def _after(self, step: str) -> str:
        """The step that begins with the next line, where a step is not announced."""
        if step == "distributed":
            return "import-models"
        drafted = any("draft" in s.name for s in self.steps)
        if step in ("graph", "piecewise-graph") and self._speculative and not drafted:
            return "draft-init"
        return ""

    def _on_server(self, event: Event, line: Line) -> None:
        if event.step == "ready" or (event.what == "startup" and self._vllm(line)):
            self._begin("ready", line)
        elif self.phase in (Phase.READY, Phase.DRAINING, Phase.STOPPED):
            return
        elif event.what == "listening":
            if self._open is None or self._open.name != "http":
                self._begin("http", line)
            self._end(line.number, line)
            self._gap = "warmup"
        elif event.step == "http":
            self._begin("http", line)
        elif event.what == "batch" and self.phase is Phase.SCHEDULER_READY:
            self._begin("warmup", line)

    def _vllm(self, line: Line) -> bool:
        return (
            self.engine == "vllm"
            or "APIServer" in line.stream
            or (self.engine is None and not line.fresh and self.phase is Phase.SCHEDULER_READY)
        )

    def _watch_traceback(self, line: Line) -> None:
        """A start that dies in its argument check prints a traceback and nothing else."""
        text = line.text
        if text.startswith("Traceback (most recent call last)"):
            self._traceback = True
        elif self._traceback and text[:1].isalpha():
            early = self.phase in (Phase.SPAWN, Phase.ARGS)
            if early and _EXCEPTION.match(text):
                self._handle(Event("begin", "failed"), line)
            self._traceback = False
