"""Train the shipped pair: ``python -m eagle3.train OUT [--target-seconds S] [--draft-seconds S]``.

Writes ``OUT/target``, ``OUT/draft`` and ``OUT/training.json``. Uses a GPU where there is one; on a
CPU give it an hour or two. ``--steps 20`` is a smoke run.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the customary name

from eagle3.train import corpus
from eagle3.train.nets import Draft, Shape, Target
from eagle3.train.save import save_draft, save_target

SHARES = [0.5, 0.44, 0.06]
"""Of conversations, source code and prose."""
DECAY = 0.8
"""Weight of each further pass of the draft, as EAGLE-3 trains."""


class Schedule:
    """Linear warm-up, then a cosine to zero, over a number of steps or of seconds."""

    def __init__(self, peak: float, seconds: float, steps: int | None, warmup: int = 400) -> None:
        self.peak, self.seconds, self.steps, self.warmup = peak, seconds, steps, warmup
        self.step, self.begin = 0, time.monotonic()

    @property
    def done(self) -> float:
        """The share of the training that is over, 0 to 1."""
        if self.steps is not None:
            return self.step / self.steps
        return (time.monotonic() - self.begin) / self.seconds

    def rate(self) -> float:
        """The learning rate of the next step."""
        self.step += 1
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, self.done)))
        return self.peak * min(1.0, self.step / self.warmup) * cosine


def fit(
    module: torch.nn.Module,
    loss_of: Callable[[], Tensor],
    schedule: Schedule,
    *,
    decay: float,
    clip: float,
    name: str,
) -> None:
    """Minimise ``loss_of()`` over the module's trainable parameters until the schedule is over."""
    matrices = [p for p in module.parameters() if p.requires_grad and p.dim() == 2]
    vectors = [p for p in module.parameters() if p.requires_grad and p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    device = matrices[0].device.type
    optimiser = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=device == "cuda")
    while schedule.done < 1.0:
        rate = schedule.rate()
        for group in optimiser.param_groups:
            group["lr"] = rate
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimiser.step()
        if schedule.step % 250 == 1:
            passed = time.monotonic() - schedule.begin
            print(f"{name} step {schedule.step} {passed:.0f} s loss {loss.item():.4f}", flush=True)


