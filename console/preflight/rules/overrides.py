"""Rules over what the engine changes by itself: it starts, and serves other than it was asked.

Facts: SGLang server_args.py (_handle_attention_backend_compatibility, _handle_data_parallelism).
"""

from __future__ import annotations

from collections.abc import Iterator

from console.model import Change, Finding
from console.preflight.context import Context
from console.preflight.rules.devices import attention

# Attention backend to the page sizes that it takes; the last one is put in place of any other.
_PAGES = {
    "flashmla": (64,),
    "cutlass_mla": (128,),
    "trtllm_mla": (32, 64),
    "tokenspeed_mla": (32, 64),
    "trtllm_mha": (16, 32, 64),
}


# All-to-all backends that set ep_size to tp_size: server_args.py until 0.5.12.post1, then
# arg_groups/overrides.py (_A2A_EP_SPANNING_BACKENDS).
SPREADING = frozenset(
    ("deepep", "deepep_v2", "mooncake", "nixl", "ascend_fuseep", "flashinfer",
     "flashinfer_megamoe", "megamoe", "mori", "pplx")
)  # fmt: skip


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over values that are replaced."""
    if not ctx.sglang or ctx.bundled:
        return
    yield from pages(ctx)
    yield from kv_type(ctx)
    yield from split_attention(ctx)
    yield from expert_groups(ctx)


def pages(ctx: Context) -> Iterator[Finding]:
    """--page-size that the attention backend does not take."""
    given = ctx.settings.integer("page-size")
    for _, flag, backend in attention(ctx)[-1:]:
        takes = _PAGES.get(backend)
        if given is not None and takes is not None and given not in takes:
            yield ctx.warning(
                "page-size-forced",
                f"--page-size {given} becomes {takes[-1]}: the attention backend {backend} takes "
                f"{', '.join(map(str, takes))} only",
                f"write --page-size {takes[-1]}, or leave it out",
                "--page-size",
                flag,
                change=Change(flags={"page-size": takes[-1]}),
            )


def kv_type(ctx: Context) -> Iterator[Finding]:
    """fa3 with a KV cache in fp8_e5m2 gives way to triton."""
    common = ctx.settings.text("attention-backend")
    if common == "fa3" and ctx.settings.text("kv-cache-dtype") == "fp8_e5m2" and ctx.since("0.5.4"):
        yield ctx.warning(
            "kv-dtype-backend",
            "--attention-backend fa3 becomes triton: fa3 takes fp8_e4m3 only, --kv-cache-dtype is "
            "fp8_e5m2",
            "use --kv-cache-dtype fp8_e4m3",
            "--kv-cache-dtype",
            "--attention-backend",
            change=Change(flags={"kv-cache-dtype": "fp8_e4m3"}),
        )


def split_attention(ctx: Context) -> Iterator[Finding]:
    """Split attention: of one group it is none, and it divides the chunk of a prefill."""
    if not ctx.settings.on("enable-dp-attention") or ctx.settings.unknown("dp-size"):
        return
    groups = ctx.attention_dp
    chunk = ctx.settings.integer("chunked-prefill-size")
    if groups == 1 and "attn-dp-size" not in ctx.settings:
        yield ctx.warning(
            "dp-attention-one",
            "--enable-dp-attention has no effect: --dp-size is 1",
            f"add --dp-size {ctx.parallel('tp-size')}, or remove it",
            "--enable-dp-attention",
            "--dp-size",
        )
    elif chunk is not None and chunk > 0:
        yield ctx.warning(
            "dp-attention-chunk",
            f"--chunked-prefill-size {chunk} becomes {chunk // groups}: it is divided by dp-size "
            f"{groups}",
            f"write {chunk * groups} where {chunk} a rank are meant",
            "--chunked-prefill-size",
        )


def expert_groups(ctx: Context) -> Iterator[Finding]:
    """Most all-to-all backends spread the experts over all ranks, whatever --ep-size says."""
    backend = ctx.settings.text("moe-a2a-backend") or "none"
    if backend not in SPREADING or ctx.settings.unknown("tp-size", "ep-size"):
        return
    ep, tp = ctx.settings.integer("ep-size"), ctx.parallel("tp-size")
    if ep is not None and ep != tp:
        yield ctx.warning(
            "ep-size-forced",
            f"--ep-size {ep} becomes {tp}: --moe-a2a-backend {backend} takes every rank",
            f"write --ep-size {tp}, or leave it out",
            "--ep-size",
            "--moe-a2a-backend",
            change=Change(flags={"ep-size": tp}),
        )
