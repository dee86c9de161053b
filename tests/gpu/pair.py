"""The shipped pair in real SGLang and in the bundled engine on CUDA: same text, accept length, speed."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.gpu import servers
from tests.gpu.lab import Lab, brief

PROMPTS = 52
TOKENS = 48
SHAPE = (3, 1, 4)
NEAR_TIE = 1e-3
"""Gap of the two best logits, float32, below which another order of additions may choose the other:
the kernels' reductions differ by some 1e-5 of logits around 10."""


NEAR_TIE_BF16 = 0.25
"""The same in bfloat16: four steps of a number around 10, which has eight bits."""


@dataclass
class Answers:
    """Tokens after each prompt, tokens per second one request at a time, accept length."""

    tokens: list[list[int]]
    rate: float
    accept: float | None


def run(lab: Lab) -> None:
    """All of the part: start both servers at once, compare, measure when nothing else runs."""
    plain: dict[str, Any] = {"speculative": "autoregressive"}
    cases = {"eagle": servers.sglang(), "plain": servers.sglang(**plain),
             "exact-eagle": servers.exact(), "exact-plain": servers.exact(**plain)}  # fmt: skip
    lab.configure(cases)
    for name in cases:
        servers.launch(lab, name, f"launch of {name}", check=name == "eagle")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: ready(lab, name), cases))
    found: dict[str, Answers] = {}
    lab.attempt("SGLang", lambda: from_sglang(lab, cases, found))
    lab.attempt("bundled", lambda: from_bundled(found))
    for name in cases:
        lab.specops("stop", name, "--yes", timeout=120)
    lab.attempt("compare", lambda: compare(lab, found))


def ready(lab: Lab, name: str) -> None:
    """Watch it until it is ready."""
    code, document, seconds = lab.specops("watch", name, "--timeout", "200", timeout=230)
    seen = brief(document, "outcome", "phase", "health", "phases", "detail")
    lab.check(f"watch of {name}, compile caches cold", f"specops watch {name}", "ready, exit 0",
              f"exit {code} after {seconds:.0f} s: {json.dumps(seen)}", code == 0)  # fmt: skip
    if log := servers.log_of(lab, name):
        lab.keep_log(str(log), f"pair-{name}")


def ask(port: int, path: str, body: dict[str, Any] | None = None) -> Any:
    """A request to a server: its JSON, or its text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data,
                                     {"Content-Type": "application/json"})  # fmt: skip
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return text if path == "/metrics" else json.loads(text)


def prompts() -> list[list[int]]:
    """Held-out questions and lines of code, half and half."""
    from tests.unit.eagle3 import support

    return support.chat_prompts(PROMPTS // 2) + support.code_prompts(PROMPTS // 2)


def from_sglang(lab: Lab, cases: dict[str, dict[str, Any]], found: dict[str, Answers]) -> None:
    """Greedy text of both servers, one request at a time, and the accept length they report."""
    asked = prompts()
    for name, entry in cases.items():
        lab.attempt(f"answers of {name}", lambda: answers_of(lab, name, entry, asked, found))  # noqa: B023
    row = servers.of(lab, "eagle") or {}
    lab.check("accept length in the console", "specops status", "what /metrics says, > 1",
              row, (row.get("accept_length") or 0) > 1)  # fmt: skip


def answers_of(
    lab: Lab, name: str, entry: dict[str, Any], asked: list[list[int]], found: dict[str, Answers]
) -> None:
    """One server's."""
    if True:

        def one(prompt: list[int], port: int = entry["port"]) -> dict[str, Any]:
            params = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
            reply: dict[str, Any] = ask(
                port, "/generate", {"input_ids": prompt, "sampling_params": params}
            )
            return reply

        one(asked[0])
        begun = time.perf_counter()
        replies = [one(prompt) for prompt in asked]
        rate = sum(r["meta_info"]["completion_tokens"] for r in replies) / (
            time.perf_counter() - begun
        )
        verified = sum(r["meta_info"].get("spec_verify_ct") or 0 for r in replies)
        made = sum(r["meta_info"]["completion_tokens"] for r in replies)
        lab.keep(f"reply-{name}", replies[0])
        tokens = [r.get("output_ids") or [] for r in replies]
        found[f"sglang {name}"] = Answers(tokens, rate, made / verified if verified else None)


