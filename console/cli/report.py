"""``specops report``: one run as a bundle that may be handed to a colleague, secrets masked.

In it: the run's record, the end of its log, phases, diagnosis, the host as it is now, versions.
Masked are values of secrets that this operator's machine knows, values beside a secret's name, and
texts shaped like a token. Host names, user names and paths stay: they are what it is about.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.cli.common import Cli, ask, common, connected, run_async
from console.cli.output import print_json, say
from console.errors import ActionFailed, ConfigError, HostError, UsageError

if TYPE_CHECKING:
    from console.config import Config
    from console.model import Host, Run
    from console.remote import Remote

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""As the agent takes it: it is the name of a file there, and part of one here."""
LOG_BYTES = 4 << 20
"""Of the log so much of the end is put in: several starts of a server of eight ranks."""


@click.command()
@click.argument("run", metavar="RUN|SERVER")
@click.option("--host", "name", metavar="HOST", help="Where it is; else every host is asked.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
              help="Where to write it; never over a file.")  # fmt: skip
@common()
def report(cli: Cli, run: str, name: str | None, output: Path | None) -> int:
    """A run as a masked bundle for a colleague: record, log, phases, diagnosis, host, versions.

    Of a server of hosts.yaml it is the newest run.
    """
    if run in (config := cli.config()).servers:
        server = config.server(run)
        name = name or server.host
        run = run_async(_newest(config, config.host(name), server.name))
    if not RUN_ID.fullmatch(run):
        shown = run if len(run) <= 40 else f"{run[:40]}…"
        raise UsageError(f"'{shown}' cannot be a run id", hint="specops runs lists them")
    target = output or Path(f"specops-report-{run}.tar.gz")
    if target.exists():
        raise UsageError("exists already", place=str(target), hint="-o another file")
    files = run_async(_collect(cli, run, name))
    data = bundle(files, f"specops-report-{run}")
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError as error:
        raise ActionFailed(error.strerror or str(error), place=str(target)) from error
    if cli.json:
        print_json({"written": str(target), "files": sorted(files), "bytes": len(data)})
    else:
        say(f"written {target}: {', '.join(sorted(files))}")
        say("Secrets are masked; look it through before you hand it on.")
    return 0


