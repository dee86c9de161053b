"""``specops console``: the terminal app."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.cli.common import Cli, common
from console.errors import UsageError

if TYPE_CHECKING:
    from console.config import Config
    from console.config.presets import Presets
    from console.history.recording import Recorder
    from console.screens.opening import Prepared
    from console.screens.ports import ActionsPort, FleetPort
    from console.screens.prompts import ScreenPrompts


@click.command()
@click.option(
    "--read-only",
    is_flag=True,
    help="Change nothing on a host, put no load on it: no keys for it, no shell.",
)
@click.option(
    "--replay", type=click.Path(path_type=Path), metavar="FILE", help="Play a recording back."
)
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="FILE", help="Keep what is seen."
)
@common(json=False)
def console(cli: Cli, read_only: bool, replay: Path | None, record: Path | None) -> int:
    """Open the terminal app. --demo: this machine, the bundled server, no hosts.yaml."""
    from console.terminal import need_terminal, run

    need_terminal()
    if replay and record:
        raise UsageError("--replay and --record together", hint="give one of them")
    if replay is None and cli.demo and sys.platform == "darwin":
        replay = bundled_recording()
    if replay is not None:
        return _replay(cli, replay)
    recorders: list[Recorder] = []
    label = "  ".join(["DEMO"] * cli.demo + ["REC"] * (record is not None))
    try:
        return run(
            lambda: _prepare(cli, read_only, record, recorders),
            read_only=read_only, label=label, hosts_file=cli.hosts,
        )  # fmt: skip
    finally:
        for recorder in recorders:
            recorder.close()


def _prepare(cli: Cli, read_only: bool, record: Path | None, recorders: list[Recorder]) -> Prepared:
    """Read what the console is opened over; runs in a thread of it, so nothing may be printed."""
    from console.config import shipped_hosts
    from console.config.check import load_checked
    from console.screens.opening import Prepared

    config = load_checked(shipped_hosts() if cli.demo else cli.hosts)
    presets = cli.presets(quiet=True)
    if record is not None:
        from console.history.recording import Recorder

        recorders.append(Recorder(record))

    async def opener(prompts: ScreenPrompts) -> tuple[FleetPort, ActionsPort]:
        await asyncio.to_thread(_import_connections)
        return _connect(config, presets, prompts, read_only, *recorders)

    first_run = not cli.demo and config.path == shipped_hosts()
    return Prepared(config, opener, first_run=first_run)


def _import_connections() -> None:
    """They bring asyncssh and httpx: longer to import than everything else together."""
    import console.planning.operations
    import console.watch.fleet  # noqa: F401


def _connect(
    config: Config,
    presets: Presets,
    prompts: ScreenPrompts,
    read_only: bool,
    recorder: Recorder | None = None,
) -> tuple[FleetPort, ActionsPort]:
    from console.planning.operations import Operations
    from console.watch.fleet import Fleet

    fleet = Fleet(config, prompts, read_only=read_only)
    if recorder is None:
        return fleet, Operations(fleet, config, presets)
    from console.history.recorded import Recorded

    fleet.subscribe(recorder.view)
    return fleet, Recorded(recorder, fleet, config, presets)


def _replay(cli: Cli, path: Path) -> int:
    from console.terminal import run

    def prepare() -> Prepared:
        from console.history.replay import Replay
        from console.screens.opening import Prepared

        played = Replay(path)
        hosts = played.hosts()
        config = replace(cli.config(quiet=True), path=path, hosts=hosts, servers={}, note="")

        async def opener(_prompts: ScreenPrompts) -> tuple[FleetPort, ActionsPort]:
            return played, played

        return Prepared(config, opener, played)

    label = "DEMO REPLAY" if cli.demo else "REPLAY"
    return run(prepare, read_only=True, label=label, hosts_file=cli.hosts)


def bundled_recording() -> Path:
    """The recording that stands in for a machine without /proc."""
    from importlib import resources

    path = Path(str(resources.files("console") / "data" / "demo-recording.jsonl.gz"))
    if not path.is_file():
        raise UsageError("this system has no /proc, so it cannot be managed", hint="use Linux")
    return path
