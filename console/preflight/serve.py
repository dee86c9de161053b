"""``sglang serve``: what this program takes itself before the server's parser sees the rest.

Facts: SGLang cli/serve.py and cli/utils.py of every version; the program is there from 0.5.5,
``--model-type`` from 0.5.10, a model without a flag from 0.5.16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from console.model import Finding, Severity
from console.preflight.command import LaunchCommand, is_flag
from console.preflight.tables import Tables, order

_TYPES = ("auto", "llm", "diffusion")
_DIFFUSION = frozenset(
    {
        *("--num-gpus", "--ulysses-degree", "--ring-degree", "--sp-degree", "--cfg-parallel-size"),
        *("--enable-cfg-parallel", "--dit-cpu-offload", "--dit-layerwise-offload", "--backend"),
        *("--vae-cpu-offload", "--text-encoder-cpu-offload", "--image-encoder-cpu-offload"),
        *("--pin-cpu-memory", "--use-fsdp-inference", "--hsdp-shard-dim", "--hsdp-replicate-dim"),
        *("--adjust-frames", "--cache-dit-config", "--pipeline-class-name", "--webui"),
    }
)
"""Flags of the image and video server that the same program starts."""


def is_serve(command: LaunchCommand) -> bool:
    """Whether the launch goes through ``sglang serve``."""
    return command.engine == "sglang" and command.entry.endswith("serve")


def is_diffusion(command: LaunchCommand) -> bool:
    """Whether its flags are those of a server for images or video."""
    if not is_serve(command):
        return False
    named = {word.partition("=")[0] for word in command.args if is_flag(word)}
    return bool(named & _DIFFUSION) or _model_type(command.args)[0] == "diffusion"


def unwrapped(command: LaunchCommand, tables: Tables) -> tuple[LaunchCommand, tuple[Finding, ...]]:
    """The command as the server's own parser gets it, and what the program itself refuses."""
    if not is_serve(command):
        return command, ()
    version = tables.table.version
    found: list[Finding] = []
    args = list(command.args)

    def since(first: str) -> bool:
        return bool(tables.note) or order(version) >= order(first)

    if not since("0.5.5"):
        found.append(
            _error(
                "entry-missing",
                f"SGLang {version} has no program sglang: 'command not found'",
                "use python3 -m sglang.launch_server",
            )
        )
    if since("0.5.10"):
        kind, args = _model_type(args)
        if kind is not None and kind not in _TYPES and not since("0.5.22"):
            wrong = f"--model-type '{kind[:40]}' is none of {', '.join(_TYPES)}"
            found.append(_error("flag-value", wrong, "leave it out", "--model-type"))
    if args and not is_flag(args[0]) and "$" not in args[0] and since("0.5.16"):
        args = ["--model-path", *args]
    return replace(command, args=tuple(args)), tuple(found)


def _model_type(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of --model-type, and the words without it."""
    out: list[str] = []
    kind: str | None = None
    words = iter(args)
    for word in words:
        name, eq, value = word.partition("=")
        if name != "--model-type":
            out.append(word)
        else:
            kind = value if eq else next(words, "")
    return kind, out


def _error(rule: str, message: str, fix: str, *flags: str) -> Finding:
    return Finding(rule, Severity.ERROR, message, fix, flags, None, "cli/serve.py")
