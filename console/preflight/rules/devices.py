"""Rules over backends and the device they need: compute capability, vendor, kind of attention.

Facts: SGLang server_args.py (_handle_attention_backend_compatibility), attention_registry.py,
layers/quantization/fp8_utils.py. A device whose capability nobody told is not judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from console.model import Change, Finding
from console.preflight.context import Context
from console.preflight.facts import GpuFacts
from console.preflight.models import architecture, text_config, uses_mla

_MLA_ONLY = ("trtllm_mla", "tokenspeed_mla", "cutlass_mla", "flashmla", "cutedsl_mla")
_PREFILL, _DECODE = "prefill-attention-backend", "decode-attention-backend"

# Compute capability by name, for drivers that do not tell it.
_NAMES = (
    (r"B300|GB300", (10, 3)),
    (r"B200|B100|GB200", (10, 0)),
    (r"\bH(?:100|200|800|20)\b|GH200|HGX", (9, 0)),
    (r"\bL(?:4|20|40S?)\b|RTX 40\d\d|6000 Ada", (8, 9)),
    (r"\bA(?:10G?|16|40)\b|RTX 30\d\d|RTX A\d000", (8, 6)),
    (r"\bA(?:100|800|30)\b", (8, 0)),
    (r"RTX 50\d\d|RTX PRO \d000 Blackwell", (12, 0)),
    (r"\bT4\b|RTX 20\d\d", (7, 5)),
    (r"V100", (7, 0)),
)

# Backends of other makers' devices, to what they run on.
_FOREIGN = {
    "aiter": "AMD GPUs",
    "wave": "AMD GPUs",
    "ascend": "Ascend NPUs",
    "intel_amx": "Intel CPUs",
    "intel_xpu": "Intel GPUs",
}


def capability(gpu: GpuFacts) -> tuple[int, int] | None:
    """The compute capability, read or known by the device's name."""
    if gpu.capability is not None:
        return gpu.capability
    return next((value for name, value in _NAMES if re.search(name, gpu.name)), None)


def least(ctx: Context) -> tuple[int, int] | None:
    """The least capability among the host's devices; None where one is unknown."""
    found = [capability(gpu) for gpu in ctx.facts.gpus or ()]
    known = [value for value in found if value is not None]
    return min(known) if known and len(known) == len(found) else None


def on_nvidia(ctx: Context) -> bool:
    """Whether the launch runs on NVIDIA devices that the host was seen to have."""
    device = ctx.settings.text("device")
    return bool(ctx.facts.gpus) and (device or "cuda").startswith("cuda")


def on_cpu(ctx: Context) -> bool:
    """Whether the launch computes on the CPU, where odd splits are padded."""
    device = ctx.settings.text("device")
    return device == "cpu" or (device is None and ctx.facts.gpus == ())


@dataclass(frozen=True, slots=True)
class Needs:
    """What a backend runs on: the capabilities in words, and which are right."""

    words: str
    fits: Callable[[tuple[int, int]], bool]


_SM100 = Needs("Blackwell data-centre GPUs (compute capability 10.x)", lambda c: c[0] == 10)
_BLACKWELL = Needs("Blackwell GPUs (compute capability 10.x or 12.x)", lambda c: c[0] in (10, 12))
_HOPPER = Needs("Hopper GPUs (compute capability 9.0)", lambda c: c[0] == 9)
_HOPPER_UP = Needs("Hopper or Blackwell GPUs (9.0, 10.x, 12.x)", lambda c: c[0] in (9, 10, 12))
_DATACENTRE = Needs("Hopper or Blackwell data-centre GPUs (9.0, 10.x)", lambda c: c[0] in (9, 10))
_FA3 = Needs("Ampere to Hopper GPUs (8.0 to 9.0)", lambda c: c[0] in (8, 9))

