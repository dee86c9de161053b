"""``specops serve``: the bundled server, started as a program of its own."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

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
    and process tree are the server's own. Without --model-path it serves the shipped pair.
    """
    missing = [name for name in ("torch", "starlette") if importlib.util.find_spec(name) is None]
    if missing:
        hint = "pip install 'specops[server]'"
        raise UsageError(f"the bundled server needs {' and '.join(missing)}", hint=hint)
    sys.stdout.flush()
    argv = [sys.executable, "-m", "eagle3.launch_server", *shipped(arguments), *arguments]
    os.execv(sys.executable, argv)  # noqa: S606 - replacing this process is the point


def shipped(arguments: Sequence[str]) -> list[str]:
    """The flags that name the shipped models, where these arguments name none."""
    given = {word.partition("=")[0] for word in arguments}
    if given & {"--model-path", "--model", "--config", "--help", "-h"}:
        return []
    spec = importlib.util.find_spec("eagle3")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    weights = Path(next(iter(spec.submodule_search_locations))) / "weights"
    out = ["--model-path", str(weights / "target")]
    if "--speculative-algorithm" in given and "--speculative-draft-model-path" not in given:
        out += ["--speculative-draft-model-path", str(weights / "draft")]
    return out
