"""Rules over the speculative flags: how they go together in each version."""

from __future__ import annotations

from collections.abc import Iterator

from console.model import Change, Finding
from console.preflight.context import (
    EAGLE_FAMILY,
    SPECULATIVE,
    Context,
    truthy,
)
from console.preflight.models import architecture

STEPS, TOPK, TOKENS = SPECULATIVE
FLAGS = tuple("--" + key for key in SPECULATIVE)

_KNOWN = {
    **dict.fromkeys(("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"), "0.5.3"),
    "DFLASH": "0.5.11",
    "FROZEN_KV_MTP": "0.5.12",
    "DSPARK": "0.5.16",
    "UNO": "0.5.20",
}
"""Algorithm to the first version that has it."""
_SHORT_DEFAULT = "0.5.8"
"""From here on (3, 1, 4) is chosen for every class that is not named; (5, 4, 8) before."""

# Backends that force a page size when none that they support is given.
_FORCED_PAGE = {"flashmla": 64, "cutlass_mla": 128, "trtllm_mla": 64, "trtllm_mha": 64}
_TREE_BACKENDS = {"flashinfer": "0.5.3", "fa3": "0.5.6", "triton": "0.5.13"}
"""Backends that take a tree over pages, to the first version in which they do."""


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the speculative flags."""
    if not ctx.sglang:
        return
    if "speculative-algorithm" not in ctx.settings:
        yield from without_algorithm(ctx)
        return
    if ctx.algorithm is None:
        return
    yield from known_algorithm(ctx)
    yield from common(ctx)
    if ctx.algorithm in EAGLE_FAMILY:
        yield from all_or_none(ctx)
        if not ctx.bundled:
            yield from tree(ctx)


def without_algorithm(ctx: Context) -> Iterator[Finding]:
    """Speculative flags without an algorithm are read and have no effect."""
    keys = [*SPECULATIVE, "speculative-draft-model-path"]
    given = [f"--{key}" for key in keys if key in ctx.settings]
    refused = any("--speculative-algorithm" in f.flags for f in ctx.settings.findings)
    if given and not refused:
        yield ctx.warning(
            "spec-algorithm-missing",
            f"{', '.join(given)} without --speculative-algorithm: nothing is speculated",
            "add --speculative-algorithm EAGLE3, or remove them",
            *given,
            "--speculative-algorithm",
            change=Change(flags={"speculative-algorithm": "EAGLE3"}),
        )


def known_algorithm(ctx: Context) -> Iterator[Finding]:
    """Where the parser itself takes any name."""
    name = ctx.algorithm or ""
    known = [word for word, first in _KNOWN.items() if ctx.since(first)]
    checked = "speculative-algorithm" in ctx.settings and not choices(ctx)
    if checked and name not in known:
        yield ctx.error(
            "spec-algorithm",
            f"--speculative-algorithm {name[:40]} is unknown; {ctx.table.version} has "
            f"{', '.join(known)}",
            "use EAGLE3 for an EAGLE-3 draft",
            "--speculative-algorithm",
        )


def is_adaptive(ctx: Context) -> bool:
    """Whether the engine finds steps and tokens itself while it runs."""
    return ctx.since("0.5.13") and ctx.settings.on("speculative-adaptive")


def choices(ctx: Context) -> bool:
    """Whether the version's parser lists the algorithms itself."""
    option = ctx.table.options.get("--speculative-algorithm")
    return option is not None and bool(option.choices)


def all_or_none(ctx: Context) -> Iterator[Finding]:
    """steps, topk and draft tokens are given together or not at all."""
    settings = ctx.settings
    given = [key for key in SPECULATIVE if key in settings]
    adaptive = is_adaptive(ctx)
    if not given:
        yield from automatic(ctx)
        return
    missing = [f"--{key}" for key in SPECULATIVE if key not in settings]
    if STEPS not in settings and not adaptive:
        yield ctx.error(
            "spec-partial",
            f"--{' and --'.join(given)} without --{STEPS}: the start ends in an AssertionError "
            "without a word",
            f"add --{STEPS} (3 for a chain of 4 draft tokens), or remove {' and '.join(given)}",
            *FLAGS,
            change=Change(flags={STEPS: 3, TOPK: 1, TOKENS: 4}, why="a chain of 3 steps"),
        )
    elif TOPK not in settings and not adaptive:
        yield ctx.error(
            "spec-partial",
            f"--{STEPS} {_shown(ctx, STEPS)} without --{TOPK}: the start ends in "
            "TypeError ('>' between NoneType and int)",
            f"add --{TOPK} 1",
            *FLAGS,
            at="spec-partial-topk",
            change=Change(flags={TOPK: 1}, why="one candidate a step is a chain"),
        )
    elif missing and (settings.integer(TOPK) or 1) > 1:
        topk = settings.integer(TOPK) or 0
        yield ctx.error(
            "spec-tree-draft-tokens",
            f"--{TOPK} {topk} without --{TOKENS}: the flags pass, the draft worker fails on None "
            "after the target has loaded",
            f"add --{TOKENS} 8",
            *FLAGS,
            change=Change(flags={TOKENS: 8}),
        )
    yield from ranges(ctx)
    yield from chain_tokens(ctx)


