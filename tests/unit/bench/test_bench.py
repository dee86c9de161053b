"""Figures of a measurement: percentiles, pace, streams, comparisons."""

from __future__ import annotations

import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import bench

URL = "http://127.0.0.1:1"


def answer(*texts: str, usage: int | None = None, status: int = 200) -> httpx.MockTransport:
    rows = [json.dumps({"choices": [{"text": text}]}) for text in texts]
    if usage is not None:
        rows.append(json.dumps({"choices": [], "usage": {"completion_tokens": usage}}))
    body = "".join(f"data: {row}\n\n" for row in rows) + ": a comment\n\ndata: [DONE]\n\n"
    return httpx.MockTransport(
        lambda asked: httpx.Response(status if asked.method == "POST" else 404, text=body)
    )


def test_percentiles_by_nearest_rank() -> None:
    assert bench.percentiles([float(n) for n in range(1, 101)]) == {50: 50.0, 90: 90.0, 99: 99.0}
    assert bench.percentiles([3.0]) == {50: 3.0, 90: 3.0, 99: 3.0}
    assert bench.percentiles([]) == {}


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_are_values_in_order(values: list[float]) -> None:
    found = bench.percentiles(values)
    assert found[50] <= found[90] <= found[99]
    assert set(found.values()) <= set(values)


def test_pace_counts_tokens_not_chunks() -> None:
    sample = bench.sample_of(10.0, [10.5, 11.0, 12.5], 12.6, counted=9)
    assert sample.ttft_s == 0.5
    assert sample.tokens == 9
    assert sample.itl_s == 2.0 / 8
    assert bench.sample_of(10.0, [10.5], 10.6, counted=1).itl_s is None
    assert bench.sample_of(10.0, [], 10.6, counted=0).error == "no text came"


def test_failed_requests_count_for_no_throughput() -> None:
    good, bad = bench.Sample(0.1, 1.0, 50, 0.01), bench.Sample(error="HTTP 500")
    level = bench.summarise(2, [good, bad, good], 2.0)
    assert (level.tokens_per_s, level.failed, level.requests) == (50.0, 1, 3)
    assert level.error == "HTTP 500"


async def test_a_stream_is_counted_by_its_usage() -> None:
    async with httpx.AsyncClient(transport=answer("a b", " c", usage=5)) as client:
        sample = await bench.request(client, URL, "hello", 8)
    assert (sample.tokens, sample.error) == (5, "")
    async with httpx.AsyncClient(transport=answer("a", "b")) as client:
        level = await bench.measure(client, URL, concurrency=3, requests=7, tokens=8)
    assert (level.requests, level.failed, level.tokens) == (7, 0, 14)
    assert level.accept_length is None


async def test_a_first_round_of_that_size_does_not_count() -> None:
    """Kernels of a batch are compiled when the first of its size comes."""
    asked: list[int] = []

    def handle(got: httpx.Request) -> httpx.Response:
        if got.url.path.endswith("/completions"):
            asked.append(json.loads(got.content)["max_tokens"])
        return httpx.Response(200, text='data: {"choices": [{"text": "a"}]}\n\ndata: [DONE]\n\n')

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
        level = await bench.measure(client, URL, concurrency=3, requests=7, tokens=64)
        assert asked == [bench.FIRST_TOKENS] * 3 + [64] * 7
        assert level.requests == 7
        asked.clear()
        await bench.measure(client, URL, concurrency=1, requests=2, tokens=64)
        assert asked == [64] * 2


async def test_refusals_and_nonsense_are_errors_of_the_request() -> None:
    async with httpx.AsyncClient(transport=answer(status=400)) as client:
        assert "HTTP 400" in (await bench.request(client, URL, "x", 8)).error
    nonsense = httpx.MockTransport(lambda _: httpx.Response(200, text="data: {\x1b[2J\n\n"))
    async with httpx.AsyncClient(transport=nonsense) as client:
        error = (await bench.request(client, URL, "x", 8)).error
    assert error.startswith("JSONDecodeError")
    assert "\x1b" not in error


def test_a_clear_difference_is_decided_and_noise_is_not() -> None:
    clear = bench.compare([(100, 150), (101, 152), (99, 148)])
    assert clear is not None
    assert clear.decided
    assert clear.mean == pytest.approx(1.5, rel=0.01)
    assert clear.low <= clear.mean <= clear.high
    noise = bench.compare([(100, 110), (100, 91), (100, 103), (100, 97)])
    assert noise is not None
    assert not noise.decided
    assert bench.compare([(100, 110)]) is None
    assert bench.compare([(100, 110), (0, 5)]) is None


def test_three_rounds_of_one_sign_may_still_be_chance() -> None:
    found = bench.compare([(100, 101), (100, 104), (100, 109)])
    assert found is not None
    assert not found.decided


def test_swapping_the_two_gives_the_reciprocal() -> None:
    pairs = [(100.0, 120.0), (90.0, 130.0), (110.0, 115.0)]
    there, back = bench.compare(pairs), bench.compare([(b, a) for a, b in pairs])
    assert there is not None
    assert back is not None
    assert there.mean * back.mean == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)


def test_prompts_are_fixed_and_many() -> None:
    assert len(bench.prompts()) == len(set(bench.prompts())) == 16
