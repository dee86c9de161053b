"""Rules over ranks: nodes, replicas, split attention, and what has to divide over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.model import Finding
from console.preflight.context import Context, truthy
from console.preflight.models import has_experts, text_config, uses_mla, whole
from console.preflight.rules.devices import on_cpu
from console.preflight.rules.overrides import SPREADING

_OWN_ADDRESSES = ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104 - compared, not bound
_SIZES = (
    *("tp-size", "pp-size", "dp-size", "ep-size"),
    *("max-running-requests", "max-total-tokens", "page-size"),
)


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over ranks."""
    if not ctx.bundled:
        yield from sizes(ctx)
    yield from nodes(ctx)
    yield from data_parallel(ctx)
    yield from experts(ctx)
    yield from head_split(ctx, "target")
    if ctx.draft_path:
        yield from head_split(ctx, "draft")
    yield from quantised_blocks(ctx)
    yield from pipeline(ctx)


def sizes(ctx: Context) -> Iterator[Finding]:
    """Sizes that nothing can be split into; the argument check lets most of them through."""
    for key in _SIZES:
        value = ctx.settings.integer(key)
        if value is not None and value < 1:
            yield ctx.error("size-range", f"--{key} {value} is below 1", "leave it out", f"--{key}")


def experts(ctx: Context) -> Iterator[Finding]:
    """Expert-parallel groups divide the tensor-parallel group, unless they are replaced by it."""
    if ctx.settings.text("moe-a2a-backend") in SPREADING:
        return
    ep, tp = ctx.parallel("ep-size"), ctx.parallel("tp-size")
    if ep > 1 and tp % ep and not ctx.settings.unknown("tp-size", "ep-size"):
        yield ctx.error(
            "ep-tp",
            f"--ep-size {ep} does not divide --tp-size {tp}",
            f"use an --ep-size that divides {tp}, such as {tp}",
            "--ep-size",
            "--tp-size",
        )


def nodes(ctx: Context) -> Iterator[Finding]:
    """Several nodes: ranks divide evenly, have one meeting point, and a rank each."""
    count = ctx.settings.integer("nnodes", 1)
    rank = ctx.settings.integer("node-rank", 0)
    world = ctx.parallel("tp-size") * ctx.parallel("pp-size")
    if count is None or count < 1:
        if "nnodes" in ctx.settings and count is not None:
            yield ctx.error("nnodes-range", f"--nnodes {count} is below 1", "use 1", "--nnodes")
        return
    if world % count and not ctx.settings.unknown("tp-size", "pp-size"):
        yield ctx.error(
            "tp-nnodes",
            f"tp-size x pp-size = {world} ranks do not divide over --nnodes {count}",
            f"use a tp-size that is a multiple of {count}",
            "--tp-size",
            "--nnodes",
        )
    if rank is not None and not 0 <= rank < count:
        yield ctx.error(
            "node-rank-range",
            f"--node-rank {rank} does not exist with --nnodes {count}: ranks are 0 to {count - 1}",
            "number the nodes from 0",
            "--node-rank",
            "--nnodes",
        )
    yield from meeting_point(ctx, count)


def meeting_point(ctx: Context, count: int) -> Iterator[Finding]:
    """--dist-init-addr: needed by several nodes, HOST:PORT."""
    address = ctx.settings.text("dist-init-addr")
    if count > 1 and "dist-init-addr" not in ctx.settings:
        yield ctx.error(
            "dist-init-addr",
            f"--nnodes {count} without --dist-init-addr: every node makes an address of its own "
            "and waits for the others until the process group times out",
            "give every node the same --dist-init-addr FIRST_NODE:PORT",
            "--dist-init-addr",
            "--nnodes",
        )
    elif address is not None:
        host, colon, port = address.removeprefix("tcp://").rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            yield ctx.error(
                "dist-init-addr",
                f"--dist-init-addr '{address[:60]}' is not HOST:PORT",
                "write it as 10.0.0.1:20000",
                "--dist-init-addr",
            )
        elif count > 1 and host.strip("[]") in _OWN_ADDRESSES:
            yield ctx.warning(
                "dist-init-addr",
                f"--dist-init-addr {address} is this machine for every node: nodes on different "
                "machines never meet",
                "give the first node's address in the network that joins them",
                "--dist-init-addr",
            )


