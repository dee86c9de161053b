"""Files that a launch names and that lie beside it: ``--config FILE``, EnvironmentFile=, env_file.

Facts: SGLang server_args_config_parser.py (keys become flags before those of the line, which
therefore win; only ``--config FILE`` as two words is seen); systemd.exec(5) EnvironmentFile=, whose
values win over Environment=; docker's --env-file, over which -e wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from console.errors import UsageError
from console.preflight.command import LaunchCommand

Reader = Callable[[str], str | None]
"""The text of a file that the launch names; None where it cannot be had."""

_MAX_BYTES = 1 << 20


def reader(folder: Path) -> Reader:
    """Looks for a file at the path itself, below ``folder``, and by its bare name in ``folder``."""

    def read(name: str) -> str | None:
        for path in (Path(name).expanduser(), folder / name, folder / Path(name).name):
            try:
                if path.is_file() and path.stat().st_size <= _MAX_BYTES:
                    return path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                continue
        return None

    return read


def with_files(command: LaunchCommand, read: Reader) -> LaunchCommand:
    """The launch with what its files say put in place; files that cannot be had change nothing.

    Raises ``UsageError`` where a ``--config`` file is no YAML mapping.
    """
    env: dict[str, str] = {}
    for name in command.env_files:
        env |= variables(read(name) or "")
    if env:  # a unit's file was merged where the unit was read, and wins there
        command = replace(command, env={**env, **command.env})
    args = list(command.args)
    if command.engine == "vllm" or args.count("--config") != 1:
        return command
    at = args.index("--config")
    name = args[at + 1] if at + 1 < len(args) else ""
    text = read(name) if name.lower().endswith((".yaml", ".yml")) else None
    if text is None:
        return command
    return replace(command, args=(*flags(text, name), *args[:at], *args[at + 2 :]))


def variables(text: str) -> dict[str, str]:
    """``NAME=VALUE`` lines; comments and the quotes around a value are dropped."""
    out: dict[str, str] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*", line)
        if match:
            value = match[2]
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            out[match[1]] = value[1:-1] if quoted else value
    return out


def flags(text: str, place: str) -> list[str]:
    """The flags that a ``--config`` file stands for."""
    try:
        document: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UsageError(
            "the --config file is not valid YAML", place=f"{place}{line}", hint="correct it"
        ) from error
    if not isinstance(document, dict | None):
        raise UsageError(
            "the --config file holds no mapping", place=place, hint="write one flag: value a line"
        )
    out: list[str] = []
    for key, value in (document or {}).items():
        if value is False:
            continue
        out.append(f"--{key}")
        if isinstance(value, list):
            out += map(str, value)
        elif value is not True:
            out.append(str(value))
    return out