_ATTENTION = {
    "trtllm_mla": _BLACKWELL,
    "tokenspeed_mla": _BLACKWELL,
    "cutedsl_mla": _BLACKWELL,
    "cutlass_mla": _SM100,
    "flashmla": _DATACENTRE,
    "trtllm_mha": _SM100,
    "fa3": _FA3,
    "nsa": _DATACENTRE,
    "dsa": _DATACENTRE,
    "dual_chunk_flash_attn": _FA3,
}
_FP8_GEMM = {
    "flashinfer_trtllm": _SM100,
    "flashinfer_cutlass": _BLACKWELL,
    "flashinfer_deepgemm": _HOPPER,
}
_MOE = {
    "flashinfer_trtllm": _SM100,
    "flashinfer_trtllm_routed": _SM100,
    "flashinfer_cutedsl": _SM100,
}


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over backends."""
    if not ctx.sglang or ctx.bundled:
        return
    for phase, flag, backend in attention(ctx):
        yield from kind_of_attention(ctx, flag, backend)
        if on_nvidia(ctx):
            yield from maker(ctx, flag, backend)
            yield from attention_device(ctx, phase, flag, backend)
    yield from float32(ctx)
    if on_nvidia(ctx):
        yield from kernels(ctx)


def attention(ctx: Context) -> list[tuple[str, str, str]]:
    """Phase, flag and name of every attention backend that is asked for and used."""
    common = ctx.settings.text("attention-backend")
    found: list[tuple[str, str, str]] = []
    for phase, key in (("prefill", _PREFILL), ("decode", _DECODE)):
        own = ctx.settings.text(key)
        if own is not None:
            found.append((phase, f"--{key}", own))
        elif common is not None and key not in ctx.settings:
            found.append((phase, "--attention-backend", common))
    return found


def kind_of_attention(ctx: Context, flag: str, backend: str) -> Iterator[Finding]:
    """Backends for one kind of attention only: with a latent (MLA), or without."""
    if ctx.target is None or architecture(ctx.target) is None:
        return
    latent = uses_mla(ctx.target)
    if latent and backend == "trtllm_mha":
        wrong = "is for models without latent attention (MLA), the target has it"
        fix = "use trtllm_mla on Blackwell, fa3 on Hopper, or leave it out"
    elif not latent and backend in _MLA_ONLY:
        wrong = "is for models with latent attention (MLA), the target has none (no kv_lora_rank)"
        fix = "use flashinfer, fa3 or triton, or leave it out"
    else:
        return
    yield ctx.error(
        "attention-kind",
        f"the attention backend {backend} {wrong}; every rank fails after the weights have loaded",
        fix,
        flag,
        change=Change(flags={flag.lstrip("-"): None}),
    )


def maker(ctx: Context, flag: str, backend: str) -> Iterator[Finding]:
    """Backends of another maker's devices."""
    if backend in _FOREIGN:
        yield ctx.error(
            "attention-capability",
            f"the attention backend {backend} runs on {_FOREIGN[backend]}, the host has NVIDIA's",
            "use flashinfer, fa3 or triton, or leave it out",
            flag,
            change=Change(flags={flag.lstrip("-"): None}),
        )


def attention_device(ctx: Context, phase: str, flag: str, backend: str) -> Iterator[Finding]:
    """A backend against the compute capability."""
    have = least(ctx)
    needs = _ATTENTION.get(backend)
    if backend == "trtllm_mha" and phase == "decode" and ctx.since("0.5.10"):
        needs = _HOPPER_UP
    if backend == "fa3" and uses_mla(ctx.target):
        needs = _HOPPER
    if have is None or needs is None or needs.fits(have):
        return
    yield ctx.error(
        "attention-capability",
        f"the attention backend {backend} needs {needs.words} for {phase}; the host's have "
        f"{have[0]}.{have[1]}",
        f"use {fitting(have)}, or leave it out",
        flag,
        change=Change(flags={flag.lstrip("-"): None}),
    )


def fitting(have: tuple[int, int]) -> str:
    """A backend that such a device has."""
    return "fa3" if have[0] == 9 else "flashinfer or triton"


def float32(ctx: Context) -> Iterator[Finding]:
    """The kernels for CUDA are made for 16 bits (seen on an H200: rmsnorm refuses Float)."""
    device = ctx.settings.text("device")
    wide = ctx.settings.text("dtype") in ("float32", "float")
    if not wide or on_cpu(ctx) or not (device or "cuda").startswith("cuda"):
        return
    if "rms_norm_eps" not in text_config(ctx.target or {}) and not on_nvidia(ctx):
        return
    make = ctx.error if on_nvidia(ctx) else ctx.warning
    yield make(
        "dtype-float32",
        "--dtype float32: SGLang's kernels for NVIDIA GPUs take 16 bits only; the start fails at "
        "the first forward pass",
        "use --dtype bfloat16 or leave it out",
        "--dtype",
        change=Change(flags={"dtype": None}),
    )


def kernels(ctx: Context) -> Iterator[Finding]:
    """Kernels for matrix products and experts against the compute capability."""
    have = least(ctx)
    if have is None:
        return
    gemm = ctx.settings.text("fp8-gemm-backend") or ""
    needs = _FP8_GEMM.get(gemm)
    if needs is not None and not needs.fits(have):
        yield ctx.error(
            "kernel-capability",
            f"--fp8-gemm-backend {gemm} needs {needs.words}; the host's have {have[0]}.{have[1]}",
            "leave it out",
            "--fp8-gemm-backend",
            change=Change(flags={"fp8-gemm-backend": None}),
        )
    runner = ctx.settings.text("moe-runner-backend") or ""
    needs = _MOE.get(runner)
    if needs is not None and not needs.fits(have):
        yield ctx.warning(
            "kernel-capability",
            f"--moe-runner-backend {runner} is made for {needs.words}; the host's have "
            f"{have[0]}.{have[1]}, on which its kernels fail or are missing",
            "leave it out",
            "--moe-runner-backend",
            change=Change(flags={"moe-runner-backend": None}),
        )
