"""Rules over the flags alone: what the engine's check refuses, and what it overlooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from console.model import Change, Finding
from console.preflight.context import Context
from console.preflight.settings import Settings, not_json


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the flags alone."""
    yield from ctx.settings.findings
    yield from version_note(ctx)
    if ctx.sglang and not ctx.bundled:
        yield from conflicts(ctx)
        yield from chunked_prefill(ctx)
        yield from memory_fraction(ctx)
        yield from json_flags(ctx)
    if ctx.sglang:
        yield from served_name(ctx)
        yield from speculative_lora(ctx)
    yield from unresolved(ctx)


def version_note(ctx: Context) -> Iterator[Finding]:
    """Says so where the version is not one whose behaviour is known exactly."""
    if ctx.command.engine == "vllm":
        yield ctx.info(
            "engine-vllm",
            "vLLM's own flags are not known here; files, memory, ports and variables are checked",
            "have vLLM check its flags itself",
        )
    elif ctx.tables.note:
        yield ctx.info(
            "version-unknown",
            f"SGLang: {ctx.tables.note}",
            "name the version (--sglang VERSION), or run the check on the host",
        )


def unresolved(ctx: Context) -> Iterator[Finding]:
    """Variables in the line whose values the text does not give."""
    if ctx.command.unresolved:
        names = ", ".join(ctx.command.unresolved[:6])
        yield ctx.info(
            "variable-unresolved",
            f"the value of {names} is not in the text; what depends on it was not checked",
            "paste the lines that set it as well",
        )
    if any(word.startswith("--config=") for word in ctx.command.args) and ctx.sglang:
        yield ctx.warning(
            "config-file",
            "--config=FILE is not seen: the file is read only where --config and FILE are two "
            "words, so its flags have no effect",
            "write --config FILE",
            "--config",
        )
    elif ctx.settings.values.get("config") is not None:
        yield ctx.info(
            "config-file",
            "flags in the file given with --config were not checked",
            "put them on the line to have them checked",
            "--config",
        )


@dataclass(frozen=True, slots=True)
class Conflict:
    """Flags that the engine refuses together."""

    rule: str
    applies: Callable[[Settings], bool]
    message: str
    fix: str
    flags: tuple[str, ...]


def _negative(key: str, least: float = 0) -> Callable[[Settings], bool]:
    return lambda s: (value := s.number(key)) is not None and value < least


CONFLICTS = (
    Conflict(
        "hicache-radix",
        lambda s: s.on("enable-hierarchical-cache") and s.on("disable-radix-cache"),
        "--enable-hierarchical-cache extends the radix cache that --disable-radix-cache removes",
        "keep one of the two",
        ("--enable-hierarchical-cache", "--disable-radix-cache"),
    ),
    Conflict(
        "dp-lm-head",
        lambda s: (
            s.on("enable-dp-lm-head")
            and (s.integer("dp-size", 1) or 1) > 1
            and not (s.on("enable-dp-attention") or "attn-dp-size" in s)
        ),
        "--enable-dp-lm-head with --dp-size above 1 needs --enable-dp-attention",
        "add --enable-dp-attention, or remove --enable-dp-lm-head",
        ("--enable-dp-lm-head",),
    ),
    Conflict(
        "base-gpu-id",
        _negative("base-gpu-id"),
        "--base-gpu-id is below 0",
        "give the index of the first GPU to use",
        ("--base-gpu-id",),
    ),
    Conflict(
        "gpu-id-step",
        _negative("gpu-id-step", 1),
        "--gpu-id-step is below 1",
        "use 1, or 2 for every second GPU",
        ("--gpu-id-step",),
    ),
    Conflict(
        "metrics-file-dir",
        lambda s: s.on("export-metrics-to-file") and "export-metrics-to-file-dir" not in s,
        "--export-metrics-to-file needs --export-metrics-to-file-dir",
        "add --export-metrics-to-file-dir FOLDER",
        ("--export-metrics-to-file",),
    ),
    Conflict(
        "two-batch-overlap",
        lambda s: (
            s.on("enable-two-batch-overlap")
            and (s.text("moe-a2a-backend") or "none") == "none"
            and not s.on("enable-deepep-moe")
        ),
        "--enable-two-batch-overlap needs an expert all-to-all backend; --moe-a2a-backend is none",
        "add --moe-a2a-backend deepep, or remove --enable-two-batch-overlap",
        ("--enable-two-batch-overlap", "--moe-a2a-backend"),
    ),
    Conflict(
        "compile-padding",
        lambda s: s.on("disable-cuda-graph-padding") and s.on("enable-torch-compile"),
        "--disable-cuda-graph-padding with --enable-torch-compile compiles once per batch size",
        "remove one of the two",
        ("--disable-cuda-graph-padding", "--enable-torch-compile"),
    ),
    Conflict(
        "priority-policy",
        lambda s: (
            s.on("enable-priority-scheduling")
            and s.text("schedule-policy") not in (None, "fcfs", "lof")
        ),
        "--enable-priority-scheduling works with --schedule-policy fcfs or lof only",
        "remove --schedule-policy or set it to fcfs",
        ("--enable-priority-scheduling", "--schedule-policy"),
    ),
    Conflict(
        "ssl-pair",
        lambda s: ("ssl-certfile" in s) != ("ssl-keyfile" in s),
        "--ssl-certfile and --ssl-keyfile work only as a pair",
        "give both",
        ("--ssl-certfile", "--ssl-keyfile"),
    ),
)


