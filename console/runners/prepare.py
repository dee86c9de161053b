"""From a server and its settings to one launch: argument vector, variables, log, run record."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from console.errors import UsageError
from console.model import Run, Server
from console.runners.settings import REFERENCE, Settings, renamed, words
from console.text import is_secret_name

RUN_VARIABLE = "SPECOPS_RUN_ID"
API_KEY_VARIABLE = "EAGLE3_API_KEY"
"""Where the bundled server takes its key from, out of sight of ``ps``."""
MODULES: Mapping[str, str] = {"sglang": "sglang.launch_server", "bundled": "eagle3.launch_server"}


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a launch over several hosts: the hosts by rank, its own rank, the run they share.

    ``address`` is where the nodes meet, on node 0.
    """

    hosts: tuple[str, ...]
    rank: int
    run_id: str
    address: str

    @property
    def flags(self) -> dict[str, object]:
        """What every SGLang version takes for it."""
        count = len(self.hosts)
        return {"nnodes": count, "node-rank": self.rank, "dist-init-addr": self.address}


@dataclass(frozen=True, slots=True)
class Ground:
    """What the launch stands on: facts of the host, asked for before the plan is made.

    ``python`` runs the engine. ``target`` and ``draft`` are the shipped weights there, for a
    bundled server whose entry names none. ``path`` is the search path for the bundled engine where
    it is not installed. ``version`` is SGLang's, ``None`` where unknown; ``versions`` those of
    python, torch and its CUDA as well, empty where they were not asked for. ``node`` is set for one
    of several.
    """

    state_dir: str
    python: str = "python3"
    target: str = ""
    draft: str = ""
    path: str = ""
    version: str | None = None
    node: Node | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """One launch as data. ``run.env`` holds ``secret:NAME``; ``config`` is a file to write 0600.

    ``config`` maps flags to ``secret:NAME``: they go into a YAML file that the engine reads, so
    that no secret is ever in an argument vector.
    """

    run: Run
    settings: Settings
    config_path: str = ""
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Names of the secrets that the launch needs."""
        values = (*self.run.env.values(), *self.config.values())
        return tuple(
            dict.fromkeys(v.removeprefix(REFERENCE) for v in values if v.startswith(REFERENCE))
        )


def new_run_id() -> str:
    """A short id that an operator can type: eight hexadecimal digits."""
    return secrets.token_hex(4)


def prepare(
    server: Server,
    settings: Settings,
    ground: Ground,
    *,
    run_id: str,
    launched_by: str,
    now: float,
) -> Prepared:
    """The launch of a server by the process runner. ``now`` is the host's clock.

    Raises:
        UsageError: the engine is not one that specops launches, or a model is not named.
    """
    if server.engine not in MODULES:
        hint = "it is seen, stopped and diagnosed; start it with its own unit or container"
        raise UsageError(f"a {server.engine} server is not launched by specops", hint=hint)
    flags = dict(_model_flags(server, settings, ground))
    flags.update(_network_flags(server, settings, ground))
    flags.update(settings.flags)
    if ground.node is not None:
        flags.update(ground.node.flags)
    flags = renamed(flags, ground.version)
    hidden = {k: str(v) for k, v in flags.items() if str(v).startswith(REFERENCE)}
    shown = {k: v for k, v in flags.items() if k not in hidden}
    env = {**settings.env, RUN_VARIABLE: run_id}
    if server.engine == "bundled" and "api-key" in hidden:
        env[API_KEY_VARIABLE] = hidden.pop("api-key")
    config_path = f"{ground.state_dir}/secrets/{run_id}.yaml" if hidden else ""
    if hidden:
        shown["config"] = config_path
    argv = (ground.python, "-m", MODULES[server.engine], *words(shown))
    if ground.path:
        env["PYTHONPATH"] = ":".join(p for p in (ground.path, env.get("PYTHONPATH", "")) if p)
    env.setdefault("PYTHONUNBUFFERED", "1")  # a log that lags by a buffer hides the last words
    run = Run(
        run_id=run_id,
        server=server.name,
        engine=server.engine,
        host=server.host,
        argv=argv,
        env=_without_secrets(env),
        cwd=server.cwd or "/",
        log=log_path(server, settings, ground.state_dir, run_id, ground.node),
        port=server.port,
        launcher=None,
        session=None,
        unit=None,
        launched_at=now,
        launched_by=launched_by,
        model=str(flags.get("model-path", "")),
        draft=_text(flags.get("speculative-draft-model-path")),
        speculative=settings.speculative,
        nccl=settings.nccl,
        preset=settings.preset,
        nodes=ground.node.hosts if ground.node else (),
        rank=ground.node.rank if ground.node else 0,
    )
    return Prepared(run, settings, config_path, hidden)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """A variable that names a secret but holds a plain value was typed into hosts.yaml: refuse."""
    for name, value in env.items():
        if is_secret_name(name) and value and not value.startswith(REFERENCE):
            raise UsageError(
                f"{name} holds its value in plain text",
                hint=f"write {name}: {REFERENCE}{name} and keep the value in your own environment",
            )
    return dict(env)


def _model_flags(server: Server, settings: Settings, ground: Ground) -> dict[str, object]:
    model = server.model or (ground.target if server.engine == "bundled" else "")
    if not model and "model-path" not in settings.flags:
        raise UsageError(f"server '{server.name}' names no model", hint="model: a path on the host")
    out: dict[str, object] = {"model-path": model}
    draft = server.draft or (ground.draft if server.engine == "bundled" else "")
    speculative = settings.flags.get("speculative-algorithm")
    if speculative and draft and "speculative-draft-model-path" not in settings.removed:
        out["speculative-draft-model-path"] = draft
    return out


def _network_flags(server: Server, settings: Settings, ground: Ground) -> dict[str, object]:
    out: dict[str, object] = {"host": server.bind, "port": server.port}
    if server.engine in MODULES and "enable-metrics" not in settings.removed:
        out["enable-metrics"] = True  # accept length and throughput come from /metrics
    return out


def log_path(
    server: Server, settings: Settings, state_dir: str, run_id: str, node: Node | None = None
) -> str:
    """Where the run's log goes. ``{server}``, ``{preset}`` and ``{run}`` of a template are filled.

    A path without ``{run}`` is shared by all runs and appended to. Each node of several has a file
    of its own, also where the folder is one that they share.
    """
    template = server.log or f"{state_dir}/logs/{{server}}-{{preset}}-{{run}}.log"
    label = re.sub(r"[^A-Za-z0-9._+-]", "-", settings.label)
    for key, value in (("server", server.name), ("preset", label), ("run", run_id)):
        template = template.replace(f"{{{key}}}", value)
    if not PurePosixPath(template).is_absolute():
        template = f"{state_dir}/{template}"
    if node is None:
        return template
    path = PurePosixPath(template)
    return str(path.with_name(f"{path.stem}-node{node.rank}{path.suffix}"))
