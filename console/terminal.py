"""The console and the terminal it runs in: start, and every way out gives it back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from console.errors import UsageError

if TYPE_CHECKING:
    from console.screens.opening import Prepared


def leave_on_signals(leave: Callable[[], None]) -> None:
    """SIGTERM and SIGHUP end the console as ``q`` does, with the terminal given back."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Not in the main thread (tests), or no such signals here: nothing to take care of.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, leave)


DUMB = ("dumb", "unknown")
"""Values of TERM under which Textual never gets to draw, nor to hear a key."""


def need_terminal() -> None:
    """Refuse at once where there is nothing to draw on.

    Raises:
        UsageError: not all three streams are a terminal, or it cannot move its cursor.
    """
    term = os.environ.get("TERM", "")
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        # Textual draws on stderr: a redirected one would be a blank screen and a file of escapes.
        what, hint = "the console needs a terminal", "specops status prints instead, or ssh -t"
    elif term.lower() in DUMB:
        what = f"the console needs a terminal, TERM={term} cannot be drawn on"
        hint = "specops status prints instead, or TERM=xterm-256color if it is one"
    else:
        return
    raise UsageError(what, hint=hint)


def run(
    prepare: Callable[[], Prepared],
    *,
    read_only: bool = False,
    label: str = "",
    hosts_file: Path | None = None,
) -> int:
    """Run the console in this terminal until the operator leaves; returns the exit code.

    ``prepare`` reads hosts.yaml, in a thread after the first paint; ``label`` is shown in the head
    line (``DEMO``, ``REPLAY``); ``hosts_file`` is an explicit hosts.yaml, beside which presets are
    kept.

    Raises:
        UsageError: there is no terminal to draw on.
        SpecopsError: what ``prepare`` raised; the terminal is given back.
    """
    need_terminal()
    gc.disable()
    from console.app import SpecopsApp  # noqa: PLC0415 - Textual, only when there is a terminal

    app = SpecopsApp(prepare, read_only=read_only, label=label, hosts_file=hosts_file)
    app.run()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0
