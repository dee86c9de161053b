"""A rule's fix in the words and flags of the engine that failed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from console.diagnosis.rules import Rule
from console.model import Change

_VLLM: Mapping[str, str | None] = {
    "mem-fraction-static": "gpu-memory-utilization",
    "context-length": "max-model-len",
    "max-running-requests": "max-num-seqs",
    "chunked-prefill-size": "max-num-batched-tokens",
    "tp-size": "tensor-parallel-size",
    "pp-size": "pipeline-parallel-size",
    "dp-size": "data-parallel-size",
    "disable-cuda-graph": "enforce-eager",
    "cuda-graph-max-bs": "max-cudagraph-capture-size",
    "watchdog-timeout": None,
    "dist-timeout": None,
    "speculative-algorithm": None,
    "speculative-num-steps": None,
    "speculative-eagle-topk": None,
    "speculative-num-draft-tokens": None,
    "skip-server-warmup": None,
}
"""SGLang's flag to vLLM's of the same meaning (vllm engine/arg_utils.py); None: it has none."""

_FLAG = re.compile(r"--([a-z][a-z0-9-]+)")
_VLLM_SPEAKS = (
    "vLLM API server",
    "EngineCore",
    "VllmWorker",
    "VLLM::",
    "/vllm/v1/",
    "/vllm/engine/",
)
_SGLANG_SPEAKS = ("server_args=", "sglang/srt/", "sglang::", "Scheduler hit an exception")


def spoken_by(text: str) -> str | None:
    """The engine that a log comes from, as its own words show it; ``None`` when they don't."""
    if any(word in text for word in _SGLANG_SPEAKS):
        return "sglang"
    return "vllm" if any(word in text for word in _VLLM_SPEAKS) else None


def fill(text: str, groups: Mapping[str, str]) -> str:
    """The text with ``{name}`` replaced by what the rule's patterns caught under that name."""
    return re.sub(r"\{([a-z]\w*)\}", lambda m: groups.get(m[1], m[0]), text)


def fix_text(rule: Rule, groups: Mapping[str, str], engine: str | None) -> str:
    """What to do, with the flags of the engine."""
    text = fill(rule.fix, groups)
    if engine != "vllm":
        return text
    return _FLAG.sub(lambda m: f"--{_VLLM.get(m[1]) or m[1]}", text)


def change_of(rule: Rule, groups: Mapping[str, str], engine: str | None) -> Change | None:
    """The change to flags and variables that a rule names, or ``None`` where nothing is left."""
    flags: dict[str, Any] = {}
    for name, value in rule.flags.items():
        own = _VLLM.get(name, name) if engine == "vllm" else name
        if own is None:
            continue
        filled = fill(value, groups) if isinstance(value, str) else value
        flags[own] = int(filled) if isinstance(filled, str) and filled.isdigit() else filled
    env = {
        name: None if value is None else fill(str(value), groups)
        for name, value in rule.env.items()
        if engine != "vllm" or not name.startswith("SGLANG_")
    }
    if not flags and not env:
        return None
    why, risk = fill(rule.explanation, groups), fill(rule.risk, groups)
    return Change(flags, env, why=why, risk=risk)
