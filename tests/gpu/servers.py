"""The servers of the GPU suite as entries of hosts.yaml."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
from pathlib import Path
from typing import Any

from eagle3.weights import paths
from tests.gpu.lab import Lab, brief, free_port

ENV = {
    # The packed SGLang has stubs in place of FlashInfer's kernels.
    "SGLANG_IS_FLASHINFER_AVAILABLE": "false",
    "HF_HUB_OFFLINE": "1",
}
NATIVE = str(Path(__file__).parent / "native")
"""Put before PYTHONPATH, it lets a server compute in float32."""
CARRIED = ("PYTHONPATH", "CUDA_HOME", "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST")
"""Variables of this machine that its servers need too."""
ARGS: dict[str, Any] = {
    "attention-backend": "triton",
    "sampling-backend": "pytorch",
    "grammar-backend": "none",
    "disable-piecewise-cuda-graph": True,
    "cuda-graph-max-bs": 4,
    "max-running-requests": 4,
    # Several servers share the GPU: the pool is bounded by tokens, not by a share of what is free.
    "mem-fraction-static": 0.5,
    "max-total-tokens": 16384,
    "enable-metrics": True,
    "dtype": "bfloat16",
}


def port_below(limit: int = 50_000) -> int:
    """A free port that leaves room for SGLang's gRPC port, 10000 above it."""
    while True:
        port = random.SystemRandom().randrange(20_000, limit)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def sglang(
    *, speculative: str | None = "eagle3-3step", target: Path | None = None,
    draft: Path | None = None, env: dict[str, str] | None = None, port: int = 0, **args: Any,
) -> dict[str, Any]:  # fmt: skip
    """A server of SGLang on the shipped pair. ``args`` (``_`` for ``-``) add; ``None`` removes."""
    flags = {**ARGS, **{name.replace("_", "-"): value for name, value in args.items()}}
    carried = {name: os.environ[name] for name in CARRIED if os.environ.get(name)}
    entry: dict[str, Any] = {
        "host": "gpu",
        "engine": "sglang",
        "model": str(target or paths().target),
        "port": port or port_below(),
        "args": {name: value for name, value in flags.items() if value is not None},
        "env": {**carried, **ENV, **(env or {})},
    }
    if speculative or draft:
        entry["draft"] = str(draft or paths().draft)
    if speculative:
        entry["speculative"] = speculative
    return entry


def exact(**args: Any) -> dict[str, Any]:
    """The same in float32, by PyTorch's operations."""
    path = ":".join(p for p in (NATIVE, os.environ.get("PYTHONPATH", "")) if p)
    return sglang(env={"PYTHONPATH": path}, dtype="float32", **args)


def wrapped() -> dict[str, Any]:
    """The bundled server's entry, told to compute with SGLang."""
    entry = sglang()
    del entry["model"], entry["draft"]
    entry["engine"] = "bundled"
    entry["args"]["engine"] = "sglang"
    return entry


def bundled() -> dict[str, Any]:
    """The bundled engine on the CPU: for a rehearsal on a machine without a GPU."""
    return {"host": "gpu", "engine": "bundled", "port": free_port(), "speculative": "eagle3-3step"}


def launch(lab: Lab, name: str, title: str, *, check: bool) -> None:
    """Launch a server and go on; one row. ``check``: with its preflight, which takes seconds."""
    quick = () if check else ("--skip-preflight",)
    code, document, seconds = lab.specops("launch", name, "--yes", *quick, timeout=180)
    lab.keep(f"launch-{name}", document)
    told = f"exit {code}, {seconds:.1f} s, {json.dumps(brief(document, 'outcome', 'detail'))}"
    lab.check(title, f"specops launch {name} --yes", "exit 0", told, code == 0)


def of(lab: Lab, server: str) -> dict[str, Any] | None:
    """The server's row of ``specops status``; ``None`` where it has none."""
    _, document, _ = lab.specops("status", "gpu", timeout=60)
    if not isinstance(document, dict) or "hosts" not in document:
        return None
    rows = [row for row in document["hosts"][0]["servers"] if row["name"] == server]
    return rows[0] if rows else None


def log_of(lab: Lab, server: str) -> Path | None:
    """The newest log that a launch of the server wrote."""
    logs = sorted((lab.folder / "host-state").rglob("*.log"), key=lambda p: p.stat().st_mtime)
    named = [path for path in logs if path.name.startswith(f"{server}-")]
    return named[-1] if named else None
