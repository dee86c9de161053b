"""What a launch stands on: asked of the host before a plan is made."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from console.errors import ActionFailed
from console.model import Host, Server
from console.remote import HostFileError, Remote
from console.runners.prepare import Ground
from console.runners.systemd import Unit, drop_in_path, split_cat, systemctl
from console.text import clean

ASK_S = 20.0
"""Bound on one short python of the engine's environment; a cold disk takes seconds to find it."""

VERSIONS = """
import importlib.metadata as m, importlib.util as u, json, pathlib, re, sys
out = {"python": sys.version.split()[0]}
for name in ("sglang", "torch"):
    try:
        out[name] = m.version(name)
    except Exception:
        pass
spec = u.find_spec("torch")
if spec and spec.origin:
    try:
        text = (pathlib.Path(spec.origin).parent / "version.py").read_text()
        found = re.search(r"(?m)^cuda\\b[^=\\n]*= *['\\"]([0-9.]+)", text)
        out["cuda"] = found and found.group(1)
    except OSError:
        pass
"""
"""A python program that fills ``out`` with the versions in its interpreter, importing no engine."""

_SCRIPT = (
    VERSIONS
    + """
try:
    from eagle3 import weights
    out["target"], out["draft"] = map(str, weights.paths())
except Exception as error:
    out["why"] = str(error)
print(json.dumps(out))
"""
)


def engine_python(server: Server, host: Host) -> str:
    """The interpreter that runs the engine: the server's, this one for a local demo, the host's."""
    if server.python:
        return server.python
    if host.transport == "local" and server.engine == "bundled":
        return sys.executable
    return host.python


def source_path(server: Server, host: Host) -> str:
    """The folder that holds the bundled engine on this machine, where the host is this machine."""
    if host.transport != "local" or server.engine != "bundled":
        return ""
    spec = find_spec("eagle3")
    return "" if spec is None or spec.origin is None else str(Path(spec.origin).parent.parent)


async def survey(remote: Remote, server: Server) -> Ground:
    """Interpreter, version and shipped weights on the host.

    Raises:
        ActionFailed: the interpreter is not there, or lacks the bundled engine.
    """
    python, path = engine_python(server, remote.host), source_path(server, remote.host)
    env = {"PYTHONPATH": path} if path else {}
    try:
        done = await remote.run((python, "-c", _SCRIPT), timeout_s=ASK_S, env=env)
    except HostFileError as error:
        hint = f"python: PATH in hosts.yaml, for server '{server.name}' or its host"
        raise ActionFailed(
            f"{python}: {error.message}", place=remote.host.name, hint=hint
        ) from error
    found = _answer(done.stdout)
    ground = Ground(
        state_dir=remote.hello.state_dir,
        python=python,
        target=str(found.get("target", "")),
        draft=str(found.get("draft", "")),
        path=path,
        version=found.get("sglang"),
        versions={name: found.get(name) for name in ("python", "sglang", "torch", "cuda")}
        if "python" in found
        else {},
    )
    if server.engine == "bundled" and not server.model and not ground.target:
        why = clean(str(found.get("why", "")) or done.stderr[-200:])
        hint = "install specops there with its extra 'server', or name that python"
        raise ActionFailed(
            f"{python} has no bundled engine: {why}", place=remote.host.name, hint=hint
        )
    return ground


def _answer(output: bytes) -> dict[str, Any]:
    try:
        value = json.loads(output.strip().rsplit(b"\n", 1)[-1])
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


async def read_unit(remote: Remote, server: Server) -> Unit:
    """A server's unit and our drop-in, as they are now.

    Raises:
        ActionFailed: systemd does not know the unit.
    """
    name = server.runner.unit or ""
    user = server.runner.user_unit
    folder = None
    if user:
        folder = remote.hello.config_home
    path = drop_in_path(name, folder)
    shown = await remote.run((*systemctl(user), "cat", name), timeout_s=10.0)
    if shown.code != 0:
        why = clean(shown.stderr.strip().rsplit(b"\n", 1)[-1])
        hint = f"the runner of server '{server.name}' in hosts.yaml"
        raise ActionFailed(f"no unit {name}: {why}", place=remote.host.name, hint=hint)
    base, own = split_cat(shown.stdout.decode("utf-8", "replace"), path)
    return Unit(name, base, own, path, user)
