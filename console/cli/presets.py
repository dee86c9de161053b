"""``specops presets``: list, show, save and compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from console.cli.common import Cli, common
from console.cli.output import paint, print_json, say, table, width
from console.errors import UsageError

if TYPE_CHECKING:
    from console.model import Preset


@click.group()
def presets() -> None:
    """Named sets of flags and variables, one YAML file each."""


def _document(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "kind": preset.kind,
        "description": preset.description,
        "flags": dict(preset.flags),
        "env": dict(preset.env),
        "notes": dict(preset.notes),
        "source": preset.source,
        "origin": preset.origin,
    }


@presets.command("list")
@click.option("--kind", type=click.Choice(["nccl", "speculative", "server"]), help="Only these.")
@click.option("--for", "server", metavar="SERVER",
              help="What worked first: by how they did on its host with its model.")  # fmt: skip
@common()
def list_presets(cli: Cli, kind: str | None, server: str | None) -> int:
    """All presets in reach, your own over the shipped ones."""
    found = [preset for preset in cli.presets() if kind in (None, preset.kind)]
    if server is not None:
        from console.cli.preset_history import say_ranked

        return say_ranked(cli, found, server)
    if cli.json:
        print_json({"presets": [_document(preset) for preset in found]})
        return 0
    own = {True: "shipped", False: "own"}
    rows = [(p.kind, p.name, own[p.origin == "shipped"], p.description) for p in found]
    for line in table(rows, ("KIND", "NAME", "ORIGIN", "DESCRIPTION")):
        say(line)
    return 0


@presets.command("show")
@click.argument("name")
@click.option("--offline", is_flag=True, help="Do not ask the hosts for launches with it.")
@common()
def show_preset(cli: Cli, name: str, offline: bool) -> int:
    """One preset: what it sets, what each setting does, where that is from, and how it did.

    The hosts of hosts.yaml are asked for the launches they remember; measurements are this
    machine's own. A host that does not answer is named and no failure.
    """
    from console.cli.preset_history import history, say_history

    preset = cli.presets().find(name)
    past = history(cli, preset, offline=offline)
    if cli.json:
        print_json({"preset": _document(preset), **past.to_json()})
        return 0
    say(paint(f"{preset.kind}/{preset.name}", "bold") + f"  ({preset.origin})")
    _wrapped(preset.description, "  ")
    for setting, value in (*preset.flags.items(), *preset.env.items()):
        head = f"--{setting}" if setting in preset.flags else setting
        say("\n" + paint(f"  {head} = {_value(value)}", "cyan"))
        _wrapped(preset.notes.get(setting, ""), "    ")
    if preset.source:
        say(f"\n  {preset.source}")
    say_history(past)
    return 0


def _value(value: object) -> str:
    return "(not set)" if value is None else str(value)


def _wrapped(text: str, margin: str) -> None:
    import textwrap

    for line in textwrap.wrap(text, min(width(), 100) - len(margin)):
        say(margin + line)


@presets.command("diff")
@click.argument("before")
@click.argument("after")
@common()
def diff_presets(cli: Cli, before: str, after: str) -> int:
    """What changes from one preset to the other; exit status 1 if anything does."""
    from console.config.presets import diff

    known = cli.presets()
    changes = diff(known.find(before), known.find(after))
    if cli.json:
        rows = [
            {"name": c.name, "before": c.before, "after": c.after, "variable": c.variable}
            for c in changes
        ]
        print_json({"changes": rows})
    else:
        lines = [
            (c.name if c.variable else f"--{c.name}", _value(c.before), "→", _value(c.after))
            for c in changes
        ]
        for line in table(lines):
            say(line)
        if not changes:
            say("no difference")
    return 1 if changes else 0


@presets.command("save")
@click.argument("name")
@click.option("--kind", type=click.Choice(["nccl", "speculative", "server"]), required=True)
@click.option("--from", "base", metavar="PRESET", help="Start from this one.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="A flag (without dashes) or a VARIABLE; no value takes it away.")  # fmt: skip
@click.option("--description", help="What it is for.")
@common()
def save_preset(
    cli: Cli, name: str, kind: str, base: str | None, settings: tuple[str, ...],
    description: str | None,
) -> int:  # fmt: skip
    """Save a preset of your own, whole and atomically."""
    from pathlib import Path

    from console.config.nodes import parse
    from console.config.presets import dump, read_preset
    from console.model import Preset

    known = cli.presets()
    start = known.find(base) if base else None
    flags: dict[str, Any] = dict(start.flags) if start else {}
    env: dict[str, str | None] = dict(start.env) if start else {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if key.isupper():
            env[key] = value if equals else None
        else:
            flags[key.removeprefix("--")] = _typed(value) if equals else None
    text = description or (start.description if start else "")
    if not text:
        raise UsageError("needs a description", hint="--description 'what it is for'")
    notes = {k: v for k, v in (start.notes if start else {}).items() if k in {*flags, *env}}
    made = Preset(name, kind, text, flags, env, source=start.source if start else "", notes=notes)  # type: ignore[arg-type]
    # What is written must be what will be read: the same checks, before the file is replaced.
    read_preset(parse(dump(made), Path(f"{name}.yaml")), name, "own")
    path = known.save(made)
    if cli.json:
        print_json({"saved": str(path), "preset": _document(made)})
    else:
        say(f"saved {path}")
    return 0


def _typed(value: str) -> Any:
    """A value as YAML reads it: 3 is a number, true a switch."""
    import yaml

    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        return value
    return read if isinstance(read, str | int | float | bool) else value
