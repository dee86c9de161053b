"""Rules over devices: how many, how free, and whether the models fit.

Facts: the fraction is taken of the memory that is free at start, weights and KV cache share it
(SGLang model_runner, pool_configurator); free memory of the ranks may differ by 10 % at most.
"""

from __future__ import annotations

from collections.abc import Iterator

from console.model import Change, Finding
from console.preflight.context import Context
from console.preflight.facts import GpuFacts, ModelFacts
from console.preflight.models import item_bytes, kv_bytes_per_token, parameter_bytes
from console.preflight.rules.environment import effective

_DEFAULT_FRACTION = 0.9
"""Above what the engine chooses by itself, so that a refusal is never too strict."""
_USUAL_FRACTION = 0.86
"""What the engine chooses on common devices; what it leaves free is judged by this."""
_RUNTIME_MIB = 96.0
"""What a rank holds at least besides weights before the KV cache is made (90 MiB on an H200)."""
_GRAPHS_MIB = {"graphs": 1024.0, "activations": 1024.0, "draft": 1024.0}
"""What has to stay outside the fraction, in MiB (seen on an H200: 2.2 GiB are too few with a
draft)."""
_FEW, _SMALL_MIB, _SMALL_SHARE = 8, 1024.0, 0.25
"""Graphs for so few requests of a model with so few MiB of weights take so much of that (seen on an
H200: 873 MiB held the graphs of a model of 7 MiB with a draft)."""
_HELD = 0.9
"""A device with less than this share of its memory free is also used by something else."""

