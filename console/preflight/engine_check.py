"""The host's own engine asked about the same launch, in a short process that touches no GPU.

The pure half: the script, what is sent to it, what its answer means, and the key under which an
answer stays valid. Running it (bounded by ``TIMEOUT_S``) is the caller's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from importlib import resources

from console.model import Finding, Severity
from console.text import clean

SENTINEL = "\x1especops-engine-check\x1e"
"""Stands before the one line that is the answer; imports print lines of their own."""

TIMEOUT_S = 20.0
"""Seconds the process may take; a cold import of the engine takes 8 to 14."""

ENV = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""Variables of the process: no GPU, no download."""

_WORDS = {
    "speculative_num_steps is None": (
        "--speculative-eagle-topk or --speculative-num-draft-tokens is given without "
        "--speculative-num-steps: give all three or none"
    ),
}


_NEEDS_GPU = re.compile(
    r"(?i)blackwell|hopper|\bsm\d+|compute capability|no accelerator|cuda (?:is|device)"
    r"|quantization method specified|unknown quantization method|with page_size"
    r"|supported on cuda|no cuda gpus|compiled with cuda|no gpu memory values|torch_npu"
)
"""Refusals that a process without a GPU may give where one with it would not: backends and kernels
are chosen by the device, and some quantisations (mxfp4) are known only where there is one. The own
rules judge these where the flags alone decide."""

_ASKS_DEVICE = re.compile(r"torch\.(?:cuda|npu|xpu)\.|\bis_(?:cuda|hip|npu|xpu|musa|sm\d+)\w*\(")
"""A statement that asks for the device: what it raises says nothing of the flags."""


def script() -> str:
    """The program to run with the host's python (``python -``), its request on standard input."""
    file = resources.files("console.preflight") / "data" / "engine_check.txt"
    return file.read_text(encoding="utf-8").replace("@SENTINEL@", SENTINEL)


def request(argv: Sequence[str], *, draft: str | None) -> bytes:
    """The line that goes to the script: the engine's arguments, and the draft to be checked."""
    body = {"argv": list(argv), "draft": draft}
    return json.dumps(body).encode() + b"\n"


def cache_key(argv: Sequence[str], config_hashes: Sequence[str], version: str) -> str:
    """A name for this question: the same flags, configs and version have the same answer."""
    body = json.dumps([list(argv), list(config_hashes), version])
    return hashlib.sha256(body.encode()).hexdigest()[:32]


def parse_result(output: bytes, *, timed_out: bool = False) -> tuple[Finding, ...]:
    """What the engine said, as findings; its absence is a warning, never a failure."""
    answer = _answer(output)
    if answer is None:
        if timed_out:
            why = f"it gave no answer in {TIMEOUT_S:.0f} s"
        else:
            lines = clean(output[-400:]).strip()
            why = f"it gave no answer{': ' + lines[-160:] if lines else ''}"
        return (_absent(why),)
    if answer.get("absent"):
        return (_absent(clean(str(answer["absent"]), limit=200)),)
    version = clean(str(answer.get("version", "")), limit=40)
    errors = answer.get("errors")
    items = errors if isinstance(errors, list) else []
    return tuple(_finding(item, version) for item in items if isinstance(item, dict))


_NO_SGLANG = re.compile(r"\AModuleNotFoundError: No module named 'sglang'\Z")


def lacks_engine(output: bytes) -> bool:
    """Whether the interpreter itself said that it has no SGLang at all."""
    said = str((_answer(output) or {}).get("absent", ""))
    return bool(_NO_SGLANG.match(said.removeprefix("import sglang: ")))


def missing(python: str, host: str) -> Finding:
    """An engine that is certainly not there: this launch cannot start."""
    return Finding(
        "engine-missing",
        Severity.ERROR,
        f"{python} on {host} has no SGLang: the launch would end with No module named 'sglang'",
        "name the interpreter that has it (python: of the host or the server), or install it there",
        source="CPython Lib/runpy.py",
    )


def _answer(output: bytes) -> dict[str, object] | None:
    text = output.decode("utf-8", "replace")
    at = text.rfind(SENTINEL)
    if at < 0:
        return None
    line = text[at + len(SENTINEL) :].split("\n", 1)[0]
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _absent(why: str) -> Finding:
    return Finding(
        "engine-check-absent",
        Severity.WARNING,
        f"the host's own engine could not be asked: {why}",
        "the own rules still hold; look whether the server's python imports sglang",
    )


def _finding(item: dict[str, object], version: str) -> Finding:
    kind = clean(str(item.get("type", "error")), limit=60)
    message = clean(str(item.get("message", "")), limit=600)
    code = clean(str(item.get("code", "")), limit=200)
    context = str(item.get("context", ""))
    where = clean(str(item.get("where", "")), limit=120)
    stage = str(item.get("stage", ""))
    rule = "engine-draft" if stage == "draft" else "engine-refuses"
    if not message:
        message = next((words for mark, words in _WORDS.items() if mark in context), code)
    flags = tuple(dict.fromkeys(re.findall(r"--[a-z][a-z0-9-]+", message)))
    unsure = bool(_NEEDS_GPU.search(message) or _ASKS_DEVICE.search(code))
    doubt = " (asked without a GPU, on which this depends)" if unsure else ""
    return Finding(
        rule,
        Severity.WARNING if unsure else Severity.ERROR,
        f"SGLang {version} refuses these flags: {kind}: {message}{doubt}",
        "correct the flags that it names",
        flags[:6],
        None,
        f"{version} {where}".strip(),
    )
