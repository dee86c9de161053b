"""Rules of single speculative algorithms, and of what they meet elsewhere in the command."""

from __future__ import annotations

from collections.abc import Iterator

from console.model import Change, Finding
from console.preflight.context import EAGLE_FAMILY, SPECULATIVE, Context, truthy
from console.preflight.models import architecture, text_config
from console.preflight.rules.speculative import effective_topk

STEPS, TOPK, TOKENS = SPECULATIVE
_NO_DRAFT = ("torch_native", "cutlass_mla", "wave", "dual_chunk_flash_attn")

_EXTRA_BUFFER = frozenset(
    {
        "InternS2PreviewForConditionalGeneration",
        "MiniCPMV4_6ForConditionalGeneration",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    }
)
_RECURRENT = _EXTRA_BUFFER | {
    "FalconH1ForCausalLM",
    "JetNemotronForCausalLM",
    "JetVLMForConditionalGeneration",
    "Lfm2ForCausalLM",
    "NemotronHForCausalLM",
}
"""Targets with recurrent layers (0.5.12 server_args.py), and those of them with extra buffers."""


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the algorithm that is chosen."""
    if not ctx.sglang or ctx.algorithm is None:
        return
    if not ctx.bundled:
        yield from backends(ctx)
        yield from pipelined(ctx)
        yield from recurrent(ctx)
    if ctx.algorithm in EAGLE_FAMILY:
        yield from draft_path(ctx)
        yield from rejection_sampling(ctx)
        yield from token_map(ctx)
    elif ctx.bundled:
        return
    elif ctx.algorithm == "NGRAM":
        yield from ngram(ctx)
    elif ctx.algorithm == "DFLASH":
        yield from dflash(ctx)


def draft_path(ctx: Context) -> Iterator[Finding]:
    """S21: a draft model is named, unless the target brings its own."""
    if "speculative-draft-model-path" in ctx.settings or _cut_short(ctx):
        return
    arch = architecture(ctx.target)
    if ctx.own_draft:
        yield from no_draft_layer(ctx)
        return
    doubt = "" if arch else " unless the target holds its own draft layer (its config is unknown)"
    make = ctx.error if arch else ctx.warning
    yield make(
        "spec-draft-path",
        f"--speculative-algorithm {ctx.algorithm} without --speculative-draft-model-path: the "
        f"flags pass, the draft worker fails after the target has loaded{doubt}",
        "add --speculative-draft-model-path with the draft's folder",
        "--speculative-draft-model-path",
        "--speculative-algorithm",
    )


def _cut_short(ctx: Context) -> bool:
    """Whether a flag that may have meant it was refused because it means several."""
    unclear = [f for f in ctx.settings.findings if f.rule == "flag-ambiguous"]
    names = (name for found in unclear for name in found.flags)
    return any("--speculative-draft-model-path".startswith(name) for name in names)


def no_draft_layer(ctx: Context) -> Iterator[Finding]:
    """A checkpoint of a class that may hold a draft layer, and says that it holds none."""
    if text_config(ctx.target or {}).get("num_nextn_predict_layers") == 0:
        yield ctx.error(
            "spec-draft-path",
            f"--speculative-algorithm {ctx.algorithm} without --speculative-draft-model-path takes "
            "the draft from the target, whose config.json says num_nextn_predict_layers 0: loading "
            "it fails after the target has loaded",
            "name a draft model, or serve it without speculation",
            "--speculative-draft-model-path",
            "--speculative-algorithm",
        )


def rejection_sampling(ctx: Context) -> Iterator[Finding]:
    """Rejection sampling wants a chain and no thresholds."""
    if not ctx.settings.on("speculative-use-rejection-sampling"):
        return
    topk = effective_topk(ctx)
    thresholds = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")
    lowered = [f"--{key}" for key in thresholds if (ctx.settings.number(key) or 1.0) != 1.0]

    if topk is not None and topk != 1:
        yield ctx.error(
            "spec-rejection",
            f"--speculative-use-rejection-sampling needs topk 1, topk is {topk}",
            f"use --{TOPK} 1",
            "--speculative-use-rejection-sampling",
            f"--{TOPK}",
        )
    if lowered:
        yield ctx.error(
            "spec-rejection",
            f"--speculative-use-rejection-sampling does not go with {' and '.join(lowered)}",
            "remove the thresholds",
            "--speculative-use-rejection-sampling",
            *lowered,
        )


def token_map(ctx: Context) -> Iterator[Finding]:
    """An EAGLE-3 draft brings its own token map."""
    if ctx.algorithm == "EAGLE3" and "speculative-token-map" in ctx.settings:
        yield ctx.warning(
            "spec-token-map",
            "--speculative-token-map is ignored with EAGLE3: the draft's own d2t is used",
            "remove it",
            "--speculative-token-map",
            change=Change(flags={"speculative-token-map": None}),
        )


def ngram(ctx: Context) -> Iterator[Finding]:
    """n-gram speculation."""
    page = ctx.settings.integer("page-size", 1)
    breadth = ctx.settings.integer("speculative-ngram-max-bfs-breadth", 10) or 10
    backend = ctx.settings.text("attention-backend")
    if page and page > 1 and breadth > 1 and backend != "flashinfer":
        make = ctx.error if backend is not None else ctx.warning
        yield make(
            "spec-topk-page",
            f"NGRAM with breadth {breadth} and --page-size {page} works with flashinfer only, "
            + (f"the attention backend is {backend}" if backend else "and none is given"),
            "use --page-size 1 or --attention-backend flashinfer",
            "--page-size",
            "--attention-backend",
            at="spec-ngram-page",
        )
    device = ctx.settings.text("device")
    able = ("cuda", *(("cpu",) * ctx.since("0.5.18")), *(("xpu",) * ctx.since("0.5.21")))
    if device is not None and not device.startswith(able):
        yield ctx.error(
            "spec-ngram-device",
            f"NGRAM speculation runs on {', '.join(able)} only, --device is {device}",
            "use another algorithm",
            "--device",
        )
    if "speculative-draft-model-path" in ctx.settings:
        yield ctx.warning(
            "spec-draft-unused",
            "NGRAM uses no draft model; --speculative-draft-model-path has no effect",
            "remove it, or use EAGLE3",
            "--speculative-draft-model-path",
        )


def dflash(ctx: Context) -> Iterator[Finding]:
    """Block drafts."""
    if "speculative-draft-model-path" not in ctx.settings:
        yield ctx.error(
            "spec-draft-path",
            "--speculative-algorithm DFLASH without --speculative-draft-model-path",
            "add the draft's folder",
            "--speculative-draft-model-path",
            at="spec-dflash-path",
        )
    if ctx.source("spec-dflash-attention") and ctx.attention_dp > 1:
        yield ctx.error(
            "spec-dp-attention",
            "--speculative-algorithm DFLASH does not work with --enable-dp-attention",
            "remove --enable-dp-attention",
            "--enable-dp-attention",
            at="spec-dflash-attention",
        )
    block = ctx.settings.integer("speculative-dflash-block-size")
    tokens = ctx.settings.integer(TOKENS)
    if block is not None and tokens is not None and block != tokens:
        yield ctx.error(
            "spec-dflash-block",
            f"--speculative-dflash-block-size {block} and --{TOKENS} {tokens} must be the same",
            "give one of them",
            "--speculative-dflash-block-size",
            f"--{TOKENS}",
        )
    for key in (STEPS, TOPK):
        value = ctx.settings.integer(key)
        if value is not None and value != 1:
            yield ctx.warning(
                "spec-dflash-one",
                f"--{key} {value} becomes 1 with DFLASH",
                "remove it",
                f"--{key}",
            )


def pipelined(ctx: Context) -> Iterator[Finding]:
    """Pipeline parallelism."""
    stages = ctx.settings.integer("pp-size", 1)
    if stages is None or stages <= 1:
        return
    prefill = ctx.settings.text("disaggregation-mode") == "prefill"
    gated = truthy(ctx.command.env.get("SGLANG_ENABLE_PP_SPEC"))
    able = ctx.since("0.5.20") and ctx.algorithm in ("EAGLE", "DSPARK")
    if able and (prefill or gated):
        return
    yield ctx.error(
        "spec-pipeline",
        f"--pp-size {stages} does not work with --speculative-algorithm {ctx.algorithm}",
        "use --pp-size 1 and a larger --tp-size",
        "--pp-size",
        "--speculative-algorithm",
        change=Change(flags={"pp-size": None}),
    )


def recurrent(ctx: Context) -> Iterator[Finding]:
    """Targets with recurrent layers keep a state that speculation has to roll back."""
    arch = architecture(ctx.target)
    if not ctx.source("spec-recurrent") or arch not in _RECURRENT:
        return
    if ctx.settings.unknown("mamba-scheduler-strategy"):
        return
    buffered = ctx.settings.text("mamba-scheduler-strategy") == "extra_buffer"
    decode = ctx.settings.text("disaggregation-mode") == "decode"
    amd = truthy(ctx.command.env.get("SGLANG_USE_AITER"))
    if buffered or decode or amd or ctx.settings.on("disable-radix-cache"):
        return
    can = arch in _EXTRA_BUFFER
    yield ctx.error(
        "spec-recurrent",
        f"{arch} has recurrent layers: speculative decoding does not go with the radix cache here "
        + ("unless --mamba-scheduler-strategy is extra_buffer" if can else "at all"),
        "add --mamba-scheduler-strategy extra_buffer" if can else "add --disable-radix-cache",
        "--mamba-scheduler-strategy",
        "--disable-radix-cache",
        "--speculative-algorithm",
    )


def draft_attention(ctx: Context) -> Iterator[Finding]:
    """Attention backends in which no draft is made."""
    keys = ("speculative-draft-attention-backend", "decode-attention-backend", "attention-backend")
    key = next((k for k in keys if ctx.settings.text(k)), None)
    backend = ctx.settings.text(key) if key else None
    without = _NO_DRAFT if ctx.since("0.5.10") else (*_NO_DRAFT, "fa4")
    refused = without if ctx.algorithm in EAGLE_FAMILY else ("torch_native",)
    if key and backend in refused and ctx.algorithm in (*EAGLE_FAMILY, "NGRAM"):
        yield ctx.error(
            "spec-attention",
            f"--speculative-algorithm {ctx.algorithm} has no attention backend {backend}: the "
            "start fails after the target has loaded",
            "use flashinfer, fa3 or triton",
            f"--{key}",
            "--speculative-algorithm",
            change=Change(flags={key: None}),
        )


def backends(ctx: Context) -> Iterator[Finding]:
    """S25: backends without speculative decoding."""
    if ctx.settings.text("attention-backend") == "flex_attention":
        yield ctx.error(
            "spec-flex-attention",
            "the attention backend flex_attention has no speculative decoding",
            "use --attention-backend flashinfer, fa3 or triton",
            "--attention-backend",
            change=Change(flags={"attention-backend": None}),
        )
    yield from draft_attention(ctx)
    runner = ctx.settings.text("speculative-moe-runner-backend")
    if ctx.source("spec-moe-runner") and runner == "flashinfer_trtllm":
        yield ctx.error(
            "spec-moe-runner",
            "--speculative-moe-runner-backend flashinfer_trtllm is refused",
            "leave it out",
            "--speculative-moe-runner-backend",
        )
