"""``make bench-server``: acceptance and speed of the bundled pair, as ratios.

Everything is CPU time of one process and one thread, rounds alternate between the things compared,
and each ratio is given as the median of its rounds with the smallest and the largest. Prompts are
held out from training. Exits with 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from eagle3.engine import Engine, Sequence
from eagle3.sampling_params import SamplingParams
from eagle3.weights import paths
from tests.unit.eagle3 import support

CHAIN = (3, 1, 4)
SHAPES = [(1, 1, 2), (2, 1, 3), CHAIN, (5, 1, 6), (3, 4, 8), (5, 4, 8)]


@dataclass(frozen=True)
class Bound:
    """A ratio that must be reached."""

    name: str
    least: float


def until_end(
    engine: Engine,
    prompts: list[list[int]],
    count: int,
    *,
    temperature: float = 0.0,
    together: int = 1,
) -> list[Sequence]:
    """Answers of at most ``count`` tokens that stop where the model ends them."""
    waiting = [
        Sequence(list(prompt), SamplingParams(temperature=temperature, seed=number))
        for number, prompt in enumerate(prompts)
    ]
    everything, stops = list(waiting), engine.target_config.stop_ids
    while waiting or engine.running:
        while waiting and len(engine.running) < together:
            engine.admit(waiting.pop(0))
        engine.step()
        for sequence in list(engine.running):
            answer = sequence.tokens[sequence.prompt_length :]
            ends = [at for at, token in enumerate(answer) if token in stops]
            if ends or len(answer) >= count:
                keep = min([*(at + 1 for at in ends), count])
                del sequence.tokens[sequence.prompt_length + keep :]
                engine.release(sequence)
    return everything


def made(sequences: list[Sequence]) -> int:
    """Tokens answered."""
    return sum(len(s.tokens) - s.prompt_length for s in sequences)


def repeated_4grams(sequences: list[Sequence]) -> float:
    """Share of 4-grams of an answer that occurred in it before: loops make acceptance easy."""
    seen = repeats = 0
    for s in sequences:
        answer = s.tokens[s.prompt_length :]
        grams = Counter(tuple(answer[i : i + 4]) for i in range(len(answer) - 3))
        seen += sum(grams.values())
        repeats += sum(grams.values()) - len(grams)
    return repeats / max(1, seen)


def acceptance(domain: str, prompts: list[list[int]], count: int) -> float:
    """Print accept lengths over the shapes, greedy and sampled; that of 3/1/4, greedy."""
    wanted = 0.0
    for shape in SHAPES:
        cells = []
        for temperature in (0.0, 0.7):
            done = until_end(support.engine(*shape), prompts, count, temperature=temperature)
            steps = sum(s.verify_steps for s in done)
            length = 1 + sum(s.accepted for s in done) / max(1, steps)
            cells.append(f"{length:.2f} (repeated 4-grams {repeated_4grams(done):.0%})")
            if shape == CHAIN and temperature == 0:
                wanted = length
        name = "/".join(map(str, shape))
        print(f"  accept length {domain} {name}: greedy {cells[0]}, T=0.7 {cells[1]}", flush=True)
    return wanted


def seconds(work: Callable[[], int]) -> float:
    """CPU seconds per token of ``work``, which returns how many tokens it made."""
    began = time.process_time()
    tokens = work()
    return (time.process_time() - began) / tokens


def ratio(name: str, slow: Callable[[], int], fast: Callable[[], int], rounds: int) -> float:
    """The speed of ``fast`` over that of ``slow``: the median, printed and returned."""
    slow(), fast()  # warm caches
    ratios = []
    for number in range(rounds):
        # Who goes first alternates too, so that a slow spell of the machine favours neither.
        if number % 2:
            quick = seconds(fast)
            ratios.append(seconds(slow) / quick)
        else:
            late = seconds(slow)
            ratios.append(late / seconds(fast))
    middle = statistics.median(ratios)
    span = f"{min(ratios):.2f} to {max(ratios):.2f}, {rounds} rounds"
    print(f"  {name}: {middle:.2f}x ({span})", flush=True)
    return middle


def transformers_run(prompts: list[list[int]], count: int) -> Callable[[], int]:
    """Hugging Face's greedy ``generate`` over the same weights."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(paths().target, dtype=torch.float32).eval()

    def run() -> int:
        total = 0
        for prompt in prompts:
            out = model.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=1,
                eos_token_id=None,
            )  # fmt: skip
            total += out.shape[1] - len(prompt)
        return total

    return run


def speed(prompts: list[list[int]], count: int, rounds: int) -> list[tuple[Bound, float]]:
    """All ratios of the benchmark with their bounds."""
    plain, chain = support.engine(), support.engine(*CHAIN)

    def run(engine: Engine, together: int = 1) -> Callable[[], int]:
        return lambda: made(until_end(engine, prompts, count, together=together))

    fixed = [list(prompt) for prompt in prompts[: len(prompts) // 2]]
    theirs = transformers_run(fixed, count)

    def ours() -> int:  # as many tokens as generate() makes, whatever the model would end
        return made(support.answer(plain, fixed, count))

    measured = [
        (Bound("speculative 3/1/4 over own autoregressive, batch 1", 1.3), run(plain), run(chain)),
        (Bound("own autoregressive over transformers generate()", 1.3), theirs, ours),
        (Bound("8 at once over one, both autoregressive", 3.0), run(plain), run(plain, 8)),
        (
            Bound("speculative 3/1/4 over autoregressive, 8 at once", 0.0),
            run(plain, 8),
            run(chain, 8),
        ),
    ]
    return [(bound, ratio(bound.name, slow, fast, rounds)) for bound, slow, fast in measured]


def main() -> int:
    """Measure and print; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.server", description=__doc__)
    parser.add_argument("--prompts", type=int, default=16, help="per domain")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # deprecations inside transformers
    chat, code = support.chat_prompts(args.prompts), support.code_prompts(args.prompts)
    results = [
        (Bound("accept length 3/1/4, chat", 2.1), acceptance("chat", chat, args.tokens)),
        (Bound("accept length 3/1/4, code", 2.0), acceptance("code", code, args.tokens)),
    ]
    half = args.prompts // 2
    mixed = [prompt for pair in zip(chat[:half], code[:half], strict=True) for prompt in pair]
    results += speed(mixed, args.tokens, args.rounds)
    missed = [bound for bound, value in results if value < bound.least]
    for bound in missed:
        print(f"missed: {bound.name} below {bound.least}")
    print("server benchmark:", "missed" if missed else "all bounds reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
