"""Measure a server that serves: time to first token, pace, throughput, accept length.

Requests are OpenAI completions, streamed, greedy, over the host's own side of the link. Times are
seconds on this machine's clock, so that the link's latency is in the first token and, for a slow
link, in nothing else. With speculation a chunk holds several tokens: the pace of a request is
(last chunk - first chunk) / (tokens - 1), the mean time between its tokens.
"""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import httpx

from console.errors import ActionFailed
from console.text import clean
from console.watch import probe

PERCENTILES = (50, 90, 99)
SILENT_S = 300.0
"""A request fails after so long without a byte; behind a long queue the first token takes long."""
TELL_S = 5.0
"""How often it is told how far a measurement is: nobody waits longer without a word."""
FIRST_TOKENS = 16
"""Tokens of each request in the round that does not count."""
WARM_UP_S = 60.0
"""The same while warming up, when nothing queues."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. ``tokens`` is what the server counted, else the chunks; ``error`` says why."""

    ttft_s: float | None = None
    seconds: float = 0.0
    tokens: int = 0
    itl_s: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Level:
    """All requests at one concurrency. Percentiles map 50, 90 and 99 to seconds."""

    concurrency: int
    requests: int
    failed: int
    seconds: float
    tokens: int
    tokens_per_s: float
    ttft_s: dict[int, float]
    itl_s: dict[int, float]
    accept_length: float | None = None
    error: str = ""


def prompts() -> tuple[str, ...]:
    """The fixed prompts: the same for every run, so that two runs can be compared."""
    text = resources.files("console").joinpath("data/bench_prompts.txt").read_text("utf-8")
    return tuple(line for line in text.splitlines() if line)


async def warm_up(client: httpx.AsyncClient, url: str, tokens: int, key: str | None = None) -> None:
    """Two requests that do not count: caches and kernels are filled by them.

    Raises:
        ActionFailed: the server does not complete.
        HostError: the link is lost.
    """
    for prompt in prompts()[:2]:
        sample = await request(client, url, prompt, tokens, key, silent_s=WARM_UP_S)
        if sample.error:
            raise ActionFailed(f"no completion: {sample.error}", place=url, hint="specops watch")


async def measure(
    client: httpx.AsyncClient, url: str, *, concurrency: int, requests: int, tokens: int,
    key: str | None = None, tell: Callable[[str], None] = lambda _line: None,
) -> Level:  # fmt: skip
    """So many requests, so many at a time, each of ``tokens`` tokens at most.

    A round that does not count comes first: the kernels of a batch of that size are compiled when
    the first one is seen (0.8 s on an H200), and that is no property of the preset. ``tell`` is
    told every :data:`TELL_S` how far it is.

    Raises:
        HostError: the link is lost.
    """
    together = min(concurrency, requests)
    if together > 1:
        await at_once(
            client, url, range(-together, 0), together, min(tokens, FIRST_TOKENS), key, []
        )
    samples: list[Sample] = []

    async def telling() -> None:
        while True:
            await asyncio.sleep(TELL_S)
            took = time.perf_counter() - started
            tell(f"at {concurrency}: {len(samples)} of {requests} requests done, {took:.0f} s")

    started = time.perf_counter()
    teller = asyncio.ensure_future(telling())
    try:
        await at_once(client, url, range(requests), together, tokens, key, samples)
    finally:
        teller.cancel()
    seconds = time.perf_counter() - started
    counted = await probe.metrics(client, url)
    return summarise(concurrency, samples, seconds, counted.accept_length if counted else None)


async def at_once(
    client: httpx.AsyncClient, url: str, numbers: Iterable[int], together: int, tokens: int,
    key: str | None, into: list[Sample],
) -> None:  # fmt: skip
    """A request for each number, which chooses its prompt, so many at a time; ``into`` gets them.

    Raises:
        HostError: the link is lost.
    """
    texts = prompts()
    waiting = iter(numbers)

    async def worker() -> None:
        for number in waiting:  # one iterator: each number is taken once
            one = await request(client, url, texts[number % len(texts)], tokens, key)
            into.append(one)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(together):
                group.create_task(worker())
    except ExceptionGroup as lost:  # every worker has lost the same link: one of them says it
        raise lost.exceptions[0] from lost