def bundle(files: dict[str, bytes], folder: str) -> bytes:
    """Files as a .tar.gz with one folder; nothing of this machine's users is in its headers."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


async def _newest(config: Config, host: Host, server: str) -> str:
    """The id of a server's newest run.

    Raises:
        UsageError: none is recorded there.
    """
    async with connected(config, host, read_only=True) as remote:
        runs = [run for run in await remote.runs() if run.server == server]
    if not runs:
        raise UsageError(f"no run of {server} is recorded on {host.name}", hint="specops runs")
    return max(runs, key=lambda run: run.launched_at).run_id


async def _collect(cli: Cli, run_id: str, name: str | None) -> dict[str, bytes]:
    config = cli.config()
    host = await _home(cli, config, run_id, name)
    async with connected(config, host, read_only=True) as remote:
        run = next((r for r in await remote.runs() if r.run_id == run_id), None)
        if run is None:
            raise UsageError(f"no run {run_id} on {host.name}", hint=f"specops runs {host.name}")
        return await collect(remote, run)


async def _home(cli: Cli, config: Config, run_id: str, name: str | None) -> Host:
    """The host that remembers the run."""
    if name is not None:
        return config.host(name)

    async def known(remote: Remote) -> tuple[str, ...]:
        return tuple(run.run_id for run in await remote.runs())

    answers = await ask(config, cli.select(config, ()), known)
    for answer in answers:
        if answer.value is not None and run_id in answer.value:
            return answer.host
    lost = ", ".join(answer.host.name for answer in answers if answer.error)
    if lost:
        raise HostError(f"no host that answers knows run {run_id}", hint=f"not asked: {lost}")
    raise UsageError(f"no run {run_id}", hint="specops runs lists them")


async def collect(remote: Remote, run: Run) -> dict[str, bytes]:
    """The bundle's files by name, masked.

    Raises:
        HostError: the link is lost.
    """
    from console.actions.codec import encode
    from console.actions.plan import masked_values
    from console.diagnosis import diagnose, diagnosis_to_json
    from console.phases import PhaseMachine

    values = secrets_of(run)
    files: dict[str, bytes] = {}
    record = encode(run)
    record["argv"], record["env"] = _masked_command(run, values)
    try:
        log = await _log_of(remote, run) if run.log else b""
    except ActionFailed as error:
        log, record["log_error"] = b"", error.message
    files["run.json"] = _json(masked_values(record, values))
    if log:
        machine = PhaseMachine(run.engine)
        for line in log.decode("utf-8", "backslashreplace").split("\n"):
            machine.feed(line)
        files["log.txt"] = mask_log(log, values)
        files["diagnosis.json"] = _json(
            masked_values(diagnosis_to_json(diagnose(log, engine=run.engine)), values)
        )
        spans = [{"phase": s.phase.value, "seconds": s.seconds} for s in machine.spans]
        files["phases.json"] = _json({"recorded": list(run.phases), "from_log": spans})
    files["host.json"] = _json(masked_values(await _host(remote, run), values))
    return files


async def _log_of(remote: Remote, run: Run) -> bytes:
    """The end of the run's log, nothing of earlier runs that wrote to the same file."""
    (info,) = await remote.stat([run.log])
    at = max(0, run.log_offset, info.size_bytes - LOG_BYTES)
    if info.size_bytes < run.log_offset:  # rotated or truncated since
        at = max(0, info.size_bytes - LOG_BYTES)
    out = bytearray()
    while len(out) < LOG_BYTES and (block := await remote.read_file(run.log, offset=at)):
        out += block
        at += len(block)
    return bytes(out)


def _masked_command(run: Run, values: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    from console.text import mask_argv, mask_env

    return mask_argv(run.argv, values), mask_env(run.env, values)


def secrets_of(run: Run) -> tuple[str, ...]:
    """The values that this machine knows of the secrets that the run names."""
    from console.planning.secretstore import resolve
    from console.runners.settings import REFERENCE

    found: list[str] = []
    for value in run.env.values():
        if value.startswith(REFERENCE):
            try:
                found += resolve([value.removeprefix(REFERENCE)]).values()
            except ConfigError:  # not known here, so it cannot be looked for by value
                continue
    return tuple(found)


def mask_log(log: bytes, values: tuple[str, ...]) -> bytes:
    """A log as text that is safe to open: no control characters, no secrets."""
    from console.text import clean, mask

    return "\n".join(mask(clean(line), values) for line in log.split(b"\n")).encode()


async def _host(remote: Remote, run: Run) -> dict[str, Any]:
    """The host now: devices, the run's own processes, versions. No other process's title."""
    from console import __version__
    from console.cli.documents import gpu_to_json, title

    hello = remote.hello
    snapshot = await remote.snapshot(full=True)
    own = [p for p in snapshot.processes if p.run_id == run.run_id or p.id == run.launcher]
    cpu = snapshot.cpu
    return {
        "name": remote.host.name,
        "kernel": hello.kernel,
        "python": hello.python,
        "systemd": hello.systemd,
        "specops": __version__,
        "agent": hello.agent_version,
        "time": snapshot.time,
        "gpus": [gpu_to_json(gpu, {p.id.pid: p for p in own}) for gpu in snapshot.gpus],
        "gpu_error": snapshot.gpu_error,
        "memory_mib": cpu and {"used": cpu.memory_used_mib, "total": cpu.memory_total_mib},
        "processes": [
            {"pid": p.id.pid, "state": p.state, "rss_mib": p.rss_mib, "title": title(p)}
            for p in own
        ],
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n").encode()