def data_parallel(ctx: Context) -> Iterator[Finding]:
    """Replicas stay on one node; split attention divides the tensor-parallel group."""
    dp, tp = ctx.parallel("dp-size"), ctx.parallel("tp-size")
    split = ctx.attention_dp
    if ctx.settings.unknown("dp-size", "tp-size", "attn-dp-size"):
        return
    if dp > 1 and split == 1 and ctx.parallel("nnodes") > 1:
        yield ctx.error(
            "dp-nodes",
            f"--dp-size {dp} makes replicas, which cannot span --nnodes {ctx.parallel('nnodes')}",
            "add --enable-dp-attention, or launch one server per node",
            "--dp-size",
            "--nnodes",
        )
    if split > 1 and tp % split:
        yield ctx.error(
            "dp-attention-tp",
            f"--enable-dp-attention splits tp-size {tp} into dp-size {split} groups, "
            "which does not come out even",
            f"use a tp-size that is a multiple of {split}",
            "--tp-size",
            "--dp-size",
        )


def head_split(ctx: Context, which: str) -> Iterator[Finding]:
    """The same for the target or the draft: both are split over the same ranks."""
    config = ctx.target if which == "target" else ctx.draft
    tp, split = ctx.parallel("tp-size"), ctx.attention_dp
    if config is None or ctx.settings.unknown("tp-size") or tp % split or on_cpu(ctx):
        return
    ranks = tp // split
    prefix = "" if which == "target" else "draft-"

    count = whole(config, "num_attention_heads")
    if count and count % ranks:
        yield ctx.error(
            f"{prefix}tp-heads",
            f"the {which}'s {count} attention heads do not divide over {ranks} ranks "
            "(tp-size / split attention); each rank fails after the process group is up",
            f"use a tp-size that divides {count}: {divisors(count)}",
            "--tp-size",
        )
        return
    kv = whole(config, "num_key_value_heads")
    if kv and not uses_mla(config) and kv % ranks and ranks % kv:
        yield ctx.error(
            f"{prefix}tp-kv-heads",
            f"the {which}'s {kv} key-value heads can be neither split nor copied evenly over "
            f"{ranks} ranks",
            f"use a tp-size that divides {kv} or is a multiple of it",
            "--tp-size",
        )
    inner = whole(config, "intermediate_size")
    if inner and not has_experts(config) and inner % tp:
        yield ctx.error(
            f"{prefix}tp-mlp",
            f"the {which}'s intermediate_size {inner} does not divide over tp-size {tp}",
            "use a tp-size that divides it",
            "--tp-size",
        )


def quantised_blocks(ctx: Context) -> Iterator[Finding]:
    """Block-wise fp8 weights are cut at whole blocks only."""
    quantised = text_part(ctx.target).get("quantization_config")
    block = quantised.get("weight_block_size") if isinstance(quantised, Mapping) else None
    if not isinstance(block, list) or not block or not isinstance(block[0], int) or block[0] < 1:
        return
    unknown = ctx.settings.unknown("tp-size", "ep-size", "moe-a2a-backend")
    if on_cpu(ctx):
        return
    if unknown or "moe-dp-size" in ctx.settings or truthy(ctx.command.env.get("SGLANG_USE_AITER")):
        return
    ranks = ctx.parallel("tp-size")
    moe = has_experts(ctx.target)
    if moe:
        spread = (ctx.settings.text("moe-a2a-backend") or "none") != "none"
        ranks = (
            1 if spread or ctx.settings.on("enable-ep-moe") else ranks // ctx.parallel("ep-size")
        )
    keys = ("moe_intermediate_size", "intermediate_size") if moe else ("intermediate_size",)
    inner = whole(ctx.target, *keys)
    if inner and ranks > 1 and inner % ranks == 0 and inner // ranks % block[0]:
        yield ctx.error(
            "tp-fp8-block",
            f"{keys[0]} {inner} over {ranks} ranks is {inner // ranks}, no multiple of the "
            f"checkpoint's fp8 block of {block[0]}; every rank fails while the weights load",
            f"add --ep-size {ranks}, or use a smaller --tp-size"
            if moe
            else "use a smaller tp-size",
            "--tp-size",
            *(("--ep-size",) if moe else ()),
        )


def text_part(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The part with the quantisation: the whole config's own, else the language model's."""
    whole_config = config or {}
    has_own = "quantization_config" in whole_config
    return whole_config if has_own else text_config(whole_config)


def divisors(count: int) -> str:
    """The sizes a power-of-two machine would use that divide the count."""
    return ", ".join(str(n) for n in (1, 2, 4, 8, 16, 32, 64) if count % n == 0)


def pipeline(ctx: Context) -> Iterator[Finding]:
    """More pipeline stages than layers."""
    stages, layers = ctx.parallel("pp-size"), whole(ctx.target, "num_hidden_layers")
    if layers and stages > layers:
        yield ctx.error(
            "pp-layers",
            f"--pp-size {stages} is more than the target's {layers} layers",
            "use fewer stages",
            "--pp-size",
        )
