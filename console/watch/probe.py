"""Ask a server how it is, from the host it runs on: health, metrics, and what it says of itself.

Semantics from SGLang 0.5.3 to 0.5.23: ``/health`` makes one token and waits up to 20 s for it, so a
shorter wait is no verdict; ``/v1/models`` answers 200 before the server serves and proves nothing;
accept length is a mean that counts the bonus token, so 1.0 means that no draft was accepted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from console.errors import HostError
from console.model import Health, Server

HEALTH_WAIT_S = 27.0
"""Longer than the 20 s that a hung SGLang takes to answer 503, with time for a slow link."""
MAX_BODY = 4 << 20

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(\{[^}]*\})?\s+(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a server counts. ``throughput_tok_s`` is generated tokens a second; ``None`` unknown."""

    accept_length: float | None = None
    throughput_tok_s: float | None = None
    running: int | None = None
    queued: int | None = None
    tokens_total: float | None = None
    model: str = ""


def address(server: Server, port: int | None = None) -> str:
    """The URL to ask on the server's own host; ``port``: where it serves, if not as configured."""
    port = port or server.port
    bind = server.bind
    if bind in ("", "0.0.0.0", "::"):  # noqa: S104 - compared with, never bound
        bind = "127.0.0.1"
    return f"http://[{bind}]:{port}" if ":" in bind else f"http://{bind}:{port}"


async def health(
    client: httpx.AsyncClient, url: str, path: str = "/health", *, wait_s: float = HEALTH_WAIT_S
) -> Health:
    """One health request. ``TIMEOUT`` after ``wait_s``: hung, or busy with a long prefill.

    Raises:
        HostError: the link to the host is lost; nothing is known of the server.
    """
    try:
        answer = await client.get(url + path, timeout=httpx.Timeout(wait_s, connect=wait_s))
    except httpx.ConnectError:
        return Health.REFUSED
    except httpx.TimeoutException:
        return Health.TIMEOUT
    except httpx.TransportError:  # answered with something that is not HTTP, or hung up
        return Health.UNKNOWN
    if answer.status_code == 200:
        return Health.OK
    return Health.UNAVAILABLE if answer.status_code == 503 else Health.UNKNOWN


async def accept_length(client: httpx.AsyncClient, url: str) -> float | None:
    """The mean over the server's life where ``/server_info`` has it, else what ``/metrics`` shows.

    ``/metrics`` shows nothing before the first decode log line, which a short test never reaches.

    Raises:
        HostError: the link to the host is lost.
    """
    for path in ("/server_info", "/get_server_info"):
        info = await _get(client, url + path, 5.0)
        if info is not None and (found := from_server_info(info).accept_length) is not None:
            return found
    counted = await metrics(client, url)
    return counted.accept_length if counted else None


async def metrics(client: httpx.AsyncClient, url: str, *, wait_s: float = 5.0) -> Metrics | None:
    """Counters from ``/metrics``, or from ``/server_info`` where that is off; ``None``: neither.

    Raises:
        HostError: the link to the host is lost.
    """
    text = await _get(client, url + "/metrics", wait_s)
    if text is not None:
        found = from_prometheus(text)
        if found is not None:
            return found
    for path in ("/server_info", "/get_server_info"):
        info = await _get(client, url + path, wait_s)
        if info is not None:
            return from_server_info(info)
    return None


async def _get(client: httpx.AsyncClient, url: str, wait_s: float) -> str | None:
    """A body of at most 4 MiB, or ``None`` for anything but 200."""
    try:
        async with client.stream("GET", url, timeout=wait_s) as answer:
            if answer.status_code != 200:
                return None
            body = bytearray()
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_BODY:
                    return None
    except httpx.TransportError:
        return None
    return body.decode("utf-8", "replace")


def from_prometheus(text: str) -> Metrics | None:
    """SGLang's, the bundled server's and vLLM's counters; ``None`` where none of them is there."""
    values: dict[str, list[float]] = {}
    for name, number in _samples(text):
        values.setdefault(name, []).append(number)

    def total(*names: str) -> float | None:
        for name in names:
            if name in values:
                return sum(values[name])
        return None

    accepts = [v for v in values.get("sglang:spec_accept_length", []) if v > 0]
    found = Metrics(
        accept_length=sum(accepts) / len(accepts) if accepts else None,
        throughput_tok_s=total(
            "sglang:gen_throughput", "vllm:avg_generation_throughput_toks_per_s"
        ),
        running=_whole(total("sglang:num_running_reqs", "vllm:num_requests_running")),
        queued=_whole(total("sglang:num_queue_reqs", "vllm:num_requests_waiting")),
        tokens_total=total("sglang:generation_tokens_total", "vllm:generation_tokens_total"),
    )
    return None if found == Metrics() else found


def _samples(text: str) -> Iterator[tuple[str, float]]:
    for match in _SAMPLE.finditer(text):
        try:
            number = float(match[3])
        except ValueError:
            continue
        if math.isfinite(number):  # NaN is how "no sample yet" reads
            yield match[1], number


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def from_server_info(text: str) -> Metrics:
    """The few fields of ``/server_info`` that are no secrets; everything else is dropped here.

    The document holds the server's arguments, its API key among them, so it is never kept.
    """
    try:
        data: Any = json.loads(text)
    except ValueError:
        return Metrics()
    if not isinstance(data, Mapping):
        return Metrics()
    states = data.get("internal_states")
    inner = [s for s in states if isinstance(s, Mapping)] if isinstance(states, list) else []
    accepts = [v for s in inner if (v := _number(s.get("avg_spec_accept_length")))]
    speeds = [v for s in inner if (v := _number(s.get("last_gen_throughput"))) is not None]
    model = data.get("model_path")
    return Metrics(
        accept_length=sum(accepts) / len(accepts) if accepts else None,
        throughput_tok_s=sum(speeds) if speeds else None,
        model=model if isinstance(model, str) else "",
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


async def complete(
    client: httpx.AsyncClient, url: str, *, key: str | None = None, wait_s: float = 60.0
) -> int:
    """One real completion of a few tokens; returns how many came.

    Raises:
        HostError: no answer, or one that is no completion.
    """
    body = {"prompt": "The capital of France is", "max_tokens": 24, "temperature": 0}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = await client.post(
            url + "/v1/completions", json=body, headers=headers, timeout=wait_s
        )
        answer.raise_for_status()
        usage = answer.json().get("usage") or {}
        return int(usage.get("completion_tokens") or len(answer.json()["choices"]))
    except (httpx.HTTPError, ValueError, KeyError, AttributeError) as error:
        raise HostError(f"no completion: {error}", place=url) from error


def open_client(transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    """A client whose every connection is opened on the host's side; proxies are never used."""
    return httpx.AsyncClient(
        transport=transport, trust_env=False, follow_redirects=False, timeout=5.0
    )
