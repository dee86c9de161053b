"""What the scheduler counts: for the log's batch lines, ``/metrics`` and ``/server_info``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Counters:
    """Sums since some moment.

    Attributes:
        requests: request-steps, i.e. one per running request and decode step.
        correct: drafted tokens that were accepted.
        proposed: drafted tokens.
        tokens: generated.
    """

    requests: int = 0
    correct: int = 0
    proposed: int = 0
    tokens: int = 0

    @property
    def accept_length(self) -> float:
        """Mean tokens per request-step, the bonus token included; 1 to steps + 1."""
        return 1 + self.correct / self.requests if self.requests else 0.0

    @property
    def accept_rate(self) -> float:
        """Accepted share of the drafted tokens."""
        return self.correct / self.proposed if self.proposed else 0.0


@dataclass
class Stats:
    """Totals, and the interval since the last batch line.

    Attributes:
        throughput: of the last interval, tokens/s.
        prompt_tokens: computed in all.
        prefilled: requests whose prompt was computed; each yielded its first token there.
        steps: decode steps.
    """

    total: Counters = field(default_factory=Counters)
    interval: Counters = field(default_factory=Counters)
    last: Counters = field(default_factory=Counters)
    began: float = field(default_factory=time.perf_counter)
    throughput: float = 0.0
    prompt_tokens: int = 0
    prefilled: int = 0
    steps: int = 0

    def step(self, *, requests: int, correct: int, proposed: int, tokens: int) -> None:
        """Count one decode step."""
        for counters in (self.total, self.interval):
            counters.requests += requests
            counters.correct += correct
            counters.proposed += proposed
            counters.tokens += tokens
        self.steps += 1

    def close_interval(self) -> None:
        """Begin a new interval; throughput (tokens/s) and acceptance of the old one are kept."""
        now = time.perf_counter()
        self.throughput = self.interval.tokens / max(1e-9, now - self.began)
        self.last, self.interval, self.began = self.interval, Counters(), now
