"""Rules over the flags alone: what the engine's check refuses, and what it overlooks."""

from __future__ import annotations

from collections.abc import Iterator

from console.model import Change, Finding
from console.preflight.context import Context
from console.preflight.models import architecture
from console.preflight.values import not_json
from console.text import clean

_LEVELS = ("debug", "info", "warning", "warn", "error", "critical", "fatal", "notset")


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the flags alone."""
    yield from ctx.settings.findings
    yield from version_note(ctx)
    if ctx.sglang and not ctx.bundled:
        yield from chunked_prefill(ctx)
        yield from memory_fraction(ctx)
        yield from json_flags(ctx)
        yield from log_level(ctx)
    if ctx.sglang:
        yield from served_name(ctx)
        yield from speculative_lora(ctx)
    yield from unresolved(ctx)
    yield from lost_lines(ctx)


def lost_lines(ctx: Context) -> Iterator[Finding]:
    """Lines of flags that the shell takes for commands: the launch does not have them."""
    for line in ctx.command.lost[:3]:
        yield ctx.error(
            "line-lost",
            f"'{clean(line, limit=60)}' is a command of its own, because the line before it does "
            "not end in a backslash: the launch goes without it",
            "end the line before it with a backslash, and nothing after that",
        )


def version_note(ctx: Context) -> Iterator[Finding]:
    """Says so where the version is not one whose behaviour is known exactly."""
    if ctx.command.engine == "vllm":
        yield ctx.info(
            "engine-vllm",
            "vLLM's own flags are not known here; files, memory, ports and variables are checked",
            "have vLLM check its flags itself",
        )
    elif ctx.settings.foreign and language_model(ctx):
        yield ctx.error(
            "engine-diffusion",
            f"the target is a language model ({architecture(ctx.target)}): SGLang starts the one "
            "server for those, whose parser exits on flags of the one for images and video",
            "remove them, or name a model for images",
            "--model-path",
        )
    elif ctx.settings.foreign:
        yield ctx.info(
            "engine-diffusion",
            "the flags of SGLang's server for images and video are not known here; files, ports "
            "and variables are checked",
            "have it check its flags itself",
        )
    elif ctx.tables.note:
        yield ctx.info(
            "version-unknown",
            f"SGLang: {ctx.tables.note}",
            "name the version (--sglang VERSION), or run the check on the host",
        )


def language_model(ctx: Context) -> bool:
    """Whether ``sglang serve`` finds out by itself that the target writes text."""
    forced = ctx.settings.text("model-type") == "diffusion"
    return not forced and architecture(ctx.target) in ctx.table.architectures


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


def log_level(ctx: Context) -> Iterator[Finding]:
    """Python's own names of levels: the parser takes any word, setting up the log does not."""
    level = ctx.settings.text("log-level")
    if level is not None and level.lower() not in _LEVELS:
        yield ctx.error(
            "log-level",
            f"--log-level {level[:40]} is none of {', '.join(_LEVELS)}: the start ends in a "
            "ValueError",
            "use info",
            "--log-level",
            change=Change(flags={"log-level": "info"}),
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
