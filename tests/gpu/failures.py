"""Starts that fail: what preflight said, what watch and diagnose said, and the truth."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.weights import paths
from tests.gpu import servers
from tests.gpu.lab import NO_BYTES, Lab, brief, copy_pair, edit_json, gpu_memory, smi
from tests.gpu.nvml import holder

LIMIT_S = 170
IDLE_MIB = 100
CONTEXT_MIB = 620
"""MiB that a process's CUDA context takes on an H200 besides what it asks for."""
IDLE_S = 300
Make = Callable[[Path], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A start that fails.

    Attributes:
        make: the server's entry, from a folder that holds a copy of the pair.
        truth: what is really wrong, in words.
        categories: those of ``specops diagnose`` that say so.
        refused: whether preflight can know, and so must refuse.
    """

    name: str
    make: Make
    truth: str
    categories: tuple[str, ...]
    refused: bool = True


def context(folder: Path) -> dict[str, Any]:
    target, draft = copy_pair(*paths(), folder)
    edit_json(draft / "config.json", max_position_embeddings=1024)
    return servers.sglang(target=target, draft=draft)


def hidden(folder: Path) -> dict[str, Any]:
    target, draft = copy_pair(*paths(), folder)
    edit_json(draft / "config.json", hidden_size=192, target_hidden_size=None)
    return servers.sglang(target=target, draft=draft)


def truncated(folder: Path) -> dict[str, Any]:
    target, draft = copy_pair(*paths(), folder)
    shard = target / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:3_000_000])
    return servers.sglang(target=target, draft=draft)


def no_draft_weights(folder: Path) -> dict[str, Any]:
    target, draft = copy_pair(*paths(), folder)
    (draft / "model.safetensors").unlink()
    return servers.sglang(target=target, draft=draft)


def no_draft_vocab(folder: Path) -> dict[str, Any]:
    target, draft = copy_pair(*paths(), folder)
    edit_json(draft / "config.json", draft_vocab_size=None)
    return servers.sglang(target=target, draft=draft)


def draft_vocab(folder: Path) -> dict[str, Any]:
    target, draft = copy_pair(*paths(), folder)
    edit_json(draft / "config.json", draft_vocab_size=512)
    return servers.sglang(target=target, draft=draft)


def unknown_architecture(folder: Path) -> dict[str, Any]:
    target, draft = copy_pair(*paths(), folder)
    edit_json(target / "config.json", architectures=["NoSuchForCausalLM"])
    return servers.sglang(target=target, draft=draft)


def partial_flags(_: Path) -> dict[str, Any]:
    flags: dict[str, Any] = {"speculative_algorithm": "EAGLE3", "speculative_eagle_topk": 4,
             "speculative_num_draft_tokens": 3}  # fmt: skip
    return servers.sglang(speculative=None, draft=paths().draft, **flags)


def flagged(**flags: Any) -> Make:
    """A server of the shipped pair with these flags."""
    return lambda _: servers.sglang(**flags)


def own_draft(_: Path) -> dict[str, Any]:
    """The target given as its own draft."""
    return servers.sglang(draft=paths().target)


def missing_tokenizer(folder: Path) -> dict[str, Any]:
    target, draft = copy_pair(*paths(), folder)
    for file in target.glob("tokenizer*"):
        file.unlink()
    return servers.sglang(target=target, draft=draft)


def under(env: dict[str, str], **flags: Any) -> Make:
    """A server of the shipped pair with these variables."""
    return lambda _: servers.sglang(env=env, **flags)


def full_cache(folder: Path) -> dict[str, Any]:
    """A compile cache at a path that is a file."""
    (folder / "cache").write_text("")
    return servers.sglang(env={"TRITON_CACHE_DIR": str(folder / "cache")})


def missing_model(folder: Path) -> dict[str, Any]:
    return servers.sglang(target=folder / "nothing-here")


A = (
    Case("context", context, "the draft's window is 1024, the target's 2048", ("context-length",)),
    Case("partial", partial_flags, "topk without steps", ("args-validation",)),
    Case("hidden", hidden, "the draft's config says 192 wide, its weights and the target are 128",
         ("draft-model", "checkpoint-files")),
    Case("truncated", truncated, "the target's shard ends in its middle", ("checkpoint-files",)),
    Case("backend", flagged(attention_backend="trtllm_mha"),
         "trtllm_mha needs Blackwell, the GPU is Hopper", ("args-validation", "kernel-backend")),
    Case("window", flagged(context_length=262144),
         "262144 tokens of context from a model of 2048", ("context-length",)),
    Case("missing", missing_model, "no model at that path", ("checkpoint-files", "model-support")),
)  # fmt: skip
B = (
    Case("float32", flagged(dtype="float32"), "SGLang's own kernels do not take float32",
         ("model-support", "args-validation")),
    Case("grpc", lambda _: servers.sglang(port=58_123),
         "SGLang takes port + 10000 for gRPC, which is above 65535", ("args-validation",)),
    Case("weightless", no_draft_weights, "the draft's folder has no weights",
         ("draft-model", "checkpoint-files")),
    Case("no-vocab", no_draft_vocab, "the draft's config lacks draft_vocab_size",
         ("draft-model",)),
    Case("vocab", draft_vocab, "draft_vocab_size 512, the draft's head has 768 rows",
         ("draft-model", "checkpoint-files")),
    Case("architecture", unknown_architecture, "no such architecture", ("model-support",)),
    Case("two-gpus", flagged(tp_size=2), "tensor parallel over 2, the machine has 1 GPU",
         ("args-validation", "driver-fabric", "cuda-async")),
    Case("quantized", flagged(quantization="awq"), "awq asked of weights that are not quantized",
         ("quant-tp-shape", "args-validation", "model-support", "checkpoint-files")),
)  # fmt: skip
ALONE = (
    # What is free while others come and go decides; so these have the GPU to themselves.
    Case("small-pool", flagged(mem_fraction_static=0.0005, max_total_tokens=None),
         "0.05 % of the memory holds no KV cache", ("gpu-oom-load",)),
    Case("memory", flagged(mem_fraction_static=0.88, max_total_tokens=None),
         "another process holds all but 700 MiB of the GPU",
         ("gpu-oom-load", "gpu-memory-held", "gpu-oom-runtime")),
)  # fmt: skip
LEFT_MIB = 700
C = (
    Case("no-visible-gpu", under({"CUDA_VISIBLE_DEVICES": "6"}),
         "CUDA_VISIBLE_DEVICES names a GPU that is not there", ("driver-fabric",)),
    Case("interface", under({"GLOO_SOCKET_IFNAME": "nosuch0", "NCCL_SOCKET_IFNAME": "nosuch0"}),
         "GLOO_SOCKET_IFNAME names no interface of the host", ("nccl-init",), refused=False),
    Case("cache-is-a-file", full_cache, "TRITON_CACHE_DIR is a file", ("shm-disk-cache",)),
    Case("no-compiler", under({"CC": "/nonexistent/gcc", "TRITON_CACHE_DIR": "/tmp/specops-cold"}),
         "Triton's C compiler does not exist, its cache is cold", ("toolchain-jit",),
         refused=False),
    Case("override", flagged(json_model_override_args="{'rope': 1"),
         "--json-model-override-args is no JSON", ("args-validation",)),
    Case("own-draft", own_draft, "the target is given as its own draft", ("draft-model",)),
    Case("no-tokenizer", missing_tokenizer, "the target's folder has no tokenizer",
         ("checkpoint-files", "model-support")),
    Case("two-replicas", flagged(dp_size=2), "data parallel over 2, the machine has 1 GPU",
         ("args-validation", "driver-fabric", "cuda-async")),
    Case("experts", flagged(ep_size=2), "expert parallel over 2 with tensor parallel 1",
         ("args-validation", "engine-invariant")),
    Case("tiny-pool", flagged(max_total_tokens=4), "4 tokens of KV cache hold no request",
         ("gpu-oom-load", "args-validation", "engine-invariant"), refused=False),
    Case("late-port", flagged(), "another program takes the port while the server loads",
         ("port-conflict",), refused=False),
)  # fmt: skip
PARTS = {"failures-a": A, "failures-b": B, "failures-c": C}


def run(lab: Lab) -> None:
    """One third of the cases, at once."""
    cases: tuple[Case, ...] = PARTS[lab.part]
    entries = {}
    for case in cases:
        folder = lab.folder / case.name
        folder.mkdir()
        entries[case.name] = case.make(folder)
    if lab.part == "failures-a":
        cases += (port_case(entries),)
    lab.configure(entries)
    with taken_port(entries), ThreadPoolExecutor(len(cases)) as pool:
        launching = threading.Lock()
        list(
            pool.map(lambda case: lab.attempt(case.name, lambda: one(lab, case, launching)), cases)
        )


def port_case(entries: dict[str, dict[str, Any]]) -> Case:
    """A server on a port that another program listens on."""
    entries["port"] = servers.sglang()
    return Case("port", flagged(), "another program listens on the port", ("port-conflict",))


@contextlib.contextmanager
def taken_port(entries: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Listen on the port of the server ``port``, if there is one."""
    with contextlib.ExitStack() as holding:
        if "port" in entries:
            holding.enter_context(listening(entries["port"]["port"]))
        yield


@contextlib.contextmanager
def listening(port: int) -> Iterator[None]:
    """Another program's listener on a port of loopback."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen(8)
        yield


def one(lab: Lab, case: Case, launching: threading.Lock) -> None:
    """Preflight, then the start all the same, then the diagnosis; one row."""
    with contextlib.ExitStack() as holding:
        failing(lab, case, launching, holding)


def failing(lab: Lab, case: Case, launching: threading.Lock, holding: contextlib.ExitStack) -> None:
    """The steps of ``one``."""
    checked, advice, asked_s = lab.specops("preflight", case.name, timeout=240)
    findings = advice.get("findings", []) if isinstance(advice, dict) else []
    errors = [f"{f['rule']}: {f['message'][:110]}" for f in findings if f["severity"] == "error"]
    warned = [f["rule"] for f in findings if f["severity"] == "warning"]
    with launching:  # a host takes one plan at a time
        started = lab.specops("launch", case.name, "--yes", "--skip-preflight", timeout=120)
    if case.name == "late-port":
        holding.enter_context(listening(lab.servers[case.name]["port"]))
    watched, end, seconds = lab.specops("watch", case.name, "--timeout", str(LIMIT_S), timeout=220)
    told, said, diagnosed_s = lab.specops("diagnose", case.name, timeout=60)
    keep(lab, case, {"preflight": advice, "launch": started[1], "watch": end, "diagnose": said})
    seen = {
        "preflight": {
            "exit": checked,
            "s": round(asked_s, 1),
            "errors": errors,
            "warnings": warned,
        },
        "watch": {"exit": watched, "s": round(seconds), **brief(end, "outcome", "phase")},
        "diagnose": {
            "exit": told,
            "s": round(diagnosed_s, 1),
            **brief(said, "category", "summary"),
        },
    }
    if started[0] != 0:
        seen["launch"] = {"exit": started[0], **brief(started[1], "outcome", "detail", "error")}
    category = said.get("category") if isinstance(said, dict) else None
    stopped = started[0] == 6 and case.name == "port"  # not even started
    failed = watched == 6 and category in case.categories
    right = (failed or stopped) and (checked == 5 or not case.refused)
    expected = f"{case.truth}: preflight {'exit 5' if case.refused else 'may pass'}, "
    expected += f"watch exit 6, diagnose {' or '.join(case.categories)}"
    with lab._guard:
        lab.check(case.name, f"specops preflight, launch --skip-preflight, watch, diagnose {case.name}",
                  expected, json.dumps(seen), right)  # fmt: skip
    if watched != 6:
        lab.specops("stop", case.name, "--yes", "--timeout", "5", timeout=90)


def keep(lab: Lab, case: Case, documents: dict[str, Any]) -> None:
    """The documents and the log of a case."""
    lab.keep(case.name, documents)
    if log := servers.log_of(lab, case.name):
        lab.keep_log(str(log), f"{lab.part}-{case.name}")


def last(lab: Lab) -> None:
    """The cases that need the GPU for themselves, as a part of their own."""
    for case in ALONE:
        (lab.folder / case.name).mkdir(exist_ok=True)
    lab.facts["idle_mib"] = gpu_memory()
    alone(lab)
    lab.specops("kill-zombies", "gpu", "--quick", "--yes", timeout=120)
    code, document, _ = lab.specops("zombies", "gpu", "--quick", timeout=60)
    found = [brief(z, "pid", "kind", "resource") for z in document["hosts"][0]["zombies"]]
    lab.check("nothing is left of failed starts", "specops kill-zombies --quick --yes; specops zombies",
              f"none, {lab.facts['idle_mib']:.0f} MiB in use",
              f"exit {code}, {found}, {gpu_memory():.0f} MiB",
              not found and gpu_memory() <= lab.facts["idle_mib"] + NO_BYTES)  # fmt: skip


def alone(lab: Lab) -> None:
    """The cases that need an idle GPU, the last one with another process on it."""
    for case in ALONE:
        until = time.monotonic() + IDLE_S
        while gpu_memory() > IDLE_MIB and time.monotonic() < until:  # others may still run
            time.sleep(1)
        free = float(smi("memory.free")[0][0])
        lab.configure({case.name: case.make(lab.folder)})
        with (
            holder(int(free - CONTEXT_MIB - LEFT_MIB))
            if case.name == "memory"
            else contextlib.nullcontext()
        ):
            one(lab, case, threading.Lock())