async def request(
    client: httpx.AsyncClient,
    url: str,
    prompt: str,
    tokens: int,
    key: str | None = None,
    *,
    silent_s: float = SILENT_S,
) -> Sample:
    """One streamed completion.

    Raises:
        HostError: the link is lost.
    """
    body = {
        "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
        "ignore_eos": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    started = time.perf_counter()
    marks: list[float] = []
    counted: int | None = None
    try:
        async with client.stream(
            "POST", f"{url}/v1/completions", json=body, headers=headers, timeout=silent_s
        ) as answer:
            if answer.status_code != 200:
                said = clean((await answer.aread())[:200])
                return Sample(error=f"HTTP {answer.status_code}: {said}")
            async for event in events(answer.aiter_lines()):
                if event.get("error"):
                    return Sample(error=clean(str(event["error"]), limit=200))
                if any(choice.get("text") for choice in event.get("choices") or ()):
                    marks.append(time.perf_counter())
                usage = event.get("usage")
                if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
                    counted = usage["completion_tokens"]
    except (httpx.TransportError, ValueError, AttributeError) as error:
        return Sample(error=clean(f"{type(error).__name__}: {error}", limit=200))
    return sample_of(started, marks, time.perf_counter(), counted)


async def events(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a server-sent stream up to ``[DONE]``; ``ValueError`` for anything else.

    Format: ``data: TEXT`` lines; comments begin with a colon and are passed over.
    """
    async for line in lines:
        if not line.startswith("data:"):
            continue
        text = line[5:].strip()
        if text == "[DONE]":
            return
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("an event that is no object")
        yield value


# ---- pure


def sample_of(started: float, marks: Sequence[float], ended: float, counted: int | None) -> Sample:
    """A request's figures from the times at which text came."""
    if not marks:
        return Sample(seconds=ended - started, error="no text came")
    tokens = counted or len(marks)
    itl = (marks[-1] - marks[0]) / (tokens - 1) if tokens > 1 and len(marks) > 1 else None
    return Sample(marks[0] - started, ended - started, tokens, itl)


def summarise(
    concurrency: int, samples: Sequence[Sample], seconds: float, accept_length: float | None = None
) -> Level:
    """All requests of one concurrency as one row."""
    good = [s for s in samples if not s.error]
    tokens = sum(s.tokens for s in good)
    errors = [s.error for s in samples if s.error]
    return Level(
        concurrency=concurrency,
        requests=len(samples),
        failed=len(errors),
        seconds=seconds,
        tokens=tokens,
        tokens_per_s=tokens / seconds if seconds > 0 else 0.0,
        ttft_s=percentiles([s.ttft_s for s in good if s.ttft_s is not None]),
        itl_s=percentiles([s.itl_s for s in good if s.itl_s is not None]),
        accept_length=accept_length,
        error=errors[0] if errors else "",
    )


def percentiles(values: Sequence[float]) -> dict[int, float]:
    """The 50th, 90th and 99th percentile by nearest rank; empty where there is no value."""
    ranked = sorted(values)
    if not ranked:
        return {}
    return {p: ranked[max(0, math.ceil(p / 100 * len(ranked)) - 1)] for p in PERCENTILES}


@dataclass(frozen=True, slots=True)
class Ratio:
    """How much faster the second is than the first: mean ratio and its 95 % interval."""

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def decided(self) -> bool:
        """Whether the interval leaves 1 out: the difference is more than noise."""
        return self.low > 1.0 or self.high < 1.0


def compare(pairs: Sequence[tuple[float, float]], *, comparisons: int = 1) -> Ratio | None:
    """Throughput of the second over the first, from alternating rounds.

    Student's interval over the logarithms of the ratios, so that swapping the two gives the
    reciprocal. Rounds cost a relaunch and are few: resampling three of them would call one chance
    result in four a difference. ``comparisons`` made side by side widen each interval so that all
    of them hold together at 95 % (Bonferroni): of twenty equal presets one would seem different.
    ``None`` below two pairs: one round says nothing of the noise.
    """
    if len(pairs) < 2 or any(a <= 0 or b <= 0 for a, b in pairs):
        return None
    logs = [math.log(b / a) for a, b in pairs]
    mean = statistics.fmean(logs)
    t = student_t(1 - 0.05 / comparisons, len(logs) - 1)
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(pairs))


def student_t(confidence: float, freedom: int) -> float:
    """The two-sided quantile of Student's t: 12.706 for 95 % and one degree of freedom.

    With t = sqrt(freedom) tan(angle) the density is cos(angle) to the power freedom - 1, which is
    smooth, so Simpson's rule and halving are enough.
    """
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)

    def inside(angle: float, steps: int = 200) -> float:
        width = angle / steps
        weights = (1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1))
        parts = (w * math.cos(i * width) ** (freedom - 1) for i, w in enumerate(weights))
        return 2 * scale * sum(parts) * width / 3

    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)
