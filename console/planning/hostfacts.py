"""Facts for preflight, asked of a connected host: all at once, each bounded, unknown stays unknown.

One short program (:mod:`console.planning.hostprobe`) looks at paths, model folders and environments
with the host's own python; another asks the engine's interpreter for versions. A read-only session
may run neither: then the two configs and the paths are read through the agent, the rest is unknown.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from console.errors import ActionFailed, Refused, UsageError
from console.model import Gpu, Process, Run, Server, Snapshot
from console.planning.ground import VERSIONS
from console.preflight import (
    GpuFacts,
    HostFacts,
    LaunchCommand,
    ModelFacts,
    PathFacts,
    ServedFacts,
    Tensor,
    from_argv,
    wanted_paths,
)
from console.preflight.settings import Settings, resolve
from console.preflight.tables import select
from console.remote import Remote
from console.text import clean
from console.watch.attribution import find, looks_like_server

BOUND_S = 2.0
"""Seconds one question may take; a host that is slower leaves that fact unknown."""
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "SHELL", "LD_LIBRARY_PATH", "TZ")
"""Variables of its own that the agent passes on to a launch (console/agent/launch.py)."""
PROBE_S = 1.0
"""Seconds the host may spend on headers of weight files, or on a login shell."""

_VERSIONS = VERSIONS + "print(json.dumps(out))\n"


@dataclass(frozen=True, slots=True)
class Replaced:
    """What will be gone before the launch: the processes of the server that is replaced."""

    pids: frozenset[int] = frozenset()
    server: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for before the command was known, because it does not depend on it.

    ``environments`` is the answer to :func:`environments_of` or the wait for it; ``versions`` are
    the engine's interpreter's (:data:`console.planning.ground.VERSIONS`).
    """

    environments: Awaitable[Mapping[str, Any]] | None = None
    versions: Mapping[str, Any] | None = None


def replaced_by(server: Server, runs: Iterable[Run], snapshot: Snapshot) -> Replaced:
    """What a relaunch of this server ends first."""
    found = find(server, runs, snapshot)
    return Replaced(frozenset(p.id.pid for p in found.processes), server.name)


async def gather(
    remote: Remote,
    command: LaunchCommand,
    snapshot: Snapshot,
    *,
    replaced: Replaced | None = None,
    servers: Sequence[Server] = (),
    runs: Sequence[Run] = (),
    version: str | None = None,
    asked: Asked | None = None,
) -> HostFacts:
    """Everything that preflight may know of this launch on this host, within about 2 s.

    ``replaced`` is left out of ports and memory; ``servers`` are the configured ones, for the names
    of what is served already; ``version`` is SGLang's where the caller has asked before, as is what
    ``asked`` holds.

    Raises:
        HostError: the link is lost.
    """
    gone = replaced or Replaced()
    known = asked or Asked()
    contained = command.container is not None  # its paths are in an image that nobody looked into
    models = {} if contained else _models(command, version)
    wanted = () if contained else wanted_paths(command, version or "")
    paths = [path for path in wanted if path.startswith(("/", "~"))]  # no other has one meaning
    files = {"paths": paths, "models": models, "seconds": PROBE_S}
    looked, environments, versions, capabilities = await asyncio.gather(
        _probe(remote, files),
        known.environments or environments_of(remote, wanted=not contained),
        _versions(remote, command, known.versions, wanted=not contained),
        _capabilities(remote, wanted=bool(snapshot.gpus)),
    )
    if not looked and models:
        looked = await _plainly(remote, models, paths)
    found = looked.get("models") or {}
    cpu = snapshot.cpu
    shm_total = cpu.shm_total_mib if cpu else None
    shm_used = cpu.shm_used_mib if cpu else None
    return HostFacts(
        gpus=_gpus(snapshot, gone, capabilities),
        target=_model(models.get("target"), found.get("target")),
        draft=_model(models.get("draft"), found.get("draft")),
        paths={path: PathFacts(**facts) for path, facts in (looked.get("paths") or {}).items()},
        shm_total_mib=shm_total,
        shm_free_mib=None if shm_total is None or shm_used is None else shm_total - shm_used,
        memory_free_mib=cpu.memory_total_mib - cpu.memory_used_mib if cpu else None,
        ports=_ports(snapshot, gone),
        driver=looked.get("driver"),
        torch=versions.get("torch"),
        torch_cuda=versions.get("cuda"),
        python=versions.get("python"),
        sglang=version or versions.get("sglang"),
        launch_env=environments.get("launch_env"),
        login_env=environments.get("login_env"),
        served=_served(snapshot, gone, servers, runs),
    )


