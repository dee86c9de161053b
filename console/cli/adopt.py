"""``specops adopt``: a server started by hand becomes a server in hosts.yaml, a preset, a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.cli.common import Cli, common, confirm, connected, run_async
from console.cli.output import print_json, say
from console.errors import ActionFailed, Refused, UsageError

if TYPE_CHECKING:
    from console.config import Config
    from console.config.presets import Presets
    from console.model import HostView, Preset, Process, Run, Snapshot
    from console.preflight import LaunchCommand
    from console.remote import Remote

DEFAULT_PORT = 30000
IDENTITY = ("model-path", "speculative-draft-model-path", "host", "port")
"""Flags that have a key of their own in hosts.yaml."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """What will be written: an entry of hosts.yaml, presets that are new, a run record."""

    name: str
    entry: Mapping[str, Any]
    presets: tuple[Preset, ...]
    run: Run


@click.command()
@click.argument("host")
@click.argument("pid", type=click.IntRange(1))
@click.option("--as", "name", metavar="NAME", help="The server's name; else its model's.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written; exit 1.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common()
def adopt(cli: Cli, host: str, pid: int, name: str | None, dry_run: bool, yes: bool) -> int:
    """Make a server started by hand a managed one, from its live command, variables and log.

    The process itself is not touched. Writes hosts.yaml, presets where no known one fits, and a
    run record on the host.
    """
    return run_async(_adopt(cli, host, pid, name, dry_run=dry_run, yes=yes))


async def _adopt(
    cli: Cli, host: str, pid: int, name: str | None, *, dry_run: bool, yes: bool
) -> int:
    from console.config.presets import dump

    config, presets = cli.config(), cli.presets()
    # Not read-only for a dry run: where its log goes is a link that only the full agent follows.
    async with connected(config, config.host(host)) as remote:
        snapshot = await remote.snapshot(full=True)
        try:
            process = launcher(snapshot, pid, remote.hello.uid, host)
        except Lost as error:
            error.hint = await _what_it_is(remote, config, error.process)
            raise
        _unmanaged(config, host, process, snapshot, await remote.runs())
        made = adoption(
            process, config, presets, host=host, name=name, links=await _links(remote, process),
            now=snapshot.time,
        )  # fmt: skip
        text = _edited(config, made)
        document = {
            "server": made.name,
            "entry": dict(made.entry),
            "hosts_file": str(config.path),
            "presets": [f"{p.kind}/{p.name}" for p in made.presets],
            "run_id": made.run.run_id,
            "dry_run": dry_run,
        }
        if not cli.json:
            import yaml

            say(f"{config.path}:")
            shown = {"servers": {made.name: dict(made.entry)}}
            say(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())
            for preset in made.presets:
                say(
                    f"\n{presets.folder}/{preset.kind}/{preset.name}.yaml:\n{dump(preset).rstrip()}"
                )
        if dry_run:
            if cli.json:
                print_json(document)
            return 1
        confirm(f"Write these, and a run record on {host}?", yes=yes)
        await _write(remote, config.path, text, presets, made)
    if cli.json:
        print_json(document)
    else:
        say(f"{made.name} is managed now: specops status {host}, specops logs {made.name}")
    return 0


class Lost(UsageError):
    """A process of a model server without the launcher that would tell how it was started."""

    def __init__(self, process: Process, host: str) -> None:
        super().__init__(
            f"process {process.id.pid} has lost the process that started it", place=host
        )
        self.process = process


async def _what_it_is(remote: Remote, config: Config, process: Process) -> str:
    """What ``specops zombies`` says of it now, and what ends it."""
    from console.watch.observe import Depth, Observer

    observer = Observer(remote, config.servers_on(remote.host.name))
    try:
        view = await observer.twice(Depth.QUICK)
    finally:
        await observer.close()
    return what_it_is(view, process)


def what_it_is(view: HostView, process: Process) -> str:
    """Which of a host's zombies a process belongs to, and what ends it. Pure."""
    from console.watch.attribution import descendants

    host, pid = view.host.name, process.id.pid
    seen = view.snapshot.processes if view.snapshot else ()
    for zombie in view.zombies:
        top = next((p for p in seen if p.id == zombie.process), None)
        if top is not None and process.id in {p.id for p in (top, *descendants(top, seen))}:
            ends = f"specops kill-zombies {host}"
            if not zombie.killable:
                ends += f" --named {pid}, for it is not killed unnamed: {zombie.why_not}"
            return f"it is a zombie ({zombie.kind.value}): {ends}"
    return f"it is no zombie; specops kill-zombies {host} --named {pid} ends it all the same"


