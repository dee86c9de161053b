"""Rules over the target's config.json: class, length, hidden states for a draft.

Facts: SGLang configs/model_config.py; EntryClass of its models.
"""

from __future__ import annotations

from collections.abc import Iterator

from console.model import Change, Finding
from console.preflight.context import CONTEXT_OVERRIDE, Context
from console.preflight.models import architecture, context_length
from console.preflight.tables import first_with


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the target's config."""
    if ctx.sglang:
        yield from target_architecture(ctx)
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
    later = first_with(arch, "captures")
    fix = f"SGLang {later} can" if later else "serve it without EAGLE3"
    yield ctx.error(
        "target-eagle3",
        f"the target's {arch} hands no hidden states to an EAGLE-3 draft in {ctx.tables.version}: "
        "the start fails after the target has loaded",
        fix,
        "--speculative-algorithm",
        "--model-path",
    )
