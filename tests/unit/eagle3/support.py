"""Engines over the shipped pair, and plain ways to run prompts through them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from tokenizers import Tokenizer

from eagle3.engine import Engine, EngineConfig, Sequence
from eagle3.sampling import distribution, waits
from eagle3.sampling_params import SamplingParams
from eagle3.speculative_args import SpeculativeParams
from eagle3.train import chat, corpus
from eagle3.weights import paths

NEAR_TIE = 1e-4
"""A top-2 gap below which another order of additions may choose the other token."""


@functools.cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(paths().target / "tokenizer.json"))


@functools.cache
def engine(steps: int = 0, topk: int = 1, draft_tokens: int = 0) -> Engine:
    """An engine; without steps an autoregressive one."""
    torch.set_num_threads(1)
    shipped = paths()
    if not steps:
        return Engine.load(EngineConfig(shipped.target, slots=8))
    params = SpeculativeParams(steps, topk, draft_tokens or steps + 1)
    return Engine.load(EngineConfig(shipped.target, shipped.draft, params, slots=8))


def chat_prompts(count: int) -> list[list[int]]:
    """Held-out questions."""
    return [tokenizer().encode(text).ids for text in chat.questions(99, count)]


def code_prompts(count: int) -> list[list[int]]:
    """The 48 tokens from the line in the middle of held-out modules of the standard library."""
    files = [path for path in corpus.held_out_files() if path.stat().st_size > 4000]
    found = []
    for number in range(count):
        text = files[number * len(files) // count].read_text("utf-8")
        begin = text.index("\n", len(text) // 2) + 1
        found.append(tokenizer().encode(text[begin : begin + 400]).ids[:48])
    return found


def greedy(number: int) -> SamplingParams:
    """The parameters of request ``number``."""
    del number
    return SamplingParams()


def answer(
    engine: Engine,
    prompts: Seq[list[int]],
    count: int,
    params: Callable[[int], SamplingParams] = greedy,
    *,
    together: int = 1,
) -> list[Sequence]:
    """``count`` tokens after every prompt, up to ``together`` requests at once."""
    waiting = [Sequence(list(prompt), params(i)) for i, prompt in enumerate(prompts)]
    everything = list(waiting)
    while waiting or engine.running:
        while waiting and len(engine.running) < together:
            engine.admit(waiting.pop(0))
        engine.step()
        for sequence in list(engine.running):
            if len(sequence.tokens) >= sequence.prompt_length + count:
                engine.release(sequence)
    for sequence in everything:
        del sequence.tokens[sequence.prompt_length + count :]
    return everything


def scores_after(tokens: list[int]) -> torch.Tensor:
    """The target's scores, [1, vocabulary], by plain decoding."""
    plain = engine()
    with torch.inference_mode():
        span = plain._prompt_span(plain.config.slots - 1, 0, len(tokens), plain.cache)
        hidden, _ = plain.target.forward(torch.tensor([tokens]), span, plain.cache)
        return plain.target.logits(hidden[-1:])


def near_tie(tokens: list[int], params: SamplingParams) -> bool:
    """Whether rounding alone may decide which token follows ``tokens``."""
    scores = scores_after(tokens)
    if params.temperature > 0:  # the times of the two that come in first, as scores
        law = distribution(scores, params)
        late = waits(params.seed, [len(tokens)], torch.arange(law.shape[1]))
        scores = (law / late).log() * params.temperature
    best = scores[0].topk(2).values
    return float(best[0] - best[1]) < NEAR_TIE


def differences(wanted: list[Sequence], got: list[Sequence]) -> tuple[list[str], int]:
    """Requests whose texts differ other than at a near tie, and how many differ at one."""
    wrong, ties = [], 0
    for a, b in zip(wanted, got, strict=True):
        if a.tokens == b.tokens:
            continue
        at = next(i for i, (x, y) in enumerate(zip(a.tokens, b.tokens, strict=True)) if x != y)
        if near_tie(a.tokens[:at], a.params):
            ties += 1
        else:
            wrong.append(f"token {at - a.prompt_length}: {a.tokens[at]} != {b.tokens[at]}")
    print(f"near ties: {ties} of {len(wanted)} requests")
    return wrong, ties