def conflicts(ctx: Context) -> Iterator[Finding]:
    """Flags that do not go together in this version."""
    for item in CONFLICTS:
        if ctx.source(item.rule) and item.applies(ctx.settings):
            yield ctx.error(item.rule, item.message, item.fix, *item.flags)


def memory_fraction(ctx: Context) -> Iterator[Finding]:
    """--mem-fraction-static outside (0, 1), which the engine's argument check lets through."""
    value = ctx.settings.number("mem-fraction-static")
    if value is not None and not 0 < value < 1:
        yield ctx.error(
            "mem-fraction-range",
            f"--mem-fraction-static {value:g} is not between 0 and 1: it is the share of a GPU's "
            "memory for weights and KV cache, and the start fails after the weights have loaded",
            "use 0.8 to 0.9, lower with speculative decoding",
            "--mem-fraction-static",
            change=Change(flags={"mem-fraction-static": 0.85}),
        )


def json_flags(ctx: Context) -> Iterator[Finding]:
    """Flags that the parser takes as text and the engine reads as a JSON mapping later."""
    for key in ("json-model-override-args", "model-loader-extra-config"):
        text = ctx.settings.text(key)
        if text is None or (not not_json(text) and text.lstrip().startswith("{")):
            continue
        yield ctx.error(
            "flag-json",
            f"--{key} is {not_json(text) or 'no mapping'}: the start fails where it is read",
            "put it in single quotes, with double quotes inside: '{\"name\": 1}'",
            f"--{key}",
        )


def chunked_prefill(ctx: Context) -> Iterator[Finding]:
    """The chunk of a prefill must hold whole pages."""
    chunk = ctx.settings.integer("chunked-prefill-size")
    page = ctx.settings.integer("page-size")
    if chunk is None or page is None or page < 1 or chunk <= 0:
        return
    effective = chunk // ctx.attention_dp
    if effective % page and ctx.settings.text("disaggregation-mode") != "decode":
        shown = f"{chunk}" if effective == chunk else f"{chunk} / dp {ctx.attention_dp}"
        yield ctx.error(
            "chunked-prefill-page",
            f"--chunked-prefill-size {shown} is not a multiple of --page-size {page}",
            f"use {max(page, effective - effective % page) * ctx.attention_dp}",
            "--chunked-prefill-size",
            "--page-size",
        )


def served_name(ctx: Context) -> Iterator[Finding]:
    """A colon in the served name is taken for model:adapter."""
    name = ctx.settings.text("served-model-name") or ctx.settings.text("model-path") or ""
    if ":" in name and "://" not in name and ctx.source("served-model-name"):
        yield ctx.error(
            "served-model-name",
            f"the served name '{name[:60]}' holds a colon, which separates a model from an adapter",
            "give --served-model-name without a colon",
            "--served-model-name",
        )


def speculative_lora(ctx: Context) -> Iterator[Finding]:
    """LoRA with speculative decoding (S26)."""
    lora = ctx.settings.on("enable-lora") or "lora-paths" in ctx.settings
    wide = ("NGRAM", "EAGLE", "EAGLE3", "DFLASH", "DSPARK")
    allowed = wide if ctx.since("0.5.19") else ("NGRAM",)
    if lora and ctx.algorithm and ctx.algorithm not in allowed and ctx.source("lora-speculative"):
        yield ctx.error(
            "lora-speculative",
            f"LoRA adapters do not work with --speculative-algorithm {ctx.algorithm} here",
            "serve the adapters without speculative decoding",
            "--enable-lora",
            "--lora-paths",
            "--speculative-algorithm",
        )
    if ctx.settings.on("enable-lora") and "lora-paths" not in ctx.settings:
        enough = "max-lora-rank" in ctx.settings and "lora-target-modules" in ctx.settings
        if not enough:
            yield ctx.error(
                "lora-shape",
                "--enable-lora without --lora-paths needs --max-lora-rank and "
                "--lora-target-modules",
                "add both, or name the adapters with --lora-paths",
                "--enable-lora",
            )
