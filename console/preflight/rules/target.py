"""Rules over the target's config.json: class, length, quantisation, hidden states for a draft.

Facts: SGLang configs/model_config.py; EntryClass of its models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from console.model import Change, Finding
from console.preflight.context import CONTEXT_OVERRIDE, Context
from console.preflight.models import architecture, context_length
from console.preflight.tables import VERSIONS, load

_QUANTISED = {
    "fp8": "fp8",
    "gptq": "gptq",
    "gptq_marlin": "gptq",
    "awq": "awq",
    "awq_marlin": "awq",
    "compressed-tensors": "compressed",
    "compressed_tensors": "compressed",
    "w8a8_int8": "compressed",
    "w8a8_fp8": "compressed",
}
"""Methods that take each other's checkpoints have the same value; others are not judged."""


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the target's config."""
    if ctx.sglang:
        yield from target_architecture(ctx)
        yield from quantization(ctx)
        yield from target_length(ctx)
        yield from target_support(ctx)


def target_architecture(ctx: Context) -> Iterator[Finding]:
    """A class that the version has no model for."""
    arch = architecture(ctx.target)
    tables = [t for t in (ctx.table, ctx.tables.above) if t]
    if arch is None or any(arch in table.architectures for table in tables):
        return
    if ctx.bundled:
        yield ctx.error(
            "target-architecture",
            f"the bundled engine has no {arch}, only {', '.join(sorted(ctx.table.eagle3_targets))}",
            "serve it with SGLang",
            "--model-path",
        )
    else:
        yield ctx.warning(
            "target-architecture",
            f"{arch} is not among the models of {ctx.tables.version}: it runs through transformers,"
            " more slowly, or not at all",
            "check for a newer version of SGLang",
            "--model-path",
        )


def quantization(ctx: Context) -> Iterator[Finding]:
    """--quantization against the method that the checkpoint was made with."""
    given = (ctx.settings.text("quantization") or "").lower()
    made = (ctx.target or {}).get("quantization_config")
    method = str(made.get("quant_method", "")).lower() if isinstance(made, Mapping) else ""
    if not {given, method} <= set(_QUANTISED) or _QUANTISED[given] == _QUANTISED[method]:
        return
    yield ctx.error(
        "quantization",
        f"--quantization {given} does not match the checkpoint, which was made with {method}",
        "leave --quantization out: the method is read from the checkpoint",
        "--quantization",
        change=Change(flags={"quantization": None}),
    )


def target_length(ctx: Context) -> Iterator[Finding]:
    """--context-length against what the target's config allows."""
    given = ctx.settings.integer("context-length")
    derived = context_length(ctx.target, ctx.transformers)
    if given is not None and given < 1:
        yield ctx.error(
            "context-length", f"--context-length {given} is below 1", "leave it out",
            "--context-length",
        )  # fmt: skip
        return
    if given is None or derived is None or given <= derived.tokens:
        return
    allowed = f"the {derived.tokens} that the target's config gives ({derived.how})"
    if ctx.overrides_context:
        yield ctx.warning(
            "context-length",
            f"--context-length {given} is more than {allowed}; {CONTEXT_OVERRIDE} lets it through "
            f"and {given} is served: text can be wrong, kernels can fail",
            f"use --context-length {derived.tokens}",
            "--context-length",
        )
        return
    yield ctx.error(
        "context-length",
        f"--context-length {given} is more than {allowed}; the start ends in a ValueError",
        f"use --context-length {derived.tokens} or leave it out",
        "--context-length",
        change=Change(flags={"context-length": derived.tokens}),
    )


def target_support(ctx: Context) -> Iterator[Finding]:
    """EAGLE-3 needs a target that hands out hidden states of inner layers."""
    arch = architecture(ctx.target)
    if ctx.algorithm != "EAGLE3" or arch is None:
        return
    tables = [t for t in (ctx.table, ctx.tables.above) if t]
    if any(arch in table.eagle3_targets for table in tables):
        return
    later = [v for v in VERSIONS if arch in load(v).eagle3_targets]
    fix = f"SGLang {later[0]} can" if later else "serve it without EAGLE3"
    yield ctx.error(
        "target-eagle3",
        f"the target's {arch} hands no hidden states to an EAGLE-3 draft in {ctx.tables.version}: "
        "the start fails after the target has loaded",
        fix,
        "--speculative-algorithm",
        "--model-path",
    )
