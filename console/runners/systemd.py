"""A server kept by a systemd unit: its drop-in ``specops.conf`` carries flags and variables.

The unit file itself is never touched. The drop-in resets ``ExecStart=`` and sets the whole command
anew, because systemd has no way to change one argument. Rules of quoting: systemd.service(5),
"Command lines"; systemd.syntax(7).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from console.errors import UsageError
from console.preflight.command import LaunchCommand
from console.preflight.units import parse_unit
from console.runners.prepare import RUN_VARIABLE
from console.runners.settings import REFERENCE, Settings, override

DROP_IN = "specops.conf"
MARK = "# Written by specops"
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as read from the host.

    ``base`` is its text without our drop-in (``systemctl cat`` minus that file), ``drop_in`` the
    drop-in's present text (``None``: there is none), ``drop_in_path`` where it belongs.
    """

    name: str
    base: str
    drop_in: str | None
    drop_in_path: str
    user: bool = False


@dataclass(frozen=True, slots=True)
class UnitLaunch:
    """What to write and what it will run. ``foreign_edit`` is a hand-edited drop-in's text."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    text: str
    foreign_edit: str | None = None


def systemctl(user: bool) -> tuple[str, ...]:
    """The command in front of every verb."""
    return ("systemctl", "--user") if user else ("systemctl",)


def drop_in_path(unit: str, user_dir: str | None = None) -> str:
    """Where the drop-in of a system unit is, or of a user unit below ``~/.config``."""
    root = f"{user_dir}/systemd/user" if user_dir else "/etc/systemd/system"
    return f"{root}/{unit}.d/{DROP_IN}"


def split_cat(text: str, path: str) -> tuple[str, str | None]:
    """The output of ``systemctl cat`` without our drop-in, and our drop-in where it is in it.

    Each file starts with a comment line that holds its path.
    """
    base: list[str] = []
    own: list[str] = []
    found = False
    target = base
    for line in text.splitlines(keepends=True):
        heading = re.fullmatch(r"# (/\S+)\s*", line)
        if heading:
            target = own if heading[1] == path else base
            found = found or target is own
            if target is own:
                continue
        target.append(line)
    return "".join(base), "".join(own) if found else None


def command_of(unit: Unit) -> LaunchCommand:
    """The launch that the unit makes without our drop-in.

    Raises:
        UsageError: its ExecStart= starts no model server itself.
    """
    return parse_unit(unit.base, place=unit.name)


def launch_of(
    unit: Unit, settings: Settings, *, run_id: str, version: str | None = None
) -> UnitLaunch:
    """The drop-in that gives the unit these settings.

    Raises:
        UsageError: the unit's command cannot be read, or a value cannot be written in a unit.
    """
    command = command_of(unit)
    args = override(command.args, settings, version)
    head = (*command.wrapper, command.python, *entry_words(command))
    argv = tuple(word for word in (*head, *args) if word)
    return written(unit, argv, settings.env, command.env, run_id, unset=settings.unset)


def written(
    unit: Unit,
    argv: tuple[str, ...],
    own: Mapping[str, str],
    base: Mapping[str, str],
    run_id: str,
    *,
    unset: Iterable[str] = (),
) -> UnitLaunch:
    """The drop-in for exactly this command; ``own`` variables come on top of the unit's ``base``.

    Raises:
        UsageError: a value cannot be written in a unit, or is a secret: units are read by all.
    """
    for value in (*argv, *own.values()):
        if value.startswith(REFERENCE):
            raise UsageError(
                f"{value} cannot be put in a unit, which everybody may read",
                place=unit.name,
                hint="give the unit an EnvironmentFile= of mode 0600 that sets it",
            )
    env = {**own, RUN_VARIABLE: run_id}
    lines = [
        f"{MARK} for run {run_id}. `specops undo` restores what was here before;",
        "# remove this file and run `systemctl daemon-reload` to return to the unit's own command.",
        "[Service]",
        *(f"Environment={quote(f'{name}={value}', variable=False)}" for name, value in env.items()),
    ]
    if unset:
        lines.append(f"UnsetEnvironment={' '.join(sorted(unset))}")
    lines += ["ExecStart=", f"ExecStart={' '.join(quote(word) for word in argv)}"]
    edited = unit.drop_in if unit.drop_in and not _is_ours(unit.drop_in) else None
    return UnitLaunch(argv, {**base, **env}, "\n".join(lines) + "\n", edited)


def entry_words(command: LaunchCommand) -> tuple[str, ...]:
    """What stands between the interpreter and the engine's own arguments."""
    if command.entry.endswith(".py"):
        return (command.entry,)
    return tuple(command.entry.split())


def _is_ours(text: str) -> bool:
    return text.lstrip().startswith(MARK)


def quote(word: str, *, variable: bool = True) -> str:
    """A word as ExecStart= or Environment= takes it; ``$`` is literal in the latter already."""
    if not word.isprintable():
        raise UsageError("a control character cannot be written in a unit", hint="remove it")
    text = word.replace("%", "%%")
    if variable:
        text = text.replace("$", "$$")
    if text and _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def show_properties(text: str) -> dict[str, str]:
    """``systemctl show`` as a mapping."""
    return dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)


def failure(properties: Mapping[str, str]) -> str | None:
    """Why a unit is not running, in words, or ``None`` while it runs or starts."""
    state = properties.get("ActiveState", "")
    if state in ("active", "activating", "reloading"):
        return None
    result = properties.get("Result", "")
    status = properties.get("ExecMainStatus", "?")
    reasons: Mapping[str, str] = {
        "success": "ended",
        "exit-code": f"exited with code {status}",
        "signal": f"was killed by signal {status}",
        "core-dump": f"dumped core on signal {status}",
        "oom-kill": "was killed because memory ran out",
        "timeout": "did not start or stop in the unit's own time limit",
        "start-limit-hit": "failed so often that systemd stopped trying",
        "resources": "could not be started for want of resources",
    }
    return reasons.get(result, result or state or "is not known to systemd")