def target_loss(target: Target, ids: Tensor) -> Tensor:
    """Mean next-token cross-entropy, nats."""
    logits, _, _ = target(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


def draft_passes(
    target: Target, draft: Draft, ids: Tensor, hot: Tensor, passes: int
) -> list[tuple[Tensor, Tensor]]:
    """Per pass: soft cross-entropy over the draft's vocabulary, and agreement with the target."""
    with torch.no_grad():
        logits, aux, _ = target(ids)
        embedded = target.model.embed_tokens(ids[:, 1:])
    guesses = draft.unroll(embedded, aux[:, :-1], passes)
    position = torch.full((logits.shape[-1],), -1, device=ids.device)
    position[hot] = torch.arange(len(hot), device=ids.device)
    results = []
    for k, guess in enumerate(guesses):
        valid = guess.shape[1] - k
        truth = logits[:, 1 + k :].float()
        best = position[truth.argmax(-1)]
        inside = (best >= 0).float()
        wanted = truth[..., hot].softmax(-1)
        entropy = -(wanted * guess[:, :valid].float().log_softmax(-1)).sum(-1)
        agree = (guess[:, :valid].argmax(-1) == best).float()
        results.append(((entropy * inside).sum() / inside.sum().clamp(min=1), agree.mean()))
    return results


def written_by_target(
    target: Target, mix: corpus.Mix, batches: int, rows: int, length: int, device: str
) -> Tensor:
    """Text of the target itself, half greedy, half sampled: what a served draft meets."""
    made = []
    for _ in range(batches):
        prompts = torch.from_numpy(mix.batch(rows, 48)).to(device)
        temperature = torch.rand(rows, device=device)
        temperature[: rows // 2] = 0.0
        with torch.autocast(device, torch.bfloat16):
            made.append(target.continue_(prompts, length - 48, temperature))
    return torch.cat(made)


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Run the whole recipe; returns what happened."""
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    shape, report = Shape(), {"device": device, "seed": args.seed}
    data = corpus.load(args.corpus, shape.vocab)
    tokenizer, streams = data.tokenizer, [data.chat, data.code, data.prose]
    report["tokens"] = [len(stream.ids) for stream in streams]
    print("tokens of chat, code, prose:", report["tokens"], flush=True)
    mix = corpus.Mix(streams, SHARES, args.seed)

    def batch(rows: int, length: int) -> Tensor:
        return torch.from_numpy(mix.batch(rows, length)).to(device, non_blocking=True)

    target = Target(shape).to(device)
    schedule = Schedule(args.target_rate, args.target_seconds, args.steps)
    fit(target, lambda: target_loss(target, batch(args.rows, args.length + 1)), schedule,
        decay=0.1, clip=1.0, name="target")  # fmt: skip
    report["target_steps"] = schedule.step
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        ids = torch.from_numpy(data.held_out_code.windows(mix.rng, args.rows, args.length + 1)).to(
            device
        )
        report["held_out_code_loss"] = target_loss(target, ids).item()
    save_target(Path(args.out) / "target", target, tokenizer)
    print(json.dumps(report), flush=True)

    target.requires_grad_(False)
    counts = torch.bincount(torch.from_numpy(mix.batch(4096, 512)).flatten(), minlength=shape.vocab)
    hot = counts.topk(shape.draft_vocab).indices.sort().values.to(device)
    own = written_by_target(target, mix, args.own_batches, args.own_rows, args.draft_length, device)
    draft = Draft(shape, target, hot.cpu()).to(device)

    def draft_loss() -> Tensor:
        rows = args.draft_rows
        picked = own[torch.randint(len(own), (rows // 2,), device=device)]
        ids = torch.cat((batch(rows - rows // 2, args.draft_length), picked))
        losses = [loss for loss, _ in draft_passes(target, draft, ids, hot, args.passes)]
        return torch.stack([DECAY**k * loss for k, loss in enumerate(losses)]).sum()

    schedule = Schedule(args.draft_rate, args.draft_seconds, args.steps)
    fit(draft, draft_loss, schedule, decay=0.0, clip=0.5, name="draft")
    report["draft_steps"] = schedule.step
    save_draft(Path(args.out) / "draft", draft, hot.cpu())
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        for name, ids in (("own", own[:32]), ("mix", batch(32, args.draft_length))):
            results = draft_passes(target, draft, ids, hot, args.passes)
            report[f"agreement_{name}"] = [round(float(agree), 4) for _, agree in results]
    (Path(args.out) / "training.json").write_text(json.dumps(report, indent=1) + "\n")
    return report


def main() -> None:
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(prog="python -m eagle3.train", description=__doc__)
    parser.add_argument("out", help="folder to write")
    parser.add_argument(
        "--steps", type=int, help="train by steps instead of seconds (20: smoke run)"
    )
    parser.add_argument("--corpus", type=Path, help="keep the tokenised corpus in this .npz file")
    parser.add_argument("--target-seconds", type=float, default=270)
    parser.add_argument("--draft-seconds", type=float, default=170)
    parser.add_argument("--target-rate", type=float, default=3e-3)
    parser.add_argument("--draft-rate", type=float, default=2e-3)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--draft-rows", type=int, default=24)
    parser.add_argument("--draft-length", type=int, default=512)
    parser.add_argument("--own-batches", type=int, default=8)
    parser.add_argument("--own-rows", type=int, default=512)
    parser.add_argument("--passes", type=int, default=5, help="unrolled passes of the draft")
    parser.add_argument("--seed", type=int, default=20)
    print(json.dumps(train(parser.parse_args())))


if __name__ == "__main__":
    main()
