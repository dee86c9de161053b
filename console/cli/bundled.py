"""``specops serve``: the bundled server, started as a program of its own."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from console.errors import UsageError


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(arguments: tuple[str, ...]) -> None:
    """Run the bundled EAGLE-3 server here; its flags are SGLang's (see serve --help).

    The same as ``python -m eagle3.launch_server``, which replaces this process: signals, exit code
    and process tree are the server's own.
    """
    missing = [name for name in ("torch", "fastapi") if importlib.util.find_spec(name) is None]
    if missing:
        hint = "pip install 'specops[server]'"
        raise UsageError(f"the bundled server needs {' and '.join(missing)}", hint=hint)
    sys.stdout.flush()
    argv = [sys.executable, "-m", "eagle3.launch_server", *arguments]
    os.execv(sys.executable, argv)  # noqa: S606 - replacing this process is the point
