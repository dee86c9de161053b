"""The console and the terminal it runs in: start, and every way out gives it back."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from console.errors import UsageError

if TYPE_CHECKING:
    from console.app import Opener
    from console.config import Config
    from console.screens.ports import Player


def leave_on_signals(leave: Callable[[], None]) -> None:
    """SIGTERM and SIGHUP end the console as ``q`` does, with the terminal given back."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Not in the main thread (tests), or no such signals here: nothing to take care of.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, leave)


def run(
    config: Config,
    opener: Opener,
    *,
    read_only: bool = False,
    label: str = "",
    hosts_file: Path | None = None,
    player: Player | None = None,
    first_run: bool = False,
) -> int:
    """Run the console in this terminal until the operator leaves; returns the exit code.

    ``label`` is shown in the head line (``DEMO``, ``REPLAY``); ``hosts_file`` is an explicit
    hosts.yaml, beside which presets are kept; ``player`` is the recording that is shown;
    ``first_run`` asks which hosts there are.

    Raises:
        UsageError: there is no terminal to draw on.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        # Textual draws on stderr: a redirected one would be a blank screen and a file of escapes.
        raise UsageError("the console needs a terminal", hint="specops status prints instead")
    from console.app import SpecopsApp  # noqa: PLC0415 - Textual, only when there is a terminal

    app = SpecopsApp(
        config, opener, read_only=read_only, label=label, hosts_file=hosts_file, player=player,
        first_run=first_run,
    )  # fmt: skip
    app.run()
    return app.return_code or 0
