"""hosts.yaml and presets: load, validate, save, reload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from console.config.nodes import nearest, parse
from console.config.paths import choose, config_dir, shipped_hosts, state_dir
from console.config.schema import Config, Notify, read_config
from console.errors import ConfigError, Mistakes

__all__ = [
    "Config",
    "Notify",
    "config_dir",
    "load",
    "nearest",
    "shipped_hosts",
    "state_dir",
]


def load(explicit: Path | None = None, mistakes: Mistakes | None = None) -> Config:
    """The hosts.yaml in use, validated (see :func:`console.config.paths.choose` for which).

    With ``mistakes`` those of keys and values are kept there, and what could be read comes back.

    Raises:
        ConfigError: missing, unreadable, not YAML, or with keys or values that make no sense; all
            of them are told, each with its ``file:line:column``.
    """
    told = mistakes or Mistakes()
    chosen = choose(explicit)
    try:
        text = chosen.path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(str(error.strerror), place=str(chosen.path)) from error
    except UnicodeDecodeError as error:
        message = f"not UTF-8 at byte {error.start}"
        raise ConfigError(message, place=str(chosen.path)) from error
    config = replace(read_config(parse(text, chosen.path, told)), note=chosen.note)
    if mistakes is None:
        told.tell()
    return config
