"""What a launch stands on, looked up on the host itself: a program of its own, sent as text.

Runs with whatever python3 a host has (3.8 or later, ``-I -S``), standard library only. Reads one
JSON request on standard input, prints one JSON answer; opens files for reading and nothing else.
Headers of weight files are read here because they are megabytes and their sums are bytes.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MAX_HEADER = 100 * 2**20
"""Bytes; the safetensors format's own limit for a header."""
MAX_JSON = 64 * 2**20
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
MARK = b"\x1especops\x1e"
SECRET = re.compile(r"(?i)token|secret|passw|api_?key|credential|private_?key|auth")


def main() -> None:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.read())
    deadline = time.monotonic() + float(request.get("seconds", 1.0))
    answer: dict[str, Any] = {"python": sys.version.split()[0]}
    if "paths" in request:
        answer["paths"] = {path: look_at(path) for path in request["paths"]}
        answer["driver"] = driver()
    if "models" in request:
        answer["models"] = {
            name: model(path, deadline, names=name == "draft")
            for name, path in request["models"].items()
        }
    if "keep" in request:  # what a launch passes on of the agent's own variables
        kept = {name: os.environ[name] for name in request["keep"] if name in os.environ}
        answer["launch_env"] = without_secrets(kept)
        answer["login_env"] = login_environment(float(request.get("seconds", 1.0)))
    sys.stdout.write(json.dumps(answer) + "\n")


def look_at(text: str) -> dict[str, Any]:
    """One path: is it there, may this user use it, how much room is left (MiB)."""
    path = Path(text).expanduser()
    there = path.exists()
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    return {
        "exists": there,
        "readable": os.access(str(path), os.R_OK) if there else None,
        "writable": os.access(str(path), os.W_OK) if there else None,
        "directory": path.is_dir() if there else None,
        "free_mib": shutil.disk_usage(str(place)).free / 2**20,
    }


def driver() -> str | None:
    """The NVIDIA kernel module's version, where one is loaded."""
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def cached(name: str) -> Path | None:
    """The folder of a repository's snapshot in this user's Hugging Face cache, where it is there.

    Layout: ``hub/models--OWNER--NAME/refs/main`` holds the name of a folder below ``snapshots``.
    """
    home = os.environ.get("HF_HOME") or str(Path("~/.cache/huggingface").expanduser())
    hub = os.environ.get("HF_HUB_CACHE") or str(Path(home) / "hub")
    root = Path(hub) / ("models--" + name.replace("/", "--"))
    try:
        revision = (root / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    folder = root / "snapshots" / revision
    return folder if re.match(r"[0-9a-f]{6,64}$", revision) and folder.is_dir() else None


def model(text: str, deadline: float, *, names: bool) -> dict[str, Any] | None:
    """A model folder: its config, its files, and what the headers of its weights promise.

    ``names`` asks for the tensors as well. ``None`` where the folder is not there.
    """
    named = text[:1] in ("/", "~")
    folder = Path(text).expanduser() if named else cached(text)
    if folder is None or not folder.is_dir():
        return None
    config, problem = read_json(folder / "config.json")
    out: dict[str, Any] = {"config": config, "problem": problem}
    try:
        files = {item.name: item.stat().st_size for item in folder.iterdir() if item.is_file()}
    except OSError:
        return out
    if not named and not any(name.endswith(WEIGHTS) for name in files):
        return out  # a repository of which only configs were fetched: the launch fetches the rest
    out.update({"files": files, "expected": {}, "damaged": {}, "tensors": {}})
    for name in sorted(n for n in files if n.endswith(".safetensors")):
        if time.monotonic() > deadline:  # the rest stays unknown, which no rule judges
            break
        size, tensors, wrong = header(folder / name)
        if wrong:
            out["damaged"][name] = wrong
        else:
            out["expected"][name] = size
            if names:
                out["tensors"].update(tensors)
    for name in INDEXES:
        found = (read_json(folder / name)[0] or {}).get("weight_map")
        if isinstance(found, dict):
            out["index"] = found if names else {file: file for file in set(found.values())}
            break
    return out


def read_json(path: Path) -> tuple[dict[str, Any] | None, str]:
    """A JSON object, or why there is none."""
    try:
        if path.stat().st_size > MAX_JSON:
            return None, "is larger than any config"
        value = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return None, "is missing"
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"
    except (ValueError, RecursionError) as error:
        return None, f"is not valid JSON: {str(error)[:80]}"
    return (value, "") if isinstance(value, dict) else (None, "holds no JSON object")


def header(path: Path) -> tuple[int, dict[str, Any], str]:
    """Bytes that a safetensors file should have, its tensors, and what is wrong with its header."""
    try:
        with path.open("rb") as file:
            first = file.read(8)
            if len(first) < 8:
                return 0, {}, "is too short to be a safetensors file"
            (length,) = struct.unpack("<Q", first)
            if length > MAX_HEADER:
                pointer = first.startswith(b"version ")
                return 0, {}, "is a Git LFS pointer" if pointer else "has no valid header"
            raw = file.read(length)
        if len(raw) < length:
            return 0, {}, "ends inside its header"
        entries = json.loads(raw.decode("utf-8"))
        entries.pop("__metadata__", None)
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
        tensors = {
            name: [[int(n) for n in entry["shape"]], str(entry["dtype"])]
            for name, entry in entries.items()
        }
    except OSError as error:
        return 0, {}, f"cannot be read: {error.strerror}"
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return 0, {}, "has a header that is not safetensors"
    return 8 + length + end, tensors, ""


def login_environment(seconds: float) -> dict[str, str] | None:
    """The variables that this user's login shell sets; ``None`` where it cannot be asked."""
    me = pwd.getpwuid(os.getuid())
    shell = me.pw_shell
    if Path(shell).name not in SHELLS or not os.access(shell, os.X_OK):
        return None
    env = {
        "HOME": me.pw_dir, "USER": me.pw_name, "LOGNAME": me.pw_name, "SHELL": shell,
        "PATH": "/usr/local/bin:/usr/bin:/bin", "TERM": "dumb",
    }  # fmt: skip
    script = "printf '\\036specops\\036'; exec env -0"
    try:
        done = subprocess.run(
            [shell, "-l", "-c", script],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    _, mark, body = done.stdout.partition(MARK)
    if not mark:
        return None
    pairs = (item.decode("utf-8", "replace").partition("=") for item in body.split(b"\0") if item)
    return without_secrets({name: value for name, _, value in pairs})


def without_secrets(env: dict[str, str]) -> dict[str, str]:
    """Variables as they may leave the host: of those named like a secret only the name."""
    return {name: "***" if SECRET.search(name) else value for name, value in env.items()}


if __name__ == "__main__":
    main()