def ranges(ctx: Context) -> Iterator[Finding]:
    """Numbers that no draft can be made with, and trees larger than their candidates."""
    for key in SPECULATIVE:
        value = ctx.settings.integer(key)
        if value is not None and value < 1:
            yield ctx.error(
                "spec-range",
                f"--{key} {value} is below 1",
                "use 3 steps, topk 1, 4 draft tokens",
                f"--{key}",
                change=Change(flags={STEPS: 3, TOPK: 1, TOKENS: 4}),
            )
    steps, topk, tokens = (ctx.settings.integer(key) for key in SPECULATIVE)
    if steps and topk and tokens and steps > 0 and topk > 1:
        candidates = topk + (steps - 1) * topk * topk + 1
        if tokens > candidates:
            yield ctx.error(
                "spec-tree-size",
                f"--{TOKENS} {tokens} is more than the {candidates} nodes that {steps} steps with "
                f"topk {topk} make",
                f"use at most {candidates}",
                *FLAGS,
                change=Change(flags={TOKENS: candidates}),
            )


def chain_tokens(ctx: Context) -> Iterator[Finding]:
    """With topk 1 the number of draft tokens is always steps + 1."""
    steps, topk, tokens = (ctx.settings.integer(key) for key in SPECULATIVE)
    if steps is None or topk != 1 or tokens == steps + 1 or ctx.settings.unknown(TOKENS):
        return
    was = f"--{TOKENS} {tokens}" if tokens is not None else f"--{TOKENS} (not given)"
    yield ctx.warning(
        "spec-draft-tokens",
        f"{was} becomes {steps + 1}: with --{TOPK} 1 it is always --{STEPS} + 1",
        f"write --{TOKENS} {steps + 1}, or raise the steps to {max(1, (tokens or 2) - 1)}",
        *FLAGS,
        change=Change(flags={TOKENS: steps + 1}),
    )


def automatic(ctx: Context) -> Iterator[Finding]:
    """What the engine picks where none of the three is given."""
    if ctx.target is None or is_adaptive(ctx):
        return
    steps, topk, tokens = auto_choice(ctx)
    message = f"steps {steps}, topk {topk}, draft tokens {tokens} are chosen: none of them is given"

    change = Change(flags={STEPS: steps, TOPK: topk, TOKENS: tokens})
    if ctx.source("spec-overlap") and topk > 1 and not ctx.bundled:
        yield ctx.warning(
            "spec-auto",
            f"{message}; this version picks topk {topk} after its check of the overlap scheduler, "
            "which stays on although it supports topk 1 only",
            "set the three flags",
            *FLAGS,
            change=change,
        )
    else:
        yield ctx.info("spec-auto", message, "set them to be sure", *FLAGS, change=change)


def auto_choice(ctx: Context) -> tuple[int, int, int]:
    """Steps, topk and draft tokens that the engine chooses for this target."""
    arch = architecture(ctx.target) or ""
    if ctx.algorithm == "STANDALONE":
        return 3, 1, 4
    if arch == "LlamaForCausalLM" or arch.startswith("Grok1"):
        return 5, 4, 8
    short = ("DeepseekV3", "DeepseekV2", "DeepseekV32", "GptOss", "Bailing")
    if not ctx.since(_SHORT_DEFAULT) and not arch.startswith(short):
        return 5, 4, 8
    return 3, 1, 4


def effective_topk(ctx: Context) -> int | None:
    """The topk that will be used, the automatic one included; None where it cannot be told."""
    if TOPK in ctx.settings:
        return ctx.settings.integer(TOPK)
    if any(key in ctx.settings for key in SPECULATIVE) or ctx.target is None:
        return None
    return auto_choice(ctx)[1]