async def environments_of(remote: Remote, *, wanted: bool = True) -> Mapping[str, Any]:
    """What a launch is passed on of the agent's variables, and what a login shell would set.

    A login shell runs whatever its files say: half a second is common, so this is asked for first.

    Raises:
        HostError: the link is lost.
    """
    return await _probe(remote, {"keep": list(KEPT), "seconds": PROBE_S}, wanted=wanted)


async def configs(
    remote: Remote, command: LaunchCommand
) -> tuple[ModelFacts | None, ModelFacts | None]:
    """The target's and the draft's config.json, read through the agent.

    Raises:
        HostError: the link is lost.
    """
    models = _models(command, None)
    found = (await _plainly(remote, models, ())).get("models") or {}
    target, draft = (_model(models.get(role), found.get(role)) for role in ("target", "draft"))
    return target, draft


async def engine_version(remote: Remote, command: LaunchCommand) -> str | None:
    """SGLang's version in the interpreter of the command, ``None`` where it is not told.

    Raises:
        HostError: the link is lost.
    """
    found = (await _versions(remote, command, wanted=True)).get("sglang")
    return found if isinstance(found, str) else None


# ---- questions


async def _ask(
    remote: Remote, argv: Sequence[str], *, stdin: bytes = b"", bound_s: float = BOUND_S
) -> bytes:
    """What a short command printed, nothing where it cannot run, is refused or takes too long."""
    try:
        done = await remote.run(argv, timeout_s=bound_s, stdin=stdin)
    except (Refused, ActionFailed):
        return b""
    return done.stdout if done.code == 0 else b""


def _object(output: bytes) -> dict[str, Any]:
    """The last line as a JSON object; a site's start-up files may print lines of their own."""
    try:
        value = json.loads(output.strip().rsplit(b"\n", 1)[-1])
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


async def _probe(
    remote: Remote, request: Mapping[str, Any], *, wanted: bool = True
) -> dict[str, Any]:
    if not wanted:
        return {}
    program = (
        resources.files("console.planning").joinpath("hostprobe.py").read_text(encoding="utf-8")
    )
    argv = (remote.host.python, "-I", "-S", "-c", program)
    return _object(await _ask(remote, argv, stdin=json.dumps(request).encode()))


async def _versions(
    remote: Remote,
    command: LaunchCommand,
    known: Mapping[str, Any] | None = None,
    *,
    wanted: bool,
) -> Mapping[str, Any]:
    if known:
        return known
    if not wanted:
        return {}
    python = command.python or remote.host.python
    return _object(await _ask(remote, (python, "-c", _VERSIONS)))


async def _capabilities(remote: Remote, *, wanted: bool) -> dict[str, tuple[int, int]]:
    """UUID to compute capability, as the driver's tool says it."""
    if not wanted:
        return {}
    argv = ("nvidia-smi", "--query-gpu=uuid,compute_cap", "--format=csv,noheader")
    text = (await _ask(remote, argv)).decode("utf-8", "replace")
    rows = re.findall(r"^(GPU-[\w-]+), *(\d+)\.(\d+)\s*$", text, re.MULTILINE)
    return {uuid: (int(major), int(minor)) for uuid, major, minor in rows}


async def _plainly(
    remote: Remote, models: Mapping[str, str], paths: Sequence[str]
) -> dict[str, Any]:
    """Paths and configs through the agent alone, where no program may run."""
    wanted = list(dict.fromkeys((*paths, *models.values())))
    try:
        stats = await remote.stat([p for p in wanted if p.startswith(("/", "~"))])
    except ActionFailed:
        return {}
    known = [s for s in stats if not s.error]
    out: dict[str, Any] = {
        "paths": {
            s.path: {
                "exists": s.kind != "missing",
                "readable": s.readable if s.kind != "missing" else None,
                "writable": s.writable if s.kind != "missing" else None,
                "directory": s.kind == "dir" if s.kind != "missing" else None,
            }
            for s in known
        },
        "models": {},
    }
    for name, path in models.items():
        try:
            config = _object_of(await remote.read_file(f"{path}/config.json"))
        except (ActionFailed, ValueError):
            continue
        out["models"][name] = {"config": config}
    return out


