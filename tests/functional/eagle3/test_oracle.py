"""The engine against Hugging Face's implementation of the same weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from eagle3.engine import Sequence
from eagle3.weights import paths
from tests import scale
from tests.unit.eagle3 import support

TOKENS = 32


@pytest.fixture(scope="module")
def oracle() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own deprecations are not this project's
        from transformers import LlamaForCausalLM

        yield LlamaForCausalLM.from_pretrained(paths().target, dtype=torch.float32).eval()


def prompts() -> list[list[int]]:
    count = max(4, scale.count(40))
    return support.chat_prompts(count) + support.code_prompts(count)


def test_scores_and_captured_states_agree(oracle: Any) -> None:
    engine = support.engine(3)
    with torch.inference_mode():
        for prompt in prompts():
            ids = torch.tensor([prompt])
            span = engine._prompt_span(0, 0, len(prompt), engine.cache)
            hidden, aux = engine.target.forward(ids, span, engine.cache)
            theirs = oracle(ids, output_hidden_states=True)
            assert torch.allclose(engine.target.logits(hidden), theirs.logits[0], atol=2e-3)
            # State i+1 is the output of layer i; the draft reads layers 1, 7 and 12.
            states = torch.cat([theirs.hidden_states[i][0] for i in (2, 8, 13)], -1)
            assert aux is not None
            assert torch.allclose(aux, states, atol=2e-3)


def test_greedy_text_is_that_of_generate(oracle: Any) -> None:
    some = prompts()
    ours = support.answer(support.engine(), some, TOKENS)
    theirs = []
    for prompt, mine in zip(some, ours, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = oracle.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=TOKENS, do_sample=False, pad_token_id=1, eos_token_id=None,
            )  # fmt: skip
        theirs.append(Sequence(out[0].tolist(), mine.params, mine.prompt_length))
    wrong, _ = support.differences(theirs, ours)
    assert not wrong
