"""The race that draws tokens: its waiting times, and the draft's part in it."""

from __future__ import annotations

import pytest
import torch

from eagle3.sampling import Race, waits
from eagle3.sampling_params import SamplingParams

from . import support


def times() -> torch.Tensor:
    """[seeds, positions, tokens] as numbers that are even between 0 and 1."""
    tokens = torch.arange(50)
    return torch.stack([(-waits(seed, range(40), tokens)).exp() for seed in range(50)])


def test_waiting_times_are_exponential() -> None:
    even = times().flatten()
    assert float(even.min()) > 0
    assert float(even.max()) < 1
    counts = torch.histc(even, bins=20, min=0, max=1)
    # Binomial(100 000, 0.05) has a standard deviation of 69.
    assert float((counts - 5000).abs().max()) < 5 * 69


@pytest.mark.parametrize("dim", [0, 1, 2], ids=["seed", "position", "token"])
def test_neighbours_have_nothing_in_common(dim: int) -> None:
    even = times() - 0.5
    size = even.shape[dim] - 1
    products = even.narrow(dim, 0, size) * even.narrow(dim, 1, size)
    # The product of two numbers that are even between -1/2 and 1/2 has a variance of 1/144.
    assert abs(float(products.mean())) < 5 / 12 / products.numel() ** 0.5


def test_one_position_is_the_same_alone_and_among_others() -> None:
    tokens = torch.arange(1000)
    among = waits(7, [3, 4, 5], tokens)
    assert torch.equal(among[1], waits(7, [4], tokens)[0])
    few = torch.tensor([999, 5])
    assert torch.equal(waits(7, [4], few)[0], among[1][few])


def test_a_greedy_request_keeps_its_scores_beside_a_sampled_one() -> None:
    scores = torch.randn(2, 30, generator=torch.Generator().manual_seed(1))
    params = [SamplingParams(), SamplingParams(temperature=1.0, seed=3)]
    race, own = Race(params, [8, 9], 2, 60, torch.device("cpu")), torch.arange(0, 60, 2)
    after = race.guess(scores, 1, own)
    assert torch.equal(after[0], scores[0])
    assert not torch.equal(after[1], scores[1])
    branches = race.guess(scores[:, None].expand(2, 4, 30), 1, own)
    assert torch.equal(branches, after[:, None].expand(2, 4, 30))


@pytest.mark.parametrize("shape", [(3,), (3, 4, 8)], ids=str)
def test_a_draft_in_the_race_is_accepted_more_often(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    prompts = support.code_prompts(8)

    def accepted() -> int:
        done = support.answer(
            support.engine(*shape),
            prompts,
            32,
            lambda number: SamplingParams(temperature=0.7, seed=number),
        )
        return sum(s.accepted for s in done)

    with_race = accepted()
    monkeypatch.setattr(Race, "guess", lambda _self, scores, *_: scores)
    assert with_race > accepted()
