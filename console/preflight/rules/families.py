"""Rules over what a class of models accepts: attention backends, kernels for experts.

Facts: SGLang server_args.py (_handle_model_specific_adjustments, _handle_moe_kernel_config).
"""

from __future__ import annotations

from collections.abc import Iterator

from console.model import Change, Finding
from console.preflight.context import Context
from console.preflight.models import architecture
from console.preflight.rules.devices import attention
from console.preflight.rules.quantisation import method_of

# Class to the attention backends that it takes; others end in an AssertionError.
_TAKES = {
    "GptOssForCausalLM": ("triton", "trtllm_mha", "fa3", "fa4", "ascend", "intel_xpu", "aiter"),
    "Llama4ForConditionalGeneration": (
        *("fa3", "aiter", "triton", "ascend", "trtllm_mha", "intel_xpu"),
    ),
}

# Kernels for experts to the checkpoints that they are for ("" is not quantised).
_EXPERTS = {
    "flashinfer_cutlass": ("", "modelopt_fp4", "modelopt_fp8", "modelopt_mixed", "modelopt"),
    "flashinfer_cutedsl": ("modelopt_fp4", "modelopt"),
}


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the class of the target."""
    if not ctx.sglang or ctx.bundled or ctx.target is None:
        return
    yield from family_attention(ctx)
    yield from experts_kernel(ctx)


def family_attention(ctx: Context) -> Iterator[Finding]:
    """An attention backend that the class does not take."""
    arch = architecture(ctx.target) or ""
    takes = _TAKES.get(arch)
    if takes is None:
        return
    for _, flag, backend in attention(ctx):
        if backend not in takes:
            yield ctx.error(
                "attention-model",
                f"{arch} does not take the attention backend {backend}, only {', '.join(takes)}: "
                "the start ends in an AssertionError",
                "use triton, or leave it out",
                flag,
                change=Change(flags={flag.lstrip("-"): None}),
            )


def experts_kernel(ctx: Context) -> Iterator[Finding]:
    """Kernels for experts and the quantisation that is asked for by flag."""
    runner = ctx.settings.text("moe-runner-backend") or ""
    given = (ctx.settings.text("quantization") or "").lower()
    if runner not in _EXPERTS or given in _EXPERTS[runner] or not ctx.source("experts-kernel"):
        return
    if not given or method_of(ctx.target).startswith("modelopt"):
        return
    yield ctx.error(
        "experts-kernel",
        f"--moe-runner-backend {runner} does not take --quantization {given}",
        "leave --moe-runner-backend out",
        "--moe-runner-backend",
        "--quantization",
        change=Change(flags={"moe-runner-backend": None}),
    )
