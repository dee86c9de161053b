"""SGLang 0.5.12's rules for the speculative flags."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from typing import Any

from eagle3.config import ModelConfig


@dataclass(frozen=True)
class SpeculativeParams:
    """SGLang's three numbers.

    Attributes:
        steps: tokens drafted one after another.
        topk: candidates kept at each step; 1 drafts a chain, more a tree.
        draft_tokens: tokens the target checks in one pass, the root included.
    """

    steps: int
    topk: int
    draft_tokens: int


LLAMA_DEFAULT = SpeculativeParams(5, 4, 8)
"""What SGLang chooses for a Llama when none of the three is given."""


def _numbers(args: argparse.Namespace) -> SpeculativeParams:
    steps, topk = args.speculative_num_steps, args.speculative_eagle_topk
    tokens = args.speculative_num_draft_tokens
    if steps is None:
        # A bare assertion in SGLang too; here it says why.
        given = [name for name, value in (("topk", topk), ("draft tokens", tokens)) if value]
        assert not given, (
            f"--speculative-num-steps is missing beside {' and '.join(given)}: "
            "give steps, topk and draft tokens together, or none"
        )
        return LLAMA_DEFAULT
    if topk is None:
        raise TypeError(
            "'>' not supported between instances of 'NoneType' and 'int': --speculative-eagle-topk "
            "is missing; give steps, topk and draft tokens together, or none"
        )
    if topk == 1 and tokens != steps + 1:
        warnings.warn(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1", stacklevel=4,
        )  # fmt: skip
        tokens = steps + 1
    if tokens is None:
        raise ValueError(
            "--speculative-num-draft-tokens is missing: a tree (topk > 1) needs it. SGLang passes "
            "this and fails after loading"
        )
    return SpeculativeParams(steps, topk, tokens)


def _check(params: SpeculativeParams) -> None:
    if min(params.steps, params.topk) < 1 or params.draft_tokens < 2:
        raise ValueError("speculative steps and topk must be at least 1, draft tokens at least 2")
    candidates = params.topk + (params.steps - 1) * params.topk**2
    if params.draft_tokens - 1 > candidates:
        raise ValueError(
            f"--speculative-num-draft-tokens {params.draft_tokens}: {params.steps} steps of topk "
            f"{params.topk} propose only {candidates} tokens, plus the root"
        )


def resolve_speculative(args: argparse.Namespace, target: ModelConfig) -> dict[str, Any]:
    """The speculative fields of the server arguments.

    Raises:
        AssertionError, TypeError: some of the three numbers are given and others not, as in SGLang.
        ValueError: a combination that cannot be served.
    """
    algorithm = args.speculative_algorithm
    if algorithm is None:
        return {"speculative_algorithm": None}
    if algorithm not in ("EAGLE3", "EAGLE"):
        raise ValueError(
            f"--speculative-algorithm {algorithm}: the bundled engine computes EAGLE3 only"
        )
    params = _numbers(args)
    if args.speculative_draft_model_path is None:
        raise ValueError(
            f"--speculative-draft-model-path is missing; {target.architecture} has no own draft"
        )
    _check(params)
    if args.enable_mixed_chunk:
        warnings.warn(
            "Mixed chunked prefill is disabled because of using eagle speculative decoding.",
            stacklevel=3,
        )
    return {
        "speculative_num_steps": params.steps,
        "speculative_eagle_topk": params.topk,
        "speculative_num_draft_tokens": params.draft_tokens,
    }
