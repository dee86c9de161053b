"""What hosts.yaml says that only other parts can judge: presets, keys, the theme, shared ports."""

from __future__ import annotations

import shutil
from pathlib import Path

from console.config import load
from console.config.presets import Presets
from console.config.schema import Config
from console.errors import Mistakes, UsageError

ANY = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


def load_checked(explicit: Path | None = None) -> Config:
    """The hosts.yaml in use as the console takes it: keys and theme are right as well.

    Raises:
        ConfigError: all that is wrong with it.
    """
    mistakes = Mistakes()
    config = load(explicit, mistakes)
    check_console(config, mistakes)
    mistakes.tell()
    return config


def check_presets(config: Config, presets: Presets, mistakes: Mistakes) -> None:
    """Keep as mistakes the presets of servers that a launch would refuse: none, or unreadable."""
    for server in config.servers.values():
        for kind, name in (("speculative", server.speculative), ("nccl", server.nccl)):
            if name:
                with mistakes.kept(), config.at("servers", server.name, kind):
                    if (error := presets.broken.get((kind, name))) is not None:
                        raise UsageError(f"{kind} preset '{name}' cannot be used", hint=str(error))
                    presets.get(kind, name)


def check_console(config: Config, mistakes: Mistakes) -> None:
    """Keep as mistakes what the console would refuse: its keys, its theme."""
    if config.keys:
        from console.keys import KeyMap  # noqa: PLC0415 - only where keys are remapped

        with mistakes.kept(), config.at():
            KeyMap.make(config.keys)
    if config.theme is not None:
        from console.styles import check as theme  # noqa: PLC0415 - brings Textual

        with mistakes.kept(), config.at():
            theme(config.theme)


def notify_command(config: Config) -> list[str]:
    """That the operator's own command cannot be found, were it run from here and now."""
    command = config.notify.command
    if not command or shutil.which(command[0]):
        return []
    place = config.places.get("notify.command", str(config.path))
    return [f"{place}: notify.command: '{command[0]}' is no program that is found here"]


def shared_ports(config: Config) -> list[str]:
    """Servers that cannot run at the same time; a port that only a unit tells is not known here."""
    out: list[str] = []
    servers = [
        one for one in config.servers.values()
        if one.runner.kind == "process" or f"servers.{one.name}.port" in config.places
    ]  # fmt: skip
    for index, one in enumerate(servers):
        for other in servers[:index]:
            binds = {one.bind, other.bind}
            hosts = {one.host, *one.hosts} & {other.host, *other.hosts}
            if one.port == other.port and hosts and (len(binds) == 1 or binds & set(ANY)):
                keys = (f"servers.{one.name}.port", f"servers.{one.name}")
                place = next((config.places[key] for key in keys if key in config.places), "")
                what = f"{one.name} and {other.name} both use port {one.port} of {min(hosts)}"
                out.append(f"{place}: {what}: only one of them can run at a time")
    return out
