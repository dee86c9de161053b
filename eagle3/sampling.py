"""Choosing tokens, by a law that does not depend on how the scores were computed.

A drawn token is the winner of a race. Each token's time is a waiting time, which is a hash of
(seed, position, token), divided by its probability; the first one in is chosen. Waiting times that
are exponential make that a draw from the probabilities, exactly. So the same request yields the
same text with speculation on or off, alone or in a batch: a drafted token is accepted exactly when
it is the token that would have been drawn there anyway.

The draft runs the same race over its own scores. The closer its opinion is to the target's, the
more often both have the same winner, where its most likely token would seldom be the one drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from eagle3.sampling_params import SamplingParams

_MASK = (1 << 64) - 1
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
"""Shifts and factors of splitmix64's finaliser."""


def _signed(number: int) -> int:
    """The 64 bits of a number as PyTorch's integers read them."""
    return number - (1 << 64) if number >> 63 else number


def _start(seed: int, position: int) -> int:
    """64 bits for a position of a request; neighbours have nothing in common."""
    z = (seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + 0x9E3779B97F4A7C15) & _MASK
    for shift, factor in _STEPS:
        z = ((z ^ (z >> shift)) * factor) & _MASK
    return _signed(z)


def waits(seed: int, positions: Sequence[int], tokens: Tensor) -> Tensor:
    """Waiting times, exponential with mean 1, [positions, tokens], fp64.

    Args:
        seed: of the request.
        positions: where the token is to stand in the text.
        tokens: the tokens' ids in the target's vocabulary, [tokens].
    """
    starts = [_start(seed, position) for position in positions]
    z = torch.tensor(starts, device=tokens.device)[:, None] + tokens * _signed(0x9E3779B97F4A7C15)
    for shift, factor in _STEPS:  # PyTorch shifts the sign in from above; it is masked out
        z = (z ^ ((z >> shift) & (_MASK >> shift))) * _signed(factor)
    high = (z >> 11) & (_MASK >> 11)
    return -((high.double() + 0.5) / (1 << 53)).log()


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


class Race:
    """The race for each of the next tokens of some requests; greedy ones take the best score.

    Args:
        params: one per request.
        positions: per request, where its next token is to stand.
        ahead: how many tokens from there on.
        vocab: size of the target's vocabulary.
    """

    def __init__(
        self, params: Sequence[SamplingParams], positions: Sequence[int], ahead: int, vocab: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.params = params
        every = torch.arange(vocab, device=device)
        self.waits = {
            request: waits(own.seed, range(position, position + ahead), every)
            for request, (own, position) in enumerate(zip(params, positions, strict=True))
            if own.temperature > 0
        }

    def choose(self, logits: Tensor, ahead: Sequence[Sequence[int]]) -> Tensor:
        """The target's token of every row.

        Args:
            logits: [requests, rows, vocabulary].
            ahead: per request and row, how many tokens it stands behind the next one.
        """
        tokens = logits.argmax(-1)
        for request, late in self.waits.items():
            law = distribution(logits[request], self.params[request])
            tokens[request] = (law / late[list(ahead[request])]).argmax(-1)
        return tokens

    def guess(self, scores: Tensor, ahead: int, tokens: Tensor) -> Tensor:
        """A draft's scores after the race: the best is what it thinks the target will draw.

        Top-k and top-p are left to the target: what they cut off seldom wins.

        Args:
            scores: [requests, draft vocabulary], or [requests, branches, draft vocabulary].
            ahead: how many tokens the guessed one stands behind the next one.
            tokens: the draft vocabulary's ids in the target's.
        """
        if not self.waits:
            return scores
        after = scores.clone()
        for request, late in self.waits.items():
            warm = scores[request].double() / self.params[request].temperature
            after[request] = (warm - late[ahead, tokens].log()).float()
        return after
