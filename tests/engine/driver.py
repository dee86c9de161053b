"""Runs under the engine's own python: asks the real SGLang about many launches, one fork each.

Reads JSON lines ``{"id", "request", "env"}`` after the script's text (first line, as JSON), writes
``{"id", "output"}`` lines. Importing SGLang takes seconds, so it happens once and every question is
answered by a fork that runs the very script that goes to a host. Standard library only.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types


def without_torchvision_kernels() -> None:
    """Lets torchvision be imported beside a CPU build of torch, whose kernels it cannot load."""
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("_meta_registrations")


def ask(script: str, request: str, env: dict[str, str]) -> str:
    """What the script prints for one request, in a process of its own."""
    into, out = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.environ.update(env)
        os.dup2(into[0], 0)
        os.dup2(out[1], 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stdin = os.fdopen(0)
        sys.stdout = os.fdopen(1, "w")
        os.close(into[1])
        os.close(out[0])
        exec(compile(script, "engine_check", "exec"), {"__name__": "__main__"})
        os._exit(3)
    os.close(into[0])
    os.close(out[1])
    with os.fdopen(into[1], "w") as pipe:
        pipe.write(request)
    with os.fdopen(out[0], encoding="utf-8", errors="replace") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def main() -> None:
    """Answer every question on standard input."""
    without_torchvision_kernels()
    script = json.loads(sys.stdin.readline())
    for name in ("sglang.srt.server_args", "sglang.srt.configs.model_config"):
        importlib.import_module(name)
    for line in sys.stdin:
        question = json.loads(line)
        answer = ask(script, question["request"], question["env"])
        print(json.dumps({"id": question["id"], "output": answer}), flush=True)


if __name__ == "__main__":
    main()
