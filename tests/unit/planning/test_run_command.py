"""What ``:`` runs as a command of its own only looks, however its options are spelled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from console.cli.root import COMMANDS, specops
from console.errors import Refused
from console.planning.operations import CHANGING, LOOKING, Operations

LOOKS = {
    "hosts", "demo", "as_json", "names", "quick", "what", "extra", "last", "errors", "pattern",
    "node", "kind", "offline", "before", "after", "server", "preset", "nccl", "no_engine", "text",
    "target", "draft", "version", "name", "path", "run", "output", "terminal", "dry_run", "yes",
    "force", "host", "pid",
}  # fmt: skip
"""Parameters that were looked at: none of them makes one of these commands change a host.
``yes`` and ``force`` say something of ``--purge`` and ``adopt`` alone; ``output`` is where a
bundle goes; ``adopt`` has a word of its own in a read-only console."""


def leaves(name: str) -> list[tuple[str, click.Command]]:
    context = click.Context(specops)
    command = specops.get_command(context, name)
    if isinstance(command, click.Group):
        return [(f"{name} {sub}", one) for sub, one in command.commands.items()]
    assert command is not None
    return [(name, command)]


@pytest.mark.parametrize("name", sorted(LOOKING))
def test_every_option_that_is_not_refused_is_known_to_look_only(name: str) -> None:
    assert name in COMMANDS
    for words, command in leaves(name):
        if CHANGING & set(words.split()):
            continue
        for parameter in command.params:
            if not CHANGING & set(parameter.opts):
                assert parameter.name in LOOKS, f"{words}: does {parameter.opts} change anything?"


@pytest.mark.parametrize(
    "line",
    [
        "doctor --purge here --yes", "doctor --purge=here --yes", "doctor --yes --purge=here",
        "presets save x", "config init /tmp/x", "logs pair -f", "stop pair", "launch pair --yes",
        "kill-zombies", "undo p", "bench pair", "serve", "console", "nonsense",
    ],
)  # fmt: skip
async def test_what_would_change_something_is_refused(line: str) -> None:
    operations = cast("Any", object.__new__(Operations))
    operations.fleet = SimpleNamespace(config=SimpleNamespace(path=Path("/nowhere")))
    with pytest.raises(Refused):
        await operations.run_command(line)