_MIB = 2.0**20
_SURE = 0.96
"""Share of an estimate from config.json that is held to be there in any case."""
_UNBALANCED = 0.9
_WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".gguf")


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over devices."""
    if (few := too_few_named(ctx)) is not None:
        yield few
        return
    if ctx.facts.gpus is None or ctx.settings.text("device") in ("cpu", "xpu", "npu", "hpu"):
        yield from host_memory(ctx)
        return
    if not ctx.facts.gpus:
        yield from no_gpu(ctx)
        return
    visible, problem = visible_gpus(ctx)
    if problem is not None:
        yield problem
        return
    used, missing = chosen(ctx, visible)
    if missing is not None:
        yield missing
        return
    if not ctx.bundled:
        yield from balance(ctx, used)
        yield from fit(ctx, used)


def no_gpu(ctx: Context) -> Iterator[Finding]:
    """No NVIDIA device at all."""
    if ctx.command.engine == "sglang" and "device" not in ctx.settings:
        yield ctx.error(
            "gpu-none",
            "the host shows no GPU; the start ends in 'No accelerator'",
            "launch on a host with GPUs, or add --device cpu",
            "--device",
        )
    else:
        yield from host_memory(ctx)


def visible_gpus(ctx: Context) -> tuple[list[GpuFacts], Finding | None]:
    """The devices that CUDA_VISIBLE_DEVICES leaves, in its order."""
    gpus = list(ctx.facts.gpus or ())
    text = effective(ctx).get("CUDA_VISIBLE_DEVICES")
    if text is None or "$" in text or text.strip().lower() == "all":
        return gpus, None
    out: list[GpuFacts] = []
    for word in text.split(","):
        name = word.strip()
        found = next(
            (g for g in gpus if str(g.index) == name or (g.uuid and g.uuid.startswith(name))), None
        )
        if not name or found is None:
            finding = ctx.error(
                "gpu-visible",
                f"CUDA_VISIBLE_DEVICES={text[:60]}: the host has no GPU '{name[:40]}' "
                f"(it has 0 to {len(gpus) - 1}); CUDA stops reading the list there",
                "name GPUs that are there",
            )
            return out, finding
        out.append(found)
    return out, None


def too_few_named(ctx: Context) -> Finding | None:
    """Fewer devices named by the launch itself than it takes, whatever the host has."""
    device = ctx.settings.text("device") or "cuda"
    sizes = ("tp-size", "pp-size", "dp-size", "nnodes")
    if not ctx.sglang or ctx.bundled or device != "cuda" or ctx.settings.unknown(*sizes):
        return None
    env, container = effective(ctx), ctx.command.container
    named = [("CUDA_VISIBLE_DEVICES", listed(env.get("CUDA_VISIBLE_DEVICES")))]
    if container is not None:
        named.append(("the container's GPUs", given(container.gpus)))
        named.append(("NVIDIA_VISIBLE_DEVICES", listed(env.get("NVIDIA_VISIBLE_DEVICES"))))
    few = [(count, name) for name, count in named if count is not None]
    count, name = min(few, default=(ctx.local_ranks, ""))
    return too_few(ctx, count, f" by {name}") if count < ctx.local_ranks else None


def listed(text: str | None) -> int | None:
    """How many devices a variable names: it ends at the first that is -1 or empty."""
    if text is None or "$" in text or text.strip().lower() in ("all", "void", "none"):
        return None
    words = [word.strip() for word in text.split(",")]
    return next((at for at, word in enumerate(words) if word in ("", "-1")), len(words))


def given(text: str | None) -> int | None:
    """How many devices a container gets: ``2``, ``count=2``, ``device=0,1``, ``['0', '1']``."""
    words = (text or "").replace("'", "").replace('"', "").strip()
    if words.startswith("["):
        return listed(words.strip("[]"))
    key, eq, value = words.partition("=")
    if key == "device":
        return listed(",".join(word for word in value.split(",") if "=" not in word))
    count = value.partition(",")[0] if key == "count" and eq else words
    return int(count) if count.isdecimal() else None


def chosen(ctx: Context, visible: list[GpuFacts]) -> tuple[list[GpuFacts], Finding | None]:
    """The devices that the ranks of this node take."""
    if ctx.settings.unknown("tp-size", "pp-size", "dp-size", "nnodes", "base-gpu-id"):
        return [], None
    base = ctx.settings.integer("base-gpu-id", 0) or 0
    step = max(1, ctx.settings.integer("gpu-id-step", 1) or 1)
    indices = [base + step * rank for rank in range(ctx.local_ranks)]
    if indices and (indices[-1] >= len(visible) or base < 0):
        return [], too_few(ctx, len(visible), start=f" from GPU {base}" if base else "")
    return [visible[index] for index in indices], None


def too_few(ctx: Context, visible: int, by: str = "", *, start: str = "") -> Finding:
    """More ranks on this node than devices that it sees."""
    sizes = [f"tp {ctx.parallel('tp-size')}"]
    sizes += [
        f"{key[:2]} {ctx.parallel(key)}" for key in ("pp-size", "dp-size") if ctx.parallel(key) > 1
    ]
    nodes = f" / {ctx.parallel('nnodes')} nodes" if ctx.parallel("nnodes") > 1 else ""
    return ctx.error(
        "gpu-count",
        f"{' x '.join(sizes)}{nodes} takes {ctx.local_ranks} GPUs{start}, "
        f"{visible} are visible{by}",
        "use a smaller --tp-size, or let it see more GPUs",
        "--tp-size",
    )


def balance(ctx: Context, gpus: list[GpuFacts]) -> Iterator[Finding]:
    """Ranks whose memory is taken by something else."""
    free = [(g.free_mib, g) for g in gpus if g.free_mib is not None]
    if len(free) < 2 or len(free) < len(gpus):
        return
    least, worst = min(free, key=lambda item: item[0])
    most, _ = max(free, key=lambda item: item[0])
    if least < _UNBALANCED * most:
        yield ctx.error(
            "gpu-unbalanced",
            f"GPU {worst.index} has {least:.0f} MiB free, another one {most:.0f}: the start ends "
            f"with 'memory capacity is unbalanced'{holders(worst)}",
            "stop what holds it",
            "--tp-size",
        )


def holders(gpu: GpuFacts) -> str:
    """Who has the device's memory, in words."""
    return f" (held by {', '.join(gpu.holders[:3])})" if gpu.holders else ""


