"""How a request chooses its tokens and when it ends; plain data, without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SamplingParams:
    """How a request chooses its tokens and when it ends.

    Attributes:
        temperature: 0 is greedy.
        top_p: smallest set of tokens that holds this much probability.
        top_k: at most this many tokens; -1 is all.
        seed: of the request.
        max_tokens: longest answer.
        stop: texts that end the answer; they are cut off.
        stop_ids: further tokens that end the answer.
        ignore_eos: do not end at the model's own end tokens.
        logprobs: report the chosen tokens' log-probabilities.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int = 0
    max_tokens: int = 128
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = field(default_factory=frozenset)
    ignore_eos: bool = False
    logprobs: bool = False
