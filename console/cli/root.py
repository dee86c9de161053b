"""The command tree and the one place where errors become an exit code and a message."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from console.cli.output import (
    ERROR_LIMIT,
    ReaderGone,
    error_document,
    lead_nowhere,
    print_json,
    warn,
)
from console.errors import ActionFailed, ConfigError, SpecopsError, UsageError

COMMANDS: Mapping[str, tuple[str, str]] = {
    "console": ("terminal", "Open the terminal app."),
    "status": ("look", "GPUs, servers and zombies of each host."),
    "zombies": ("look", "Zombies with their evidence."),
    "kill-zombies": ("kill", "Kill and clean zombies, verify that memory is back."),
    "reset-gpu": ("reset", "Reset a GPU whose driver asks for it and that nothing holds."),
    "preflight": ("preflight", "Would this launch fail? Changes nothing."),
    "launch": ("serve", "Start a server and watch it."),
    "stop": ("serve", "Stop a server, clean up, verify memory."),
    "relaunch": ("serve", "Preflight, stop, clean, verify, launch, watch."),
    "watch": ("serve", "Follow a start until ready, failed or stalled."),
    "logs": ("logs", "Show, follow or search a server's log."),
    "diagnose": ("logs", "The root cause in a log, and its fix."),
    "bench": ("bench", "Measure a running server; compare two presets."),
    "presets": ("presets", "List, show, save and compare presets."),
    "config": ("config", "Which hosts.yaml, is it right, write a first one."),
    "doctor": ("doctor", "Check this installation, a host, the terminal."),
    "adopt": ("adopt", "Make a server started by hand a managed one."),
    "runs": ("history", "Launches that the hosts remember."),
    "resume": ("history", "Finish an interrupted plan."),
    "undo": ("history", "Undo a plan where that is possible."),
    "report": ("history", "A run as a masked bundle for a colleague."),
    "serve": ("bundled", "Run the bundled EAGLE-3 server here."),
}
"""Command: (module of this package, one line for --help). Nothing is imported to print them."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of a disk that say enough by themselves."""


ACTING = (
    "kill-zombies",
    "reset-gpu",
    "launch",
    "stop",
    "relaunch",
    "adopt",
    "resume",
    "undo",
    "bench",
)
INTERRUPTED = "what was started goes on; specops runs shows it, and a plan to resume or undo"


class Interrupted(SpecopsError):
    """Ctrl-C, or the terminal has gone."""

    code = "interrupted"


class Commands(click.Group):
    """Imports a subcommand when it is called, not when help is printed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; ``UsageError`` with the nearest one."""
        if cmd_name not in COMMANDS:
            from console.config.nodes import nearest

            raise UsageError(f"no command '{cmd_name}'", hint=nearest(cmd_name, COMMANDS))
        module = importlib.import_module(f"console.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list for --help, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="specops", message="specops %(version)s")
def specops() -> None:
    """Operations console for LLM inference hosts: see, kill, clean, relaunch and tail.

    Exit codes: 0 done, 1 found something, 2 usage or configuration, 3 host unreachable,
    4 refused, 5 preflight failed, 6 action failed, 7 timed out or stalled.
    """


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code; prints errors as the contract says."""
    try:
        result: Any = specops.main(list(argv), prog_name="specops", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        return _fail(argv, UsageError(error.format_message(), hint=_help_hint(error)))
    except SpecopsError as error:
        return _fail(argv, error)
    except (KeyboardInterrupt, click.exceptions.Abort):
        _fail(argv, Interrupted("interrupted", hint=INTERRUPTED if argv[0] in ACTING else ""))
        return 130
    except ReaderGone:
        return 0
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            return _internal(argv, error)
        place = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
        return _fail(argv, ActionFailed(error.strerror or str(error), place=place))
    except Exception as error:  # outermost: a fault of ours is one line too, its trace a file
        return _internal(argv, error)
    return result if isinstance(result, int) else 0


def _internal(argv: Sequence[str], error: Exception) -> int:
    """Say a fault of specops itself in one line and keep its trace, without secrets, in a file."""
    import traceback

    from console.config.paths import state_dir
    from console.text import mask

    path = state_dir() / "fault.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(mask("".join(traceback.format_exception(error))), encoding="utf-8")
        hint = f"please report it with {path}"
    except OSError:
        traceback.print_exception(error)
        hint = "please report it with the lines above"
    message = f"a fault in specops: {type(error).__name__}: {error}"
    return _fail(argv, SpecopsError(mask(message), hint=hint))


LISTED = {"PLAN": "runs", "RUN": "runs", "SERVER": "status"}
"""What an argument names, and the command that lists those there are."""


def _help_hint(error: click.ClickException) -> str:
    if isinstance(error, click.MissingParameter) and error.param is not None:
        names = (error.param.metavar or error.param.name or "").upper().split("|")
        for name in filter(LISTED.__contains__, names):
            return f"specops {LISTED[name]} lists them"
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context else "specops --help"


def _fail(argv: Sequence[str], error: SpecopsError) -> int:
    """One clear line for each thing wrong on stderr; with --json the document on stdout too."""
    try:
        if "--json" in argv:
            print_json(error_document(error))
    except OSError:  # a full disk behind stdout: stderr and the exit code are all there is
        lead_nowhere(sys.stdout)
    _say(error)
    return error.exit_code


MOST = 50
"""Mistakes of a file that are said one by one."""


def _say(error: SpecopsError) -> None:
    from console.text import clean

    told = error.each if isinstance(error, ConfigError) else (error,)
    for one in told[:MOST]:
        warn(clean(str(one), limit=ERROR_LIMIT), head="specops")
    if len(told) > 1:
        more = f", {len(told) - MOST} of them not shown" if len(told) > MOST else ""
        warn(f"{len(told)} mistakes{more}", head="specops")
