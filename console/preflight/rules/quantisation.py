"""Rules over ``--quantization``: the checkpoint's own method, its files, the device.

Facts: SGLang configs/model_config.py (_verify_quantization), model_loader/weight_utils.py
(get_quant_config) and loader.py; the quantisation classes, read into data/sglang.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.model import Change, Finding
from console.preflight.context import EAGLE_FAMILY, Context
from console.preflight.facts import ModelFacts
from console.preflight.models import has_experts, text_config, whole
from console.preflight.rules.devices import least, on_cpu, on_nvidia
from console.preflight.tables import Method

_DRAFT_KEY = "speculative-draft-model-quantization"

# A checkpoint's method to what may be asked of it besides its own name.
_TAKES = {
    "gptq": ("gptq_marlin", "marlin", "moe_wna16"),
    "gptq_marlin": ("gptq",),
    "awq": ("awq_marlin", "moe_wna16"),
    "awq_marlin": ("awq",),
    "compressed-tensors": ("w8a8_int8", "w8a8_fp8", "auto-round-int8"),
    "fp8": (),
    "mxfp4": (),
    "bitsandbytes": (),
    "w8a8_int8": (),
    "w8a8_fp8": (),
    "blockwise_int8": (),
    "auto-round": (),
    "fbgemm_fp8": (),
}
_ONLINE_FROM_FP8 = ("modelopt_fp4", "nvfp4_online")
"""What 0.5.13 and later make of an fp8 checkpoint while they load it."""
_OTHERS = frozenset(
    {"modelslim", "unquant", "humming", "mlx_q4", "mlx_q8", "quark_mxfp4", "mxfp_w4a8", "mxfp8"}
)
"""Methods that bring their own files or read several kinds: not judged here."""


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the quantisation of target and draft."""
    if not ctx.sglang or ctx.bundled:
        return
    given = (ctx.settings.text("quantization") or "").lower()
    yield from mismatch(ctx, given)
    if ctx.target is not None and given not in ("", "unquant"):
        yield from absent(ctx, "target", given, ctx.target, ctx.facts.target, "--quantization")
    yield from of_draft(ctx, given)
    yield from groups(ctx)
    yield from device(ctx, given)


