"""Where configuration and state live, and which hosts.yaml is in use."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import platformdirs

from console.errors import ConfigError


def config_dir() -> Path:
    """``$XDG_CONFIG_HOME/specops``: hosts.yaml, presets/, rules/, known_hosts."""
    return Path(platformdirs.user_config_dir("specops"))


def state_dir() -> Path:
    """``$XDG_STATE_HOME/specops``: audit.jsonl, saved logs, caches of this operator."""
    return Path(platformdirs.user_state_dir("specops"))


def shipped_hosts() -> Path:
    """The hosts.yaml inside the package, which holds only ``demo``."""
    return Path(str(resources.files("console") / "data" / "hosts.yaml"))


@dataclass(frozen=True, slots=True)
class Chosen:
    """The hosts.yaml in use and, where a nearer one was passed over, why."""

    path: Path
    note: str = ""


def trusted(path: Path) -> str:
    """Why a file must not be believed, or nothing: it names hosts and commands to run.

    Like ssh with its config: the file and its folder must belong to this user (or root) and be
    writable by nobody else.
    """
    for place in (path, path.resolve().parent):
        try:
            info = place.stat()
        except OSError as error:
            return f"{place}: {error.strerror}"
        if info.st_uid not in (os.getuid(), 0):
            return f"{place} belongs to uid {info.st_uid}"
        sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX and place != path
        if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
            return f"{place} is writable by others"
    return ""


def choose(explicit: Path | None) -> Chosen:
    """The hosts.yaml to use: the given one, ``./hosts.yaml``, the user's own, or the shipped one.

    Raises:
        ConfigError: the given file is missing or may have been written by somebody else.
    """
    if explicit is not None:
        if not explicit.is_file():
            raise ConfigError("no such file", place=str(explicit), hint="specops config init")
        reason = trusted(explicit)
        if reason and "writable" not in reason:
            raise ConfigError(f"not believed: {reason}", place=str(explicit))
        if explicit.stat().st_mode & stat.S_IWOTH:
            hint = f"chmod go-w {explicit}"
            raise ConfigError("writable by everybody", place=str(explicit), hint=hint)
        return Chosen(explicit)
    note = ""
    here = Path("hosts.yaml")
    if here.is_file():
        reason = trusted(here)
        if not reason:
            return Chosen(here.absolute())
        note = f"./hosts.yaml passed over: {reason}"
    own = config_dir() / "hosts.yaml"
    if own.is_file():
        return Chosen(own, note)
    return Chosen(shipped_hosts(), note)
