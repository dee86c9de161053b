"""What the processes of the imitation share: lines of the log, children."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable

from tests.trouble.process import fork, libc, set_title

PR_SET_PDEATHSIG = 1


def log(text: str) -> None:
    """A line as SGLang stamps it."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    sys.stdout.write(f"[{stamp}] {text}\n")
    sys.stdout.flush()


def child(title: str, work: Callable[[], None]) -> int:
    """A process that ends with its parent, as SGLang's do."""

    def body() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        set_title(*title.split("\0"))
        work()

    return fork(body)
