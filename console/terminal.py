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
from console.turns import TURNS

if TYPE_CHECKING:
    from console.screens.opening import Prepared


NEVER = 1 << 30
FEW, MANY = 2, 30
"""Rounds of small collections after which a whole one is due; some 10 ms for the first, 60 ms for
the second, which comes only where somebody types without a pause."""
REST_S = 0.1
"""Without a key for so long, the next one is not on its way."""


def leave_on_signals(leave: Callable[[], None]) -> None:
    """SIGTERM and SIGHUP end the console as ``q`` does, with the terminal given back."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Not in the main thread (tests), or no such signals here: nothing to take care of.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, leave)


def collect_again() -> None:
    """Everything is imported: collect garbage from now on, but never look through all that again.

    Imports make objects that stay; collecting among them costs a tenth of the way to the first
    frame, and later some 50 ms at a time, on the loop. What a screen leaves when it is closed is
    collected at rest: left to itself, Python would do it for five of them at once, and for a key.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*gc.get_threshold()[:2], NEVER)
        gc.enable()


def collect_at_rest() -> None:
    """Collect all garbage in a moment without a key; called twice a second and after keys."""
    rounds = gc.get_count()[2]
    if rounds >= (FEW if TURNS.quiet_s >= REST_S else MANY) and gc.isenabled():
        gc.collect()


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
