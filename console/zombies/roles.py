"""What a process is, read from its title: launcher, rank, helper of a model server, or none.

Titles are those of SGLang 0.5.3 to 0.5.23, vLLM, Python's multiprocessing, torch's compile workers
and the bundled server. A title is only a hint: it is never reason enough to signal anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from console.model import Process


class Part(StrEnum):
    """A process's part in a server."""

    LAUNCHER = "launcher"
    RANK = "rank"
    WORKER = "worker"
    HELPER = "helper"


@dataclass(frozen=True, slots=True)
class Role:
    """Engine and part; ``engine`` is empty for helpers that any Python program may have."""

    engine: str
    part: Part


_TITLES: tuple[tuple[re.Pattern[str], Role], ...] = (
    (re.compile(r"(?:sglang|sgl_diffusion)::scheduler"), Role("sglang", Part.RANK)),
    (re.compile(r"(?:sglang|sgl_diffusion)::"), Role("sglang", Part.WORKER)),
    (re.compile(r"eagle3::scheduler"), Role("bundled", Part.RANK)),
    (re.compile(r"eagle3::"), Role("bundled", Part.WORKER)),
    (re.compile(r"VLLM::(?:EngineCore|Worker)"), Role("vllm", Part.RANK)),
    (re.compile(r"VLLM::"), Role("vllm", Part.WORKER)),
)
# The kernel keeps 15 bytes of a name: all that is left of a process whose main thread has ended.
_SHORT: tuple[tuple[str, Role], ...] = (
    ("sglang::schedul", Role("sglang", Part.RANK)),
    ("sgl_diffusion::", Role("sglang", Part.RANK)),
    ("sglang::", Role("sglang", Part.WORKER)),
    ("eagle3::schedul", Role("bundled", Part.RANK)),
    ("eagle3::", Role("bundled", Part.WORKER)),
    ("VLLM::EngineCor", Role("vllm", Part.RANK)),
    ("VLLM::Worker", Role("vllm", Part.RANK)),
    ("VLLM::", Role("vllm", Part.WORKER)),
)
_MODULES = {
    "sglang.launch_server": "sglang",
    "sglang.srt.launch_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "eagle3.launch_server": "bundled",
    "eagle3": "bundled",
}
_SCRIPTS = {"sglang": "sglang", "vllm": "vllm", "specops": "bundled"}
_HELPER = re.compile(
    r"from multiprocessing[.\w]* import|torch/_inductor/compile_worker|--multiprocessing-fork"
)


def role(process: Process) -> Role | None:
    """The role its title suggests, or ``None``."""
    argv = process.argv
    if not argv:
        return next((role for name, role in _SHORT if process.comm.startswith(name)), None)
    for pattern, found in _TITLES:
        if pattern.match(argv[0]):
            return found
    if engine := launches(argv):
        return Role(engine, Part.LAUNCHER)
    if _HELPER.search(process.title):
        return Role("", Part.HELPER)
    return None


def launches(argv: Sequence[str]) -> str | None:
    """The engine when the words start a server: ``python -m MODULE`` or ``SCRIPT serve``.

    Only the words in those places count, so an editor or a grep whose arguments hold the text is
    not taken for a server.
    """
    if not any(w == "serve" or w in _MODULES or w.endswith("launch_server.py") for w in argv):
        return None  # nearly every process of a host: a look asks this of each
    name = PurePosixPath(argv[0]).name
    if name.startswith(("python", "pypy")):
        rest = list(argv[1:])
        while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
            # -X and -W take a value
            rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
        if len(rest) >= 2 and rest[0] == "-m":
            return _MODULES.get(rest[1])
        if len(rest) >= 2 and rest[0] != "-c":
            return _script(rest)
        return None
    return _script(argv)


def _script(words: Sequence[str]) -> str | None:
    path = PurePosixPath(words[0])
    if path.name == "launch_server.py" and path.parent.name in ("sglang", "eagle3", "srt"):
        return "bundled" if path.parent.name == "eagle3" else "sglang"
    if len(words) >= 2 and words[1] == "serve":
        return _SCRIPTS.get(path.name)
    return None


def flag(argv: Sequence[str], *names: str) -> str | None:
    """The last value of a flag, in either spelling (``--tp 8``, ``--tp=8``), or ``None``."""
    value = None
    for word, after in zip(argv, (*argv[1:], ""), strict=False):
        name, equals, rest = word.partition("=")
        if name in names:
            value = rest if equals else after
    return value


def _number(argv: Sequence[str], *names: str) -> int:
    text = flag(argv, *names)
    return int(text) if text is not None and text.isdecimal() and int(text) > 0 else 1


def expected_ranks(engine: str, argv: Sequence[str]) -> int | None:
    """How many ranks this launcher should have on its own host, or ``None`` where unknown.

    SGLang: tensor x pipeline ranks over the nodes, times data-parallel replicas unless these share
    the tensor ranks. vLLM names its processes by version, so only "at least one" is known.
    """
    if engine == "vllm":
        return 1
    if engine == "bundled":
        return 1
    if engine != "sglang":
        return None
    tensor = _number(argv, "--tp-size", "--tp", "--tensor-parallel-size")
    pipeline = _number(argv, "--pp-size", "--pp", "--pipeline-parallel-size")
    data = _number(argv, "--dp-size", "--dp", "--data-parallel-size")
    nodes = _number(argv, "--nnodes")
    shared = "--enable-dp-attention" in argv
    return max(1, tensor * pipeline // nodes) * (1 if shared else data)


def port(argv: Sequence[str], engine: str) -> int | None:
    """The port in a launcher's arguments, or the engine's default."""
    text = flag(argv, "--port")
    if text is not None:
        return int(text) if text.isdecimal() else None
    return {"sglang": 30000, "vllm": 8000, "bundled": 30000}.get(engine)


def rank_name(process: Process) -> str:
    """``TP3`` out of a rank's title, or the whole title."""
    found = re.search(r"scheduler_?(.*)", process.argv[0] if process.argv else "")
    return found[1].strip() or "TP0" if found else process.title