def own(config: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The quantisation that a config.json names, in any of the places where it is looked for."""
    config = config or {}
    for part in (config, text_config(config)):
        for key in ("quantization_config", "compression_config"):
            found = part.get(key)
            if isinstance(found, Mapping):
                return found
    return None


def method_of(config: Mapping[str, Any] | None) -> str:
    """The method that a config.json names, empty where it names none."""
    return str((own(config) or {}).get("quant_method", "")).lower().replace("_tensors", "-tensors")


def mismatch(ctx: Context, given: str) -> Iterator[Finding]:
    """The flag against the method that the checkpoint was made with."""
    made = method_of(ctx.target)
    if not given or given in _OTHERS or made not in _TAKES:
        return
    online = made == "fp8" and ctx.since("0.5.13") and given in _ONLINE_FROM_FP8
    if given == made or given in _TAKES[made] or online:
        return
    yield ctx.error(
        "quantization",
        f"--quantization {given} does not match the checkpoint, which was made with {made}",
        "leave --quantization out: the method is read from the checkpoint",
        "--quantization",
        change=Change(flags={"quantization": None}),
    )


def absent(
    ctx: Context,
    which: str,
    given: str,
    config: Mapping[str, Any],
    facts: ModelFacts | None,
    flag: str,
) -> Iterator[Finding]:
    """A method for checkpoints that were made with it, on one that was not."""
    method = ctx.table.quantisation.get(given)
    if method is None or own(config) is not None or not needs_config(method, facts):
        return
    named = f" and there is no {' or '.join(method.files)} beside it" if method.files else ""
    fix = (
        "leave --quantization out, use fp8 (which quantises while it loads), or name a checkpoint "
        f"made with {given}"
        if which == "target"
        else f"add --{_DRAFT_KEY} unquant"
    )
    yield ctx.error(
        "quantization-absent",
        f"{flag} {given} is for checkpoints made with {given}; the {which}'s config.json names no "
        f"quantisation{named}: the start fails where the weights are to be loaded",
        fix,
        flag,
        change=Change(flags={"quantization": None})
        if which == "target"
        else Change(flags={_DRAFT_KEY: "unquant"}),
    )


def needs_config(method: Method, facts: ModelFacts | None) -> bool:
    """Whether the method cannot be used without a config of its own, and none is there.

    ModelOpt's checkpoints may keep theirs in hf_quant_config.json alone, so those are judged only
    where the folder's files are known.
    """
    files = facts.files if facts else None
    if method.files is None or method.name in _OTHERS or method.name.startswith("modelopt"):
        return False
    if not method.files:
        return method.needs
    if files is None:
        return "hf_quant_config.json" not in method.files
    return not any(name.endswith(method.files) for name in files)


def of_draft(ctx: Context, given: str) -> Iterator[Finding]:
    """The draft inherits --quantization unless a flag of its own says otherwise."""
    if ctx.algorithm not in EAGLE_FAMILY or ctx.draft is None or ctx.settings.unknown(_DRAFT_KEY):
        return
    asked = (ctx.settings.text(_DRAFT_KEY) or "").lower()
    effective = asked or given
    if effective in ("", "unquant"):
        return
    flag = f"--{_DRAFT_KEY}" if asked else "--quantization"
    for finding in absent(ctx, "draft", effective, ctx.draft, ctx.facts.draft, flag):
        if not asked and f"--{_DRAFT_KEY}" not in ctx.table.options:
            yield ctx.error(
                finding.rule,
                finding.message,
                "leave --quantization out: the target's method is read from its checkpoint",
                "--quantization",
                change=Change(flags={"quantization": None}),
            )
        else:
            yield finding


def groups(ctx: Context) -> Iterator[Finding]:
    """Weights that were quantised in groups are cut between two groups only (awq, gptq).

    Looks at the two matrices whose input is cut: after attention, after the feed-forward layer.
    """
    made = own(ctx.target) or {}
    size, kept = made.get("group_size"), made.get("modules_to_not_convert") or ()
    tp, split = ctx.parallel("tp-size"), ctx.attention_dp
    judged = method_of(ctx.target) in ("awq", "gptq") and not has_experts(ctx.target)
    if not judged or not isinstance(size, int) or size < 2 or kept or tp % split or on_cpu(ctx):
        return
    heads, hidden = (whole(ctx.target, k) for k in ("num_attention_heads", "hidden_size"))
    head_dim = whole(ctx.target, "head_dim") or (hidden or 0) // (heads or 1)
    cut = {
        "intermediate_size": (whole(ctx.target, "intermediate_size") or 0, tp),
        "attention width": ((heads or 0) * head_dim, tp // split),
    }
    for name, (width, ranks) in cut.items():
        if ranks > 1 and width and width % ranks == 0 and width // ranks % size:
            fit = [n for n in (1, 2, 4, 8, 16) if width % (n * size) == 0]
            yield ctx.error(
                "tp-quant-group",
                f"{name} {width} over {ranks} ranks is {width // ranks}, no multiple of the "
                f"checkpoint's groups of {size}; every rank fails while the weights load",
                f"use --tp-size {fit[-1]}" if fit else "use a checkpoint with other groups",
                "--tp-size",
            )


def device(ctx: Context, given: str) -> Iterator[Finding]:
    """The method's least compute capability."""
    have = least(ctx)
    name = given if given not in ("", "unquant") else method_of(ctx.target)
    method = ctx.table.quantisation.get(name)
    if have is None or method is None or method.capability is None or not on_nvidia(ctx):
        return
    if have[0] * 10 + have[1] >= method.capability:
        return
    least_words = f"{method.capability // 10}.{method.capability % 10}"
    yield ctx.error(
        "quantization-capability",
        f"quantisation {name} needs compute capability {least_words} or more; the host's GPUs have "
        f"{have[0]}.{have[1]}",
        "use a checkpoint of another method, or other GPUs",
        "--quantization" if given else "--model-path",
    )