def _object_of(data: bytes) -> dict[str, Any]:
    """A whole document as a JSON object; ``ValueError`` where it is none."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value


# ---- answers as facts


def _models(command: LaunchCommand, version: str | None) -> dict[str, str]:
    """The model folders that the command names, by role."""
    settings = resolve(command, select(version or command.version))
    named = {
        "target": settings.text("model-path"),
        "draft": settings.text("speculative-draft-model-path"),
    }
    return {role: path for role, path in named.items() if path}


def _model(path: str | None, found: Mapping[str, Any] | None) -> ModelFacts | None:
    if path is None or not found:
        return None
    tensors = found.get("tensors")
    expected = found.get("expected")
    return ModelFacts(
        path=path,
        config=found.get("config"),
        problem=clean(str(found.get("problem") or "")),
        files=found.get("files"),
        expected=expected,
        index=found.get("index"),
        tensors={name: Tensor(tuple(shape), dtype) for name, (shape, dtype) in tensors.items()}
        if tensors and expected
        else None,
        damaged=found.get("damaged") or {},
    )


def _gpus(
    snapshot: Snapshot, gone: Replaced, capabilities: Mapping[str, tuple[int, int]]
) -> tuple[GpuFacts, ...] | None:
    """The devices as they will be once the replaced server is gone; ``None`` where unknown."""
    if snapshot.gpu_error is not None and not snapshot.gpus:
        return None
    if not snapshot.gpus and snapshot.gpu_source is None:
        return None  # no NVIDIA here: a CPU run is judged by the machine's memory
    by_pid = {p.id.pid: p for p in snapshot.processes}
    return tuple(
        GpuFacts(
            index=gpu.index,
            name=gpu.name,
            total_mib=gpu.memory_total_mib,
            free_mib=_free_mib(gpu, gone),
            uuid=gpu.uuid,
            capability=capabilities.get(gpu.uuid),
            holders=tuple(
                _who(by_pid.get(p.pid), p.pid) for p in gpu.processes if p.pid not in gone.pids
            ),
        )
        for gpu in snapshot.gpus
    )


def _free_mib(gpu: Gpu, gone: Replaced) -> float | None:
    """Memory that is free or will be: what the replaced processes hold comes back."""
    if gpu.memory_total_mib is None or gpu.memory_used_mib is None:
        return None
    freed = [p.memory_mib for p in gpu.processes if p.pid in gone.pids]
    if None in freed:
        return None  # the driver hides who holds what: how much comes back is not known
    return gpu.memory_total_mib - gpu.memory_used_mib + sum(m for m in freed if m is not None)


def _who(process: Process | None, pid: int | None) -> str:
    if process is None:
        return f"pid {pid}" if pid else "another process"
    return f"pid {process.id.pid} ({clean(process.user)}, {clean(process.comm)})"


def _ports(snapshot: Snapshot, gone: Replaced) -> dict[int, str]:
    by_pid = {p.id.pid: p for p in snapshot.processes}
    return {
        port: _who(by_pid.get(pid or 0), pid)
        for port, pid in snapshot.listening.items()
        if pid not in gone.pids
    }


def _served(
    snapshot: Snapshot, gone: Replaced, servers: Sequence[Server], runs: Sequence[Run]
) -> tuple[ServedFacts, ...]:
    """The launchers of model servers that run, with the model that their command line names."""
    names = {
        process.id: server.name
        for server in servers
        for process in find(server, runs, snapshot).processes
    }
    out: list[ServedFacts] = []
    for process in snapshot.processes:
        if not looks_like_server(process):
            continue
        try:
            settings = _settings_of(process)
        except UsageError:  # a worker, or a title that is no command line
            continue
        model = settings.text("model-path")
        if model:
            name = names.get(process.id, f"pid {process.id.pid}")
            port, pid = settings.integer("port"), process.id.pid
            out.append(ServedFacts(name, model, port, pid, replaced=pid in gone.pids))
    return tuple(out)


def _settings_of(process: Process) -> Settings:
    command = from_argv(process.argv)
    return resolve(command, select(command.version))