def weight_mib(facts: ModelFacts | None) -> tuple[float, str] | None:
    """MiB of a model's weights, and where the number is from; None where unknown."""
    if facts is None:
        return None
    sizes = [s for n, s in (facts.files or {}).items() if n.endswith(_WEIGHT_FILES)]
    if sizes and not facts.problem:
        safe = [s for n, s in (facts.files or {}).items() if n.endswith(".safetensors")]
        return sum(safe or sizes) / _MIB, "files"
    estimate = parameter_bytes(facts.config)
    return (estimate / _MIB, "config") if estimate is not None else None


def fit(ctx: Context, gpus: list[GpuFacts]) -> Iterator[Finding]:
    """Weights, and at least one request's KV cache, inside the fraction of free memory."""
    target = weight_mib(ctx.facts.target)
    known = [g for g in gpus if g.free_mib is not None]
    if target is None or not known or len(known) < len(gpus) or elsewhere(ctx):
        return
    quantised = target[1] == "config" and online(ctx)
    gpu = min(known, key=lambda g: g.free_mib or 0.0)
    free = gpu.free_mib or 0.0
    ranks = ctx.parallel("tp-size") * ctx.parallel("pp-size")
    draft = weight_mib(ctx.facts.draft) if ctx.draft_path else None
    weights = (target[0] + (draft[0] if draft else 0.0)) / ranks
    sure = _SURE if target[1] == "config" else 1.0
    given = ctx.settings.number("mem-fraction-static")
    fraction = given if given is not None and 0 < given < 1 else _DEFAULT_FRACTION
    room = free * fraction
    sum_ = (
        f"weights {target[0]:.0f}{f' + draft {draft[0]:.0f}' if draft else ''} MiB over {ranks} "
        f"ranks = {weights:.0f} MiB each; GPU {gpu.index} has {free:.0f} MiB free, of which "
        f"{fraction:g} is {room:.0f}"
    )
    if weights * sure + _RUNTIME_MIB >= room and not quantised:
        yield ctx.error(
            "gpu-memory",
            f"{sum_}: nothing is left for the KV cache{holders(gpu)}",
            "free the GPUs, use a larger --tp-size, or a quantised model",
            "--mem-fraction-static",
            "--tp-size",
        )
        return
    if (gpu.total_mib or 0.0) * _HELD > free:
        yield from shared(ctx, gpu, weights, given)
    else:
        yield from headroom(ctx, gpu, free, fraction, given is not None)
    yield from cache_room(ctx, room - weights, sum_)


def elsewhere(ctx: Context) -> bool:
    """Whether part of the weights stays in the machine's own memory."""
    names = ("cpu-offload-gb", "offload", "kt-")
    return any(key.startswith(names) and ctx.settings.values[key] for key in ctx.settings.values)


def online(ctx: Context) -> bool:
    """Whether the weights shrink while they are loaded, which an estimate does not know."""
    return ctx.settings.text("quantization") not in (None, "unquant")


def outside(ctx: Context) -> float:
    """MiB that graphs, activations and the draft's take outside the fraction."""
    parts = {"activations"}
    if not ctx.settings.on("disable-cuda-graph"):
        parts.add("graphs")
    if ctx.draft_path or (ctx.own_draft and ctx.algorithm):
        parts.add("draft")
    return sum(_GRAPHS_MIB[part] for part in parts)


def small_graphs(ctx: Context) -> bool:
    """Whether the graphs are asked for few requests at a time."""
    largest = ctx.settings.integer("cuda-graph-max-bs") or ctx.settings.integer(
        "max-running-requests"
    )
    return largest is not None and largest <= _FEW