def from_bundled(found: dict[str, Answers]) -> None:
    """The bundled engine on CUDA in float32, with and without speculation."""
    from eagle3.engine import Engine, EngineConfig
    from eagle3.speculative_args import SpeculativeParams
    from eagle3.weights import paths
    from tests.unit.eagle3 import support

    chain = SpeculativeParams(*SHAPE)
    shapes = [("exact-eagle", chain, "float32"), ("exact-plain", None, "float32"),
              ("eagle", chain, "bfloat16"), ("plain", None, "bfloat16")]  # fmt: skip
    for name, shape, dtype in shapes:
        draft = paths().draft if shape is not None else None
        config = EngineConfig(paths().target, draft, shape, slots=4, device="cuda", dtype=dtype)
        engine = Engine.load(config)
        support.answer(engine, prompts()[:2], TOKENS)
        begun = time.perf_counter()
        answers = support.answer(engine, prompts(), TOKENS)
        seconds = time.perf_counter() - begun
        steps = sum(a.verify_steps for a in answers)
        accepted = sum(a.accepted for a in answers)
        tokens = [a.tokens[a.prompt_length :] for a in answers]
        rate = sum(map(len, tokens)) / seconds
        found[f"bundled {name}"] = Answers(tokens, rate, 1 + accepted / steps if steps else None)


def compare(lab: Lab, found: dict[str, Answers]) -> None:
    """The rows: text against text, accept lengths, speed-up of each engine over its own plain mode."""
    gap = gaps()
    for name in ("bundled exact-eagle", "sglang exact-plain", "sglang exact-eagle",
                 "bundled eagle", "sglang plain", "sglang eagle"):  # fmt: skip
        exact = "exact" in name
        wanted = found["bundled exact-plain" if exact else "bundled plain"]
        if name not in found:
            continue
        same = 0
        ties: list[Any] = []
        wrong: list[Any] = []
        for prompt, a, b in zip(prompts(), wanted.tokens, found[name].tokens, strict=True):
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
            if at is None and len(b) >= TOKENS:
                same += 1
                continue
            at = min(len(a), len(b)) if at is None else at
            width = gap(prompt + a[:at])
            (ties if width < (NEAR_TIE if exact else NEAR_TIE_BF16) else wrong).append(
                f"token {at}: gap {width:.2g}"
            )
        seen = f"{same} of {PROMPTS} equal, {len(ties)} part at a near tie {ties}, others: {wrong}"
        lab.check(f"greedy text, {name}", f"{PROMPTS} prompts, {TOKENS} tokens, {'float32' if exact else 'bfloat16'}",
                  "the bundled engine's plain text on CUDA, or a near tie", seen, not wrong)  # fmt: skip
    lab.facts["accept_length"] = {name: a.accept for name, a in found.items() if a.accept}
    lab.facts["rates_tok_s"] = {name: round(a.rate, 1) for name, a in found.items()}
    kind = "exact-eagle" if "sglang exact-eagle" in found else "eagle"
    ours, theirs = found[f"bundled {kind}"].accept, found[f"sglang {kind}"].accept
    close = bool(ours and theirs and abs(ours - theirs) < 0.05 * ours)
    lab.check("accept length of both", f"steps/topk/draft tokens {SHAPE}", "within 5 %",
              f"bundled {ours}, SGLang {theirs}", close)  # fmt: skip
    rates = {name: round(a.rate, 1) for name, a in found.items()}
    for engine in ("bundled", "sglang"):
        gain = rates[f"{engine} eagle"] / rates[f"{engine} plain"]
        lab.check(f"speed-up of speculation, {engine} on CUDA", "one request at a time, bfloat16",
                  "> 1", f"{gain:.2f} ({rates[f'{engine} eagle']} against "
                  f"{rates[f'{engine} plain']} tokens/s)", gain > 1)  # fmt: skip
    lab.facts["rates_tok_s"] = rates


def gaps() -> Callable[[list[int]], float]:
    """The gap of the two best logits after some tokens, float32, by transformers' own Llama."""
    import torch
    from transformers import AutoModelForCausalLM

    from eagle3.weights import paths

    model = AutoModelForCausalLM.from_pretrained(paths().target, dtype=torch.float32).eval()

    def gap(tokens: list[int]) -> float:
        with torch.inference_mode():
            best = model(torch.tensor([tokens])).logits[0, -1].topk(2).values
        return float(best[0] - best[1])

    return gap