async def _write(remote: Remote, path: Path, text: str, presets: Presets, made: Adoption) -> None:
    from console.actions.audit import AuditLog
    from console.config.whole import write_atomically

    audit = AuditLog()
    run = replace(made.run, launched_by=audit.user)
    audit.write("adopt", host=remote.host.name, server=made.name, detail=made.run.run_id)
    await remote.save_run(run)  # first what may be refused; a record nobody names does no harm
    for preset in made.presets:
        presets.save(preset)
    write_atomically(path, text)


def launcher(snapshot: Snapshot, pid: int, uid: int, host: str) -> Process:
    """The process that started the server which ``pid`` belongs to. Pure.

    Raises:
        UsageError: there is no such process, or it is no model server.
        Lost: nothing that lives has started it.
        Refused: it belongs to another user.
    """
    from console.preflight import from_argv
    from console.text import clean
    from console.watch.attribution import descendants, is_launcher, looks_like_server

    by_pid = {p.id.pid: p for p in snapshot.processes}
    process = by_pid.get(pid)
    if process is None or process.state in ("Z", "X"):
        raise UsageError(f"no process {pid}", place=host, hint="specops status shows what runs")
    if uid not in (0, process.uid):
        who = clean(process.user)
        raise Refused(f"process {pid} belongs to {who}", place=host, hint=f"log in as {who}")
    if not looks_like_server(process):
        title = clean(process.title, limit=60)
        raise UsageError(f"process {pid} is no model server: {title}", place=host)
    top = process
    while (parent := by_pid.get(top.ppid)) is not None and looks_like_server(parent):
        top = parent
    below = (top, *descendants(top, snapshot.processes))
    top = next((p for p in below if is_launcher(p)), top)  # not the timeout around it
    if top.uid != process.uid:
        raise Refused(f"process {pid} was started by another user", place=host)
    try:
        from_argv(top.argv)
    except UsageError as error:
        raise Lost(process, host) from error
    return top


def _unmanaged(
    config: Config, host: str, process: Process, snapshot: Snapshot, runs: list[Run]
) -> None:
    from console.watch.attribution import find

    if process.run_id is not None:
        raise UsageError(f"process {process.id.pid} was launched by specops", hint="specops runs")
    for server in config.servers_on(host):
        if process.id in {p.id for p in find(server, runs, snapshot).processes}:
            raise UsageError(f"process {process.id.pid} is server '{server.name}' already")


async def _links(remote: Remote, process: Process) -> dict[str, str]:
    """Where the process's log goes and its working directory; what cannot be read is left out."""
    out: dict[str, str] = {}
    for name in ("fd/2", "fd/1", "cwd"):
        try:
            path = f"/proc/{process.id.pid}/{name}"
            done = await remote.run(("readlink", "--", path), timeout_s=5.0)
        except (ActionFailed, Refused):
            continue
        target = done.stdout.decode("utf-8", "replace").rstrip("\n")
        if target.startswith("/") and not target.startswith("/dev/") and target.isprintable():
            out[name] = target.removesuffix(" (deleted)")
    return out


def adoption(
    process: Process, config: Config, presets: Presets, *, host: str, name: str | None,
    links: Mapping[str, str], now: float,
) -> Adoption:  # fmt: skip
    """The entry, presets and record of a live server. Pure.

    Raises:
        UsageError: the name is taken or is none.
    """
    from console.preflight import from_argv
    from console.preflight.settings import resolve
    from console.preflight.tables import select

    command = from_argv(process.argv, process.env, links.get("cwd"))
    flags = {key: _plain(key, value) for key, value in
             resolve(command, select(command.version)).values.items()}  # fmt: skip
    env = {key: _hidden(key, value) for key, value in process.env.items()
           if key != "SPECOPS_RUN_ID"}  # fmt: skip
    chosen = _name(name, str(flags.get("model-path") or "server"), config)
    entry: dict[str, Any] = {"host": host, "engine": command.engine}
    for key, flag in (("model", "model-path"), ("draft", "speculative-draft-model-path"),
                      ("bind", "host")):  # fmt: skip
        if flags.get(flag):
            entry[key] = flags[flag]
    entry["port"] = flags.get("port") or (8000 if command.engine == "vllm" else DEFAULT_PORT)
    new: list[Preset] = []
    speculative = {k: v for k, v in flags.items() if k.startswith("speculative-")}
    speculative.pop("speculative-draft-model-path", None)
    nccl = {k: v for k, v in env.items() if k.startswith("NCCL_")}
    for kind, part_flags, part_env in (("speculative", speculative, {}), ("nccl", {}, nccl)):
        if part_flags or part_env:
            preset = _fitting(presets, kind, part_flags, part_env, chosen)
            entry[kind] = preset.name
            if preset.origin == "":
                new.append(preset)
    rest = {k: v for k, v in flags.items() if k not in IDENTITY and k not in speculative}
    left = {k: v for k, v in env.items() if k not in nccl}
    log = links.get("fd/2") or links.get("fd/1")
    entry |= _running(process, command, links.get("cwd"), log)
    entry |= {key: value for key, value in (("args", rest), ("env", left)) if value}
    run = _record(process, command, entry, chosen, host=host, log=log or "", now=now, env=env)
    return Adoption(chosen, entry, tuple(new), run)