def shared(
    ctx: Context, gpu: GpuFacts, weights_mib: float, given: float | None
) -> Iterator[Finding]:
    """A device that something else uses too: the fraction is taken of what that leaves.

    A small model with graphs for few requests needs less than is usual, so it is warned of only.
    """
    fraction = given if given is not None and 0 < given < 1 else _USUAL_FRACTION
    free = gpu.free_mib or 0.0
    needs, left = outside(ctx), free * (1 - fraction)
    small = small_graphs(ctx) and weights_mib < _SMALL_MIB
    total = gpu.total_mib or 0.0
    held = (
        f"GPU {gpu.index} has {free:.0f} of {total:.0f} MiB free{holders(gpu)}; "
        f"--mem-fraction-static {fraction:g} is taken of that and leaves {left:.0f} MiB for graphs "
        f"and activations, about {needs:.0f} are needed"
    )
    better = max(0.1, round(1 - needs / free, 2)) if free > needs else 0.1
    if left < 0.8 * needs * (_SMALL_SHARE if small else 1.0):
        yield ctx.error(
            "gpu-held",
            f"{held}: the start ends out of memory after the weights have loaded",
            f"stop what holds it, or use --mem-fraction-static {better:g}",
            "--mem-fraction-static",
        )
    elif left < needs:
        yield ctx.warning(
            "gpu-held", held, f"use --mem-fraction-static {better:g}", "--mem-fraction-static"
        )


def cache_room(ctx: Context, room_mib: float, arithmetic: str) -> Iterator[Finding]:
    """Whether one request of full length fits into what is left for the KV cache."""
    context = ctx.target_context()
    if context is None or ctx.target is None:
        return
    dtype = ctx.settings.text("kv-cache-dtype") or "auto"
    item = 1.0 if dtype.startswith("fp8") else item_bytes(ctx.target)
    ranks = max(1, ctx.parallel("tp-size") // ctx.attention_dp)
    per_token = kv_bytes_per_token(ctx.target, ranks, item)
    if not per_token:
        return
    if ctx.draft_path:
        per_token += kv_bytes_per_token(ctx.draft, ranks, item) or 0.0
    tokens = int(room_mib * _MIB / per_token * ctx.parallel("pp-size"))
    if tokens < context.tokens:
        yield ctx.warning(
            "kv-small",
            f"{arithmetic}; the rest holds about {tokens} tokens of KV cache "
            f"({per_token / 1024:.1f} KiB each), a request may have {context.tokens}",
            f"use --context-length {max(tokens // 1024 * 1024, 1024)}, or a larger --tp-size",
            "--context-length",
            "--mem-fraction-static",
        )


def headroom(
    ctx: Context, gpu: GpuFacts, free: float, fraction: float, given: bool
) -> Iterator[Finding]:
    """What is left outside the fraction for graphs and activations."""
    needs = 2048.0 + (1024.0 if ctx.algorithm else 0.0)
    left = free * (1 - fraction)
    if given and left < needs and free > 8 * needs:
        better = max(0.5, round(1 - needs / free, 2))
        yield ctx.warning(
            "gpu-headroom",
            f"--mem-fraction-static {fraction:g} leaves {left:.0f} of {free:.0f} MiB on GPU "
            f"{gpu.index} for graphs and activations, {needs:.0f} are usual"
            + (" with a draft" if ctx.algorithm else ""),
            f"use {better:g}",
            "--mem-fraction-static",
            change=Change(flags={"mem-fraction-static": better}),
        )


def host_memory(ctx: Context) -> Iterator[Finding]:
    """On a CPU the machine's own memory holds the weights."""
    target, free = weight_mib(ctx.facts.target), ctx.facts.memory_free_mib
    on_cpu = ctx.facts.gpus == () or ctx.settings.text("device") == "cpu"
    if on_cpu and target is not None and free is not None and target[0] > free:
        yield ctx.error(
            "host-memory",
            f"the weights take {target[0]:.0f} MiB, the host has {free:.0f} MiB free",
            "use a smaller model or free memory",
            "--model-path",
        )
