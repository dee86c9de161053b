"""Which log lines begin and end a step of a start, for SGLang, vLLM and the bundled server.

Steps are finer than phases: reading weights and then compiling piecewise graphs are told apart even
where both belong to one phase of the contract. The bundled server prints SGLang's lines.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from console.model import Phase


class Event(NamedTuple):
    """A line that means something: ``begin`` or ``end`` of a step, or a turn of the whole start."""

    what: str
    step: str = ""


STEP_PHASE: dict[str, Phase] = {
    "args": Phase.ARGS,
    "tokenizer": Phase.ARGS,
    "distributed": Phase.DIST_INIT,
    "import-models": Phase.DIST_INIT,
    "load": Phase.LOAD_TARGET,
    "kv-cache": Phase.KV_TARGET,
    "autotune": Phase.AUTOTUNE,
    "compile": Phase.AUTOTUNE,
    "graph": Phase.GRAPH_TARGET,
    "piecewise-graph": Phase.GRAPH_TARGET,
    "draft-init": Phase.LOAD_DRAFT,
    "draft-load": Phase.LOAD_DRAFT,
    "draft-kv-cache": Phase.KV_DRAFT,
    "draft-graph": Phase.GRAPH_DRAFT,
    "draft-extend-graph": Phase.GRAPH_DRAFT,
    "http": Phase.SCHEDULER_READY,
    "warmup": Phase.WARMUP,
    "ready": Phase.READY,
    "draining": Phase.DRAINING,
    "stopped": Phase.STOPPED,
    "failed": Phase.FAILED,
}

_B, _E = "begin", "end"

# literal -> event; the first literal that a line holds decides. SGLang: srt/model_executor,
# srt/managers/scheduler.py, srt/entrypoints of 0.5.3.post3, 0.5.9, 0.5.12.post1 and 0.5.23;
# vLLM: v1/engine, v1/worker, model_executor/model_loader of 0.8 to 0.28.
LITERALS: tuple[tuple[str, Event], ...] = (
    ("server_args=", Event("start")),
    ("vLLM API server version", Event("start")),
    ("Init torch distributed begin", Event(_B, "distributed")),
    ("Init torch distributed ends", Event(_E, "distributed")),
    ("sglang is using nccl", Event("nccl", "distributed")),
    ("vLLM is using nccl", Event("nccl", "distributed")),
    ("LLM engine (v", Event("nccl", "distributed")),
    ("Load weight begin", Event(_B, "load")),
    ("Load weight end", Event(_E, "load")),
    ("Starting to load model", Event(_B, "load")),
    ("Loading drafter model", Event(_B, "draft-load")),
    ("Model loading took", Event(_E, "load")),
    ("Using KV cache dtype", Event(_B, "kv-cache")),
    ("KV Cache is allocated", Event(_B, "kv-cache")),
    ("KV Cache VA upper bound", Event(_B, "kv-cache")),
    ("Memory pool end", Event(_E, "kv-cache")),
    ("Available KV cache memory", Event(_B, "kv-cache")),
    ("Maximum concurrency for", Event(_E, "kv-cache")),
    ("Running FlashInfer autotune", Event(_B, "autotune")),
    ("FlashInfer autotune completed", Event(_E, "autotune")),
    ("Dynamo bytecode transform", Event(_B, "compile")),
    ("torch.compile takes", Event(_E, "compile")),
    ("torch.compile took", Event(_E, "compile")),
    ("Capturing CUDA graph", Event("bar", "graph")),
    ("Graph capturing finished", Event(_E, "graph")),
    ("init engine (profile, create kv cache", Event(_B, "http")),
    ("max_total_num_tokens=", Event(_B, "http")),
    ("Starting vLLM API server", Event(_B, "http")),
    ("Uvicorn running on", Event("listening", "http")),
    ("The server is fired up and ready to roll", Event(_B, "ready")),
    ("Application startup complete", Event("startup")),
    ("Prefill batch", Event("batch")),
    ("Shutting down", Event(_B, "draining")),
    ("Gracefully exiting", Event(_B, "draining")),
    ("SIGTERM received", Event(_B, "draining")),
    ("Waiting for application shutdown", Event(_B, "draining")),
    ("Finished server process", Event(_B, "stopped")),
    ("hit an exception: Traceback", Event(_B, "failed")),
    ("eceived sigquit", Event(_B, "failed")),
    ("SIGQUIT received", Event(_B, "failed")),
    ("crashed with exit code", Event(_B, "failed")),
    ("scheduler died during initialization", Event(_B, "failed")),
    ("scheduler is dead", Event(_B, "failed")),
    ("Initialization failed", Event(_B, "failed")),
    ("EngineCore failed to start", Event(_B, "failed")),
    ("EngineCore encountered a fatal error", Event(_B, "failed")),
    ("Engine core initialization failed", Event(_B, "failed")),
    ("error while attempting to bind", Event(_B, "failed")),
    ("atchdog timeout (self", Event(_B, "failed")),
    ("Fatal Python error", Event(_B, "failed")),
)

ENDS: tuple[bytes, ...] = tuple(
    literal.encode()
    for literal, event in LITERALS
    if event.what == "start" or event.step in ("failed", "draining", "stopped")
)
"""Only a line with one of these changes anything for a server that is ready."""

_CAPTURE = re.compile(
    r"Capture (?P<what>(?:draft |target |piecewise |prefill |decode |verify |extend |cuda |CUDA )+)"
    r"graph (?P<edge>begin|end)"
)


def capture_event(text: str) -> Event | None:
    """The event of a ``Capture ... graph begin|end`` line; wording differs by version."""
    match = _CAPTURE.search(text)
    if not match:
        return None
    what = match["what"].lower()
    if "draft" in what:
        step = "draft-extend-graph" if "extend" in what else "draft-graph"
    else:
        step = "piecewise-graph" if "piecewise" in what or "prefill" in what else "graph"
    return Event(match["edge"], step)


def event_of(text: str) -> Event | None:
    """What a line means for the start, or ``None`` for the many that mean nothing."""
    if text.startswith(("Decode batch", "  ")):
        return None
    if "Capture " in text and (found := capture_event(text)):
        return found
    for literal, event in LITERALS:
        if literal in text:
            return event
    return None
