"""What a ``:`` line may go on to: words, options, names that exist.

Options come from the command line's own parser, so that both always know the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from console.keys import BY_ID, CLI_WORDS, OWN_WORDS

if TYPE_CHECKING:
    import click

    from console.app import SpecopsApp

ON_SERVERS = {"launch", "stop", "relaunch", "watch", "logs", "bench", "preflight", "server"}
ON_HOSTS = {"status", "zombies", "kill-zombies", "reset-gpu", "runs", "adopt", "host", "doctor"}
PRESET_OPTIONS = {"--preset": ("server", "speculative"), "--against": ("speculative", "server"),
                  "--nccl": ("nccl",)}  # fmt: skip
NEVER_END = {"console": "is this", "serve": "does not end", "exporter": "does not end"}
"""Commands that ``:`` does not run, and why."""
CHANGES_FILES = {"adopt", "hosts"}
"""Commands without a plan that a read-only console does not offer either."""


def words(app: SpecopsApp) -> dict[str, str]:
    """The first words and what they do; those that change a host only where that is allowed."""
    out = {}
    for word, text in {**CLI_WORDS, **OWN_WORDS}.items():
        action = BY_ID.get(word)
        dangerous = word in CHANGES_FILES or (action is not None and action.dangerous)
        if not (dangerous and (app.read_only or app.player is not None)):
            out[word] = text
    return out


def complete(app: SpecopsApp, line: str) -> list[str]:
    """Whole lines that this one may go on to, likeliest first."""
    *head, last = line.split(" ")
    found = [word for word in _pool(app, head, last) if word.startswith(last) and word != last]
    return [" ".join([*head, word]) for word in dict.fromkeys(found)]


def hint(app: SpecopsApp, line: str) -> list[tuple[str, str]]:
    """Words that may come next, each with what it means where that is known."""
    *head, last = line.split(" ")
    known = words(app) if not head else _option_texts(head)
    if not head and last in known:
        return [(last, known[last])]
    found = [text.split(" ")[-1] for text in complete(app, line)]
    return [(word, known.get(word, "")) for word in found]


def _pool(app: SpecopsApp, head: Sequence[str], last: str) -> Iterable[str]:
    if not head:
        return words(app)
    word = head[0]
    if word not in words(app):
        return ()
    if head[-1] in PRESET_OPTIONS:
        return _presets(app, PRESET_OPTIONS[head[-1]])
    if word == "theme":
        return ("dark", "light", "contrast", "16", *app.available_themes)
    if word == "open":
        return _paths(last)
    if last.startswith("-"):
        return _option_texts(head)
    names: list[str] = []
    command = _command(head[:1])
    if len(head) == 1 and command is not None and hasattr(command, "commands"):
        return list(command.commands)
    if word == "presets":
        names += _presets(app, ("speculative", "nccl", "server"))
    if word in ON_SERVERS or word == "diagnose":
        names += app.config.servers
    if word in ON_HOSTS:
        names += app.config.hosts
    if word in ("resume", "undo"):
        names += app.doing.hosts_of_plans
    if word == "report":
        names += (run.run_id for view in app.views.values() for run in view.runs)
    return [name for name in names if name not in head[1:]]


def _presets(app: SpecopsApp, kinds: Sequence[str]) -> list[str]:
    known = list(app.presets())
    return [preset.name for kind in kinds for preset in known if preset.kind == kind]


def _paths(last: str) -> list[str]:
    """Files and folders that a path may go on to; hidden ones only when asked for."""
    folder, _, start = last.rpartition("/")
    base = Path(folder or ("/" if last.startswith("/") else ".")).expanduser()
    try:
        found = sorted(base.iterdir())[:500]
    except OSError:
        return []
    prefix = f"{folder}/" if "/" in last else ""
    shown = (path for path in found if start or not path.name.startswith("."))
    return [f"{prefix}{p.name}{'/' * p.is_dir()}" for p in shown if p.name.startswith(start)]


def _command(head: Sequence[str]) -> click.Command | None:
    """The parser of a command, or of the subcommand that the line names."""
    from console.cli.root import COMMANDS, specops  # noqa: PLC0415 - click, at the first Tab

    if not head or head[0] not in COMMANDS:
        return None
    import click  # noqa: PLC0415 - only here

    context = click.Context(specops)
    command = specops.get_command(context, head[0])
    if isinstance(command, click.Group) and len(head) > 1:
        return command.commands.get(head[1], command)
    return command


def _option_texts(head: Sequence[str]) -> dict[str, str]:
    """The options of a command that were not given yet, with their help."""
    command = _command([word for word in head if not word.startswith("-")][:2])
    if command is None:
        return {}
    out = {}
    for parameter in command.params:
        for name in parameter.opts:
            if name.startswith("--") and name not in head and name != "--hosts":
                out[name] = getattr(parameter, "help", None) or ""
    return out
