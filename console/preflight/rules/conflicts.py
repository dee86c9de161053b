"""Rules over flags that exclude each other or have a range, as the engine's own check has them.

Facts: SGLang server_args.py (check_server_args and the handlers before it), later arg_groups; a
version that does not check one of them is not held to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from console.model import Finding
from console.preflight.context import Context
from console.preflight.settings import Settings


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
        "ssl-refresh",
        lambda s: s.on("enable-ssl-refresh") and not ("ssl-certfile" in s and "ssl-keyfile" in s),
        "--enable-ssl-refresh needs --ssl-certfile and --ssl-keyfile",
        "give both, or remove it",
        ("--enable-ssl-refresh",),
    ),
    Conflict(
        "ssl-ca",
        lambda s: "ssl-ca-certs" in s and "ssl-certfile" not in s and "ssl-keyfile" not in s,
        "--ssl-ca-certs has no effect without --ssl-certfile and --ssl-keyfile, and is refused",
        "give both, or remove it",
        ("--ssl-ca-certs",),
    ),
    Conflict(
        "moe-dense-tp",
        lambda s: s.integer("moe-dense-tp-size", 1) not in (1, None),
        "--moe-dense-tp-size takes 1 only",
        "use 1 or leave it out",
        ("--moe-dense-tp-size",),
    ),
    Conflict(
        "eplb-ep",
        lambda s: (
            s.on("enable-eplb")
            and (s.integer("ep-size", 1) or 1) == 1
            and (s.text("moe-a2a-backend") or "none") == "none"
            and not s.unknown("ep-size", "moe-a2a-backend")
        ),
        "--enable-eplb balances experts over ranks and needs --ep-size above 1",
        "add --ep-size, or --moe-a2a-backend deepep",
        ("--enable-eplb", "--ep-size"),
    ),
    Conflict(
        "pd-fake-prefill",
        lambda s: (
            s.text("disaggregation-mode") == "prefill"
            and s.text("disaggregation-transfer-backend") == "fake"
        ),
        "a prefill server cannot use --disaggregation-transfer-backend fake",
        "use mooncake or nixl",
        ("--disaggregation-transfer-backend",),
    ),
    Conflict(
        "pd-offload-side",
        lambda s: (
            s.on("disaggregation-decode-enable-offload-kvcache")
            and s.text("disaggregation-mode") != "decode"
        ),
        "--disaggregation-decode-enable-offload-kvcache is for --disaggregation-mode decode",
        "remove it on this side",
        ("--disaggregation-decode-enable-offload-kvcache",),
    ),
    Conflict(
        "encoder-language",
        lambda s: s.on("encoder-only") and s.on("language-only"),
        "--encoder-only and --language-only exclude each other",
        "keep one of the two",
        ("--encoder-only", "--language-only"),
    ),
    Conflict(
        "encoder-pd",
        lambda s: s.on("encoder-only") and s.text("disaggregation-mode") in ("prefill", "decode"),
        "--encoder-only does not go with --disaggregation-mode",
        "remove one of the two",
        ("--encoder-only", "--disaggregation-mode"),
    ),
    Conflict(
        "tokenizer-batching",
        lambda s: s.on("enable-tokenizer-batch-encode") and s.on("enable-dynamic-batch-tokenizer"),
        "--enable-tokenizer-batch-encode and --enable-dynamic-batch-tokenizer exclude each other",
        "keep one of the two",
        ("--enable-tokenizer-batch-encode", "--enable-dynamic-batch-tokenizer"),
    ),
    Conflict(
        "swa-ratio",
        lambda s: (ratio := s.number("swa-full-tokens-ratio")) is not None and not 0 < ratio <= 1,
        "--swa-full-tokens-ratio is not above 0 and at most 1",
        "use 0.8 or leave it out",
        ("--swa-full-tokens-ratio",),
    ),
    Conflict(
        "schedule-conservativeness",
        _negative("schedule-conservativeness"),
        "--schedule-conservativeness is below 0",
        "use 1.0 or leave it out",
        ("--schedule-conservativeness",),
    ),
    Conflict(
        "tokenizer-workers",
        _negative("tokenizer-worker-num", 1),
        "--tokenizer-worker-num is below 1",
        "use 1 or leave it out",
        ("--tokenizer-worker-num",),
    ),
    Conflict(
        "lora-per-batch",
        _negative("max-loras-per-batch", 1),
        "--max-loras-per-batch is below 1",
        "use 8 or leave it out",
        ("--max-loras-per-batch",),
    ),
    Conflict(
        "lora-loaded",
        lambda s: (
            (loaded := s.integer("max-loaded-loras")) is not None
            and loaded < (s.integer("max-loras-per-batch", 8) or 8)
            and ("lora-paths" in s or s.on("enable-lora"))
        ),
        "--max-loaded-loras is less than --max-loras-per-batch (8 where it is not given)",
        "raise the first or lower the second",
        ("--max-loaded-loras", "--max-loras-per-batch"),
    ),
    Conflict(
        "lora-all-modules",
        lambda s: (
            isinstance(s.values.get("lora-target-modules"), tuple)
            and "all" in s.values["lora-target-modules"]
            and len(s.values["lora-target-modules"]) > 1
        ),
        "--lora-target-modules names 'all' and others besides",
        "write all alone",
        ("--lora-target-modules",),
    ),
    Conflict(
        "pd-multiplexing",
        lambda s: (
            s.on("enable-pdmux")
            and (
                s.integer("pp-size", 1) != 1
                or s.text("disaggregation-mode") in ("prefill", "decode")
            )
        ),
        "--enable-pdmux goes with neither --pp-size above 1 nor --disaggregation-mode",
        "remove one of them",
        ("--enable-pdmux",),
    ),
    Conflict(
        "deterministic-backend",
        lambda s: (
            s.on("enable-deterministic-inference")
            and (s.text("attention-backend") or "fa3")
            not in ("fa3", "flashinfer", "triton", "fa4", "ascend", "intel_xpu", "aiter")
        ),
        "--enable-deterministic-inference works with the attention backends flashinfer, fa3 and "
        "triton only",
        "leave --attention-backend out",
        ("--enable-deterministic-inference", "--attention-backend"),
    ),
    Conflict(
        "ssl-pair",
        lambda s: ("ssl-certfile" in s) != ("ssl-keyfile" in s),
        "--ssl-certfile and --ssl-keyfile work only as a pair",
        "give both",
        ("--ssl-certfile", "--ssl-keyfile"),
    ),
)


def rules(ctx: Context) -> Iterator[Finding]:
    """Flags that do not go together in this version."""
    if not ctx.sglang or ctx.bundled:
        return
    for item in CONFLICTS:
        if ctx.source(item.rule) and item.applies(ctx.settings):
            yield ctx.error(item.rule, item.message, item.fix, *item.flags)
