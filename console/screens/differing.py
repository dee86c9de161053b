"""What differs between two sets of flags and variables, as lines to read. Pure."""

from __future__ import annotations

from typing import Any

from console.config.presets import Difference, Presets
from console.model import Run, Server
from console.text import is_secret_name
from widgets.paint import fit
from widgets.words import safe

Row = tuple[str, str]
"""A line of text and its role."""


def difference_rows(differences: tuple[Difference, ...]) -> list[Row]:
    """One line a flag or variable: name, before, after."""
    if not differences:
        return [("no difference", "ok")]
    out: list[Row] = []
    for found in differences:
        name = found.name if found.variable else f"--{found.name}"
        hidden = is_secret_name(found.name)
        before, after = (
            "***" if hidden and value is not None else _shown(value)
            for value in (found.before, found.after)
        )
        out.append((f"{fit(safe(name), 34)} {fit(before, 20, right=True)}  →  {after}", "plain"))
    return out


def _shown(value: Any) -> str:
    return "(unset)" if value is None else safe(str(value))


def flags_of(argv: tuple[str, ...]) -> dict[str, Any]:
    """The flags of a command line: name to value, ``True`` for a bare one."""
    out: dict[str, Any] = {}
    name: str | None = None
    for word in argv:
        if word.startswith("--"):
            name, eq, value = word[2:].partition("=")
            out[name] = value if eq else True
            name = None if eq else name
        elif name is not None:
            out[name] = word if out[name] is True else f"{out[name]} {word}"
    return out


def run_difference(run: Run, server: Server, presets: Presets) -> list[Row]:
    """What a run was started with against what hosts.yaml and its presets say now.

    Only flags and variables that either preset or ``args`` name are compared: the rest of a command
    line (model, port) is the server's own.
    """
    flags: dict[str, Any] = {}
    env: dict[str, Any] = {}
    for kind, name in (("nccl", server.nccl), ("speculative", server.speculative)):
        if name is not None:
            preset = presets.get(kind, name)
            flags.update(preset.flags)
            env.update(preset.env)
    flags.update(server.args)
    env.update(server.env)
    ran = flags_of(run.argv)
    out = [
        Difference(name, ran.get(name), _wanted(value), variable=False)
        for name, value in sorted(flags.items())
        if _text(ran.get(name)) != _text(_wanted(value))
    ]
    out += [
        Difference(name, run.env.get(name), value, variable=True)
        for name, value in sorted(env.items())
        if run.env.get(name) != value
    ]
    speculative = {name for name in ran if name.startswith("speculative-")} - set(flags)
    out += [Difference(name, ran[name], None, variable=False) for name in sorted(speculative)]
    head = [
        (f"{'':<34} {'this run':>20}  →  hosts.yaml and presets", "strong"),
        (f"{fit('speculative', 34)} {fit(run.speculative or '(unset)', 20, right=True)}  →  "
         f"{server.speculative or '(unset)'}", "dim"),
        (f"{fit('nccl', 34)} {fit(run.nccl or '(unset)', 20, right=True)}  →  "
         f"{server.nccl or '(unset)'}", "dim"),
    ]  # fmt: skip
    return [*head, *difference_rows(tuple(out))]


def _wanted(value: Any) -> Any:
    return None if value is False else value


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
