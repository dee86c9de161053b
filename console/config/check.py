"""What hosts.yaml says that only other parts can judge: presets, keys, the theme, shared ports."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from console.config import load
from console.config.presets import Presets
from console.config.schema import Config
from console.errors import ConfigError, Mistakes, UsageError
from console.text import is_secret_name, mask

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


def check_secrets(config: Config, presets: Presets, mistakes: Mistakes) -> None:
    """Keep as mistakes the variables with a secret in plain text: a launch would refuse them."""
    for server in config.servers.values():
        for name, value in server.env.items():
            if _is_plain_secret(name, value):
                with mistakes.kept(), config.at("servers", server.name, "env", name):
                    raise UsageError("a secret in plain text", hint=_by_reference(name))
    for preset in presets:
        for name, given in preset.env.items():
            if _is_plain_secret(name, given):
                what = f"env.{name}: a secret in plain text"
                mistakes.add(ConfigError(what, place=preset.origin, hint=_by_reference(name)))


def plain_secrets(config: Config) -> list[str]:
    """Flags with a secret in plain text, and values that look like one: all may be read in ps."""
    out = []
    for server in config.servers.values():
        options = {"options": server.runner.options}
        for part, values in (("args", server.args), ("env", server.env), ("runner", options)):
            for name, value in values.items():
                plain, hint = _is_plain_secret(name, value), _by_reference(name)
                if plain and part == "args":
                    what = "a secret in plain text, which ps shows"
                elif _looks_secret(value) and not plain:  # of env that was a mistake
                    what, hint = "looks like it holds a credential", "secret:NAME keeps one out"
                else:
                    continue
                where = f"servers.{server.name}.{part}.{name}"
                keys = (where, f"servers.{server.name}.{part}")
                place = next((config.places[key] for key in keys if key in config.places), "")
                out.append(f"{place or config.path}: {where}: {what} ({hint})")
    return out


def _is_plain_secret(name: str, value: object) -> bool:
    plain = isinstance(value, str | int) and not isinstance(value, bool)
    return is_secret_name(name) and plain and not str(value).startswith("secret:") and value != ""


def _looks_secret(value: object) -> bool:
    parts = value if isinstance(value, list | tuple) else [value]
    return any(mask(str(part)) != str(part) for part in parts)


def _by_reference(name: str) -> str:
    key = re.sub(r"\W", "_", name).upper()
    return f"write secret:{key} and keep the value in your own environment"


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