def tree(ctx: Context) -> Iterator[Finding]:
    """S9, S10: what a tree (topk above 1) does not go with."""
    topk = effective_topk(ctx)
    if topk is None or topk <= 1:
        return
    yield from tree_overlap(ctx, topk)
    names = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
    chosen = {ctx.settings.text(name) for name in names}
    if "trtllm_mha" in chosen:
        yield ctx.error(
            "spec-topk-trtllm",
            f"the attention backend trtllm_mha supports topk 1 only, topk is {topk}",
            f"use --{TOPK} 1, or --attention-backend flashinfer",
            f"--{TOPK}",
            "--attention-backend",
            change=Change(flags={TOPK: 1}),
        )
        return
    yield from tree_pages(ctx, topk)


def tree_pages(ctx: Context, topk: int) -> Iterator[Finding]:
    """A tree over pages needs a backend that can express it."""
    backend = ctx.settings.text("attention-backend")
    forced = [
        (name, _FORCED_PAGE[name])
        for name in (backend, ctx.settings.text("decode-attention-backend"))
        if name in _FORCED_PAGE
    ]
    page = forced[-1][1] if forced else ctx.settings.integer("page-size", 1)
    able = [name for name, first in _TREE_BACKENDS.items() if ctx.since(first)]
    if page is None or page <= 1 or backend in able:
        return
    allowed = ", ".join(able)
    why = f" (forced by {forced[-1][0]})" if forced else ""
    flags = (f"--{TOPK}", "--page-size", "--attention-backend")

    message = f"topk {topk} with page size {page}{why} works with {allowed} only"
    if backend is None and "attention-backend" not in ctx.settings:
        yield ctx.warning(
            "spec-topk-page",
            f"{message}; no --attention-backend is given, so it depends on the GPU which one is "
            "taken",
            "add --attention-backend flashinfer, or --page-size 1",
            *flags,
            change=Change(flags={"attention-backend": "flashinfer"}),
        )
    elif backend is not None:
        yield ctx.error(
            "spec-topk-page",
            f"{message}, the attention backend is {backend}",
            f"use --attention-backend flashinfer, --page-size 1, or --{TOPK} 1",
            *flags,
            change=Change(flags={"attention-backend": "flashinfer"}),
        )


def tree_overlap(ctx: Context, topk: int) -> Iterator[Finding]:
    """The overlap scheduler and trees."""
    if ctx.source("spec-v2-topk") and truthy(ctx.command.env.get("SGLANG_ENABLE_SPEC_V2")):
        yield ctx.error(
            "spec-v2-topk",
            f"SGLANG_ENABLE_SPEC_V2 is set and supports topk 1 only, topk is {topk}",
            f"use --{TOPK} 1, or unset SGLANG_ENABLE_SPEC_V2",
            f"--{TOPK}",
            change=Change(env={"SGLANG_ENABLE_SPEC_V2": None}),
        )
    elif (
        ctx.source("spec-overlap")
        and TOPK in ctx.settings
        and not ctx.settings.on("disable-overlap-schedule")
    ):
        yield ctx.warning(
            "spec-overlap",
            f"topk {topk} turns the overlap scheduler off (as if --disable-overlap-schedule)",
            f"use --{TOPK} 1 where throughput counts",
            f"--{TOPK}",
        )


def common(ctx: Context) -> Iterator[Finding]:
    """S14, S15, S16, S22: what every algorithm overrides or refuses."""
    name = ctx.algorithm
    if "max-running-requests" not in ctx.settings and name in (*EAGLE_FAMILY, "NGRAM", "DFLASH"):
        yield ctx.warning(
            "spec-max-running",
            "--max-running-requests is not given and becomes 48 with speculative decoding: "
            "a 49th request waits",
            "set it to what the host can serve",
            "--max-running-requests",
            change=Change(flags={"max-running-requests": 48}, why="states what happens anyway"),
        )
    if ctx.settings.on("enable-mixed-chunk"):
        yield ctx.warning(
            "spec-mixed-chunk",
            f"--enable-mixed-chunk is switched off by --speculative-algorithm {name}",
            "remove it",
            "--enable-mixed-chunk",
            change=Change(flags={"enable-mixed-chunk": None}),
        )
    if ctx.attention_dp > 1 and name in ("STANDALONE", "NGRAM"):
        yield ctx.error(
            "spec-dp-attention",
            f"--speculative-algorithm {name} does not work with --enable-dp-attention",
            "use EAGLE3, or remove --enable-dp-attention",
            "--speculative-algorithm",
            "--enable-dp-attention",
        )


def _shown(ctx: Context, key: str) -> str:
    value = ctx.settings.integer(key)
    return str(value) if value is not None else ""
