"""Prometheus metrics under SGLang's names."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from eagle3.answers import Answer

_LATENCY = (0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
_GAUGES = {
    "sglang:num_running_reqs": ("running", "Requests that are running."),
    "sglang:num_queue_reqs": ("queue", "Requests that wait."),
    "sglang:num_used_tokens": ("used_tokens", "Tokens in the KV cache."),
    "sglang:gen_throughput": ("throughput", "Generated tokens per second, last log interval."),
    "sglang:spec_accept_length": (
        "accept_length",
        "Mean tokens per verification, last log interval.",
    ),
    "sglang:spec_accept_rate": (
        "accept_rate",
        "Accepted share of drafted tokens, last log interval.",
    ),
}
_COUNTERS = {
    "sglang:prompt_tokens": ("prompt", "Prompt tokens computed."),
    "sglang:generation_tokens": ("generated", "Tokens generated."),
    "sglang:spec_verify_calls": ("verify", "Verifications, one per request and step."),
}


class Metrics:
    """A registry of its own, so that nothing of the process leaks into it."""

    def __init__(self, model: str, capacity: int) -> None:
        self.registry = CollectorRegistry()
        self._capacity = capacity
        self._labels = {"model_name": model}

        def label(metric: Any) -> Any:
            return metric.labels(**self._labels)

        names = ["model_name"]
        self._gauges = {
            key: label(Gauge(name, text, names, registry=self.registry))
            for name, (key, text) in _GAUGES.items()
        }
        self._usage = label(
            Gauge(
                "sglang:token_usage", "Used share of the KV cache.", names, registry=self.registry
            )
        )
        self._hits = label(
            Gauge(
                "sglang:cache_hit_rate",
                "Prefix cache hits; this server has none.",
                names,
                registry=self.registry,
            )
        )
        self._counters = {
            key: (label(Counter(name, text, names, registry=self.registry)))
            for name, (key, text) in _COUNTERS.items()
        }
        self._seen = dict.fromkeys(self._counters, 0)
        self._requests = label(
            Counter("sglang:num_requests", "Answers given.", names, registry=self.registry)
        )

        def histogram(name: str, text: str) -> Any:
            return label(Histogram(name, text, names, buckets=_LATENCY, registry=self.registry))

        self._first = histogram("sglang:time_to_first_token_seconds", "Until the first token.")
        self._between = histogram("sglang:inter_token_latency_seconds", "Between two tokens.")
        self._whole = histogram("sglang:e2e_request_latency_seconds", "Until the last token.")

    def observe(self, answer: Answer, now: float) -> None:
        """Count one finished answer; ``now`` is monotonic seconds."""
        self._requests.inc()
        self._whole.observe(now - answer.began)
        if answer.first is not None:
            self._first.observe(answer.first - answer.began)
            if len(answer.ids) > 1:
                self._between.observe((now - answer.first) / (len(answer.ids) - 1))

    def render(self, stats: dict[str, Any]) -> bytes:
        """The exposition text for the scheduler's latest numbers."""
        for key, gauge in self._gauges.items():
            gauge.set(stats.get(key, 0))
        self._usage.set(stats.get("used_tokens", 0) / self._capacity)
        for key, counter in self._counters.items():
            total = stats.get(key, 0)
            counter.inc(total - self._seen[key])
            self._seen[key] = total
        return generate_latest(self.registry)