def _running(
    process: Process, command: LaunchCommand, cwd: str | None, log: str | None
) -> dict[str, Any]:
    """What keeps the process, which interpreter it has, where it writes."""
    out: dict[str, Any] = {}
    if process.container:
        out["runner"] = {"docker": process.container}
    elif process.unit and process.unit.endswith(".service") and not _session(process.unit):
        out["runner"] = {"systemd": process.unit}
    if command.python.startswith("/"):
        out["python"] = command.python
    if cwd and cwd != "/":
        out["cwd"] = cwd
    if log:
        out["log"] = log
    return out


def _session(unit: str) -> bool:
    """Whether a unit is a login's or an ssh daemon's, which keeps no server."""
    return bool(re.match(r"(?:user@|ssh|session-|specops-|cron|tmux|screen)", unit))


def _plain(name: str, value: Any) -> Any:
    """A flag's value as YAML takes it; of a secret only its name."""
    if isinstance(value, str):
        return _hidden(name.upper().replace("-", "_"), value)
    return list(map(str, value)) if isinstance(value, tuple) else value


def _hidden(name: str, value: str) -> str:
    from console.text import is_secret_name

    return f"secret:{name}" if is_secret_name(name) and value else value


def _name(asked: str | None, model: str, config: Config) -> str:
    from console.config.schema import NAME

    last = model.rstrip("/").rsplit("/", 1)[-1]
    name = asked or re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-.")
    if not NAME.fullmatch(name):
        raise UsageError(f"'{name}' is no name", hint="--as NAME: letters, digits, '.', '_', '-'")
    if name in config.servers:
        raise UsageError(f"there is a server '{name}' already", hint="--as another name")
    return name


def _fitting(
    presets: Presets, kind: str, flags: Mapping[str, Any], env: Mapping[str, str], name: str
) -> Preset:
    """The known preset that sets exactly this, or a new one; its ``origin`` is empty then."""
    from console.model import Preset

    for preset in presets:
        same_flags = {k: v for k, v in preset.flags.items() if v is not None} == dict(flags)
        same_env = {k: v for k, v in preset.env.items() if v is not None} == dict(env)
        if preset.kind == kind and same_flags and same_env:
            return preset
    label, number = name, 2
    while (kind, label) in {*presets.by_key, *presets.broken}:
        label, number = f"{name}-{number}", number + 1
    text = f"As {name} ran when it was adopted."
    return Preset(label, kind, text, dict(flags), dict(env), origin="")  # type: ignore[arg-type]


def _record(
    process: Process, command: LaunchCommand, entry: Mapping[str, Any], name: str, *,
    host: str, log: str, now: float, env: Mapping[str, str],
) -> Run:  # fmt: skip
    from console.model import Run
    from console.runners.prepare import new_run_id
    from console.text import mask_argv

    runner = entry.get("runner")
    return Run(
        run_id=new_run_id(), server=name, engine=command.engine, host=host,
        argv=tuple(mask_argv(process.argv)), env=dict(env), cwd=str(entry.get("cwd", "/")),
        log=log, port=int(entry["port"]), launcher=process.id, session=process.sid,
        unit=runner.get("systemd") if isinstance(runner, dict) else None,
        launched_at=now - process.age_s, launched_by="", model=str(entry.get("model", "")),
        draft=entry.get("draft"), speculative=entry.get("speculative"), nccl=entry.get("nccl"),
        adopted=True,
    )  # fmt: skip


def _edited(config: Config, made: Adoption) -> str:
    """hosts.yaml with the entry added, read once more before anything is written.

    Raises:
        UsageError: the file in use is the shipped one.
        ConfigError: the entry does not fit.
    """
    from console.config import shipped_hosts
    from console.config.edit import edited
    from console.config.nodes import parse
    from console.config.schema import read_config

    if config.path.resolve() == shipped_hosts().resolve():
        hint = "specops config init writes one of your own"
        raise UsageError("the shipped hosts.yaml is not written to", hint=hint)
    before = config.path.read_text(encoding="utf-8")
    text = edited(before, ["servers", made.name], dict(made.entry), place=str(config.path))
    read_config(parse(text, config.path))
    return text
