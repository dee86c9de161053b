"""The text with speculation is the text without it."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch

from eagle3.engine import Sequence
from eagle3.sampling import Race, distribution
from eagle3.sampling_params import SamplingParams
from tests import scale

from . import support

CHAINS: list[tuple[int, ...]] = [(1,), (2,), (3,), (4,), (5,)]
TREES: list[tuple[int, ...]] = [(3, 2, 6), (5, 4, 8), (3, 4, 16)]
TOKENS = 64 if scale.SHARE >= 1 else 20


@functools.cache
def prompts() -> list[list[int]]:
    count = max(4, scale.count(100))
    return support.chat_prompts(count) + support.code_prompts(count)


@functools.cache
def plain(*, sample: bool = False) -> list[Sequence]:
    """What plain decoding answers, one request at a time."""
    params = sampled if sample else support.greedy
    return support.answer(support.engine(), prompts(), TOKENS, params)


@pytest.mark.parametrize("shape", CHAINS + TREES, ids=str)
def test_greedy_text_is_the_same(shape: tuple[int, ...]) -> None:
    wanted = plain()
    got = support.answer(support.engine(*shape), prompts(), TOKENS)
    wrong, _ = support.differences(wanted, got)
    assert not wrong
    assert sum(s.accepted for s in got) > 0, "nothing was accepted, so nothing was tested"


def sampled(number: int) -> SamplingParams:
    return SamplingParams(temperature=0.8, top_p=0.95, top_k=50, seed=1000 + number)


@pytest.mark.parametrize("shape", [(3,), (5, 4, 8)], ids=str)
def test_sampled_text_is_the_same_with_the_same_seed(shape: tuple[int, ...]) -> None:
    wanted = plain(sample=True)
    got = support.answer(support.engine(*shape), prompts(), TOKENS, sampled)
    wrong, _ = support.differences(wanted, got)
    assert not wrong


@pytest.mark.parametrize("shape", [(0,), (3,), (3, 4, 8)], ids=str)
def test_text_is_the_same_with_eight_requests_at_once(shape: tuple[int, ...]) -> None:
    wanted = plain()
    got = support.answer(support.engine(*shape), prompts(), TOKENS, together=8)
    wrong, _ = support.differences(wanted, got)
    assert not wrong


def test_logprobs_are_those_of_plain_decoding() -> None:
    def params(number: int) -> SamplingParams:
        return dataclasses.replace(sampled(number), logprobs=True)

    some = prompts()[:4]
    wanted = support.answer(support.engine(), some, TOKENS, params)
    got = support.answer(support.engine(3), some, TOKENS, params)
    for a, b in zip(wanted, got, strict=True):
        assert b.logprobs[:TOKENS] == pytest.approx(a.logprobs[:TOKENS], abs=1e-4)


def test_a_request_that_leaves_does_not_disturb_the_others() -> None:
    engine, some = support.engine(3), prompts()[:5]
    alone = support.answer(engine, some, TOKENS)
    together = [Sequence(list(prompt), SamplingParams()) for prompt in some]
    for sequence in together:
        engine.admit(sequence)
    for leaves in (0, 2):
        engine.step()
        engine.release(together[leaves])
    while min(len(s.tokens) - s.prompt_length for s in engine.running) < TOKENS:
        engine.step()
    for number in (1, 3, 4):
        sequence = together[number]
        assert sequence.tokens[: len(alone[number].tokens)] == alone[number].tokens
        engine.release(sequence)
    assert not engine.running


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_samples_follow_the_targets_distribution(temperature: float) -> None:
    """χ² of first tokens drawn under many seeds against the target's own probabilities."""
    engine = support.engine()
    with torch.inference_mode():
        for prompt in prompts()[:3]:
            ids = torch.tensor([prompt])
            span = engine._prompt_span(0, 0, len(prompt), engine.cache)
            hidden, _ = engine.target.forward(ids, span, engine.cache)
            params = SamplingParams(temperature=temperature)
            logits = engine.target.logits(hidden[-1:])
            wanted = distribution(logits, params)[0]
            draws = scale.count(200_000)
            parts = [range(first, min(first + 1000, draws)) for first in range(0, draws, 1000)]
            drawn = [
                Race(
                    [dataclasses.replace(params, seed=seed) for seed in seeds],
                    [len(prompt)] * len(seeds), 1, len(wanted), engine.device,
                ).choose(logits.expand(len(seeds), 1, -1), [[0]] * len(seeds))
                for seeds in parts
            ]  # fmt: skip
            tokens = torch.cat(drawn).flatten()
            counts = torch.bincount(tokens, minlength=len(wanted)).double()
            common = wanted * draws >= 5
            expected = torch.cat((wanted[common], wanted[~common].sum()[None])) * draws
            seen = torch.cat((counts[common], counts[~common].sum()[None]))
            keep = expected > 0
            chi2 = float(((seen - expected) ** 2 / expected)[keep].sum())
            freedom = int(keep.sum()) - 1
            # Wilson and Hilferty: beyond 4 standard deviations is one chance in 30 000.
            z = ((chi2 / max(1, freedom)) ** (1 / 3) - (1 - 2 / (9 * max(1, freedom)))) / (
                2 / (9 * max(1, freedom))
            ) ** 0.5
            assert z < 4, (chi2, freedom)
