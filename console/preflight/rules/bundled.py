"""Rules of the bundled engine: what it does not do, and refuses before it loads anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.model import Finding
from console.preflight.context import Context

_ONE = ("tp-size", "dp-size", "pp-size", "ep-size", "nnodes")
_AT_LEAST_ONE = (
    "max-running-requests",
    "max-total-tokens",
    "chunked-prefill-size",
    "decode-log-interval",
)
_THRESHOLDS = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")
_COMPUTED: Mapping[str, tuple[object, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "bias": (False,),
    "fc_norm": (False,),
    "use_aux_norm": (False,),
    "norm_output": (False,),
    "norm_before_fc": (False,),
}
"""Config fields that change the result, and the values that this engine computes."""


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding that only the bundled engine gives."""
    if not ctx.bundled:
        return
    yield from flags(ctx)
    if ctx.target is not None:
        yield from config(ctx, "target", ctx.target)
    if ctx.draft is not None and ctx.draft_path and ctx.algorithm:
        yield from config(ctx, "draft", ctx.draft)
        yield from narrow_draft(ctx, ctx.draft)


def flags(ctx: Context) -> Iterator[Finding]:
    """One device, full precision, EAGLE-3, lossless."""
    for key in _ONE:
        value = ctx.settings.integer(key, 1)
        if value not in (None, 1):
            yield ctx.error(
                "bundled-one-device",
                f"--{key} {value}: the bundled engine runs in one process on one device",
                "remove it, or add --engine sglang",
                f"--{key}",
            )
    if "quantization" in ctx.settings:
        yield ctx.error("bundled-precision", "--quantization: the bundled engine serves full "
                        "precision only", "remove it", "--quantization")  # fmt: skip
    if ctx.settings.text("kv-cache-dtype") not in (None, "auto"):
        yield ctx.error("bundled-precision", "--kv-cache-dtype: the bundled engine keeps keys and "
                        "values unquantised", "remove it", "--kv-cache-dtype")  # fmt: skip
    if ctx.algorithm not in (None, "EAGLE3"):
        yield ctx.error(
            "bundled-algorithm",
            f"--speculative-algorithm {ctx.algorithm}: the bundled engine computes EAGLE3 only",
            "use EAGLE3",
            "--speculative-algorithm",
        )
    for key in _THRESHOLDS:
        if (ctx.settings.number(key) or 1.0) != 1.0:
            yield ctx.error("bundled-lossless", f"--{key} other than 1.0 changes the text; the "
                            "bundled engine is lossless", "remove it", f"--{key}")  # fmt: skip
    for key in _AT_LEAST_ONE:
        value = ctx.settings.integer(key)
        if value is not None and value < 1:
            yield ctx.error("bundled-range", f"--{key} {value} is below 1", "leave it out",
                            f"--{key}")  # fmt: skip


def config(ctx: Context, which: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Fields of a config that would change the result and are not computed."""
    flag = "--model-path" if which == "target" else "--speculative-draft-model-path"
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, Mapping) else rope
    if kind != "default":
        yield ctx.error(
            "bundled-config",
            f"the {which}'s config scales its rotary embedding ({str(kind)[:40]}); the bundled "
            "engine computes plain RoPE",
            "serve it with SGLang",
            flag,
        )
    for key, allowed in _COMPUTED.items():
        if values.get(key, allowed[0]) not in allowed:
            yield ctx.error(
                "bundled-config",
                f"the {which}'s config has {key} {str(values[key])[:40]}; the bundled engine "
                f"computes {allowed[0]} only",
                "serve it with SGLang",
                flag,
            )


def narrow_draft(ctx: Context, draft: Mapping[str, Any]) -> Iterator[Finding]:
    """A draft has the target's width, and a head of its own."""
    flag = "--speculative-draft-model-path"
    mine, wanted = draft.get("hidden_size"), (ctx.target or {}).get("hidden_size")
    if "target_hidden_size" in draft and mine is not None and wanted is not None and mine != wanted:
        yield ctx.error(
            "bundled-config",
            f"the draft's hidden_size {mine} is not the target's {wanted}; the bundled engine "
            "shares the target's embedding",
            "serve it with SGLang",
            flag,
        )
    if "draft_vocab_size" in draft and draft["draft_vocab_size"] is None:
        yield ctx.error(
            "bundled-config",
            "the draft's draft_vocab_size is null; the bundled engine needs a head of its own",
            "serve it with SGLang",
            flag,
        )
