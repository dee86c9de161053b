"""Choosing tokens, by a law that does not depend on how the scores were computed.

The randomness of a request's token at position ``p`` is one number, a hash of (seed, p). So the
same request yields the same text with speculation on or off, alone or in a batch: a drafted token
is accepted exactly when it is the token that would have been drawn there anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from eagle3.sampling_params import SamplingParams

_MASK = (1 << 64) - 1


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on seed and position alone (splitmix64's finaliser)."""
    z = (seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + 0x9E3779B97F4A7C15) & _MASK
    for multiplier in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xBF58476D1CE4E5B9):
        z = ((z ^ (z >> 30)) * multiplier) & _MASK
        z ^= z >> 27
    return (z >> 11) / (1 << 53)


def distribution(logits: Tensor, params: SamplingParams) -> Tensor:
    """The probabilities that a request draws from, [rows, vocabulary], fp64."""
    probabilities = (logits.double() / params.temperature).softmax(-1)
    if params.top_k > 0 or params.top_p < 1.0:
        ordered, order = probabilities.sort(stable=True, dim=-1, descending=True)
        drop = ordered.cumsum(-1) - ordered > params.top_p
        if params.top_k > 0:
            drop[:, params.top_k :] = True
        ordered = ordered.masked_fill(drop, 0.0)
        probabilities = torch.zeros_like(probabilities).scatter_(-1, order, ordered)
    return probabilities


def draw(probabilities: Tensor, numbers: Sequence[float]) -> Tensor:
    """The tokens at which the running sums pass the given numbers, one a row."""
    sums = probabilities.cumsum(-1)
    # Scaled below the total, so that rounding can never run past the last possible token.
    wanted = torch.tensor(numbers, dtype=sums.dtype, device=sums.device) * sums[:, -1]
    return torch.searchsorted(sums, wanted[:, None], right=True).squeeze(-1)


def choose(
    logits: Tensor, params: Sequence[SamplingParams], positions: Sequence[Sequence[int]]
) -> Tensor:
    """The token of every row.

    Args:
        logits: [requests, rows, vocabulary].
        params: one per request.
        positions: per request and row, the position of the token to choose.
    """
    tokens = logits.argmax(-1)
    for request, own in enumerate(params):
        if own.temperature > 0:
            numbers = [uniform(own.seed, position) for position in positions[request]]
            tokens[request] = draw(distribution(logits[request], own), numbers)
    return tokens
