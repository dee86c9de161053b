"""Child processes that run a module of the agent: for what may hang, crash or outlive it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import Any

BOOT = (
    "import sys;b=sys.stdin.buffer;n,m,e=b.readline().split();s=b.read(int(n));z=b.read(int(m));"
    'exec(compile(s,"specops:loader","exec"),'
    '{"ARCHIVE":z,"ENTRY":e.decode(),"__name__":"specops_loader"})'
)
"""Reads ``<bytes of loader> <bytes of archive> <module>`` and then both from standard input.

Without single quotes, backslashes and exclamation marks: safe inside single quotes in every shell.
"""
ARCHIVE: list[Any] = []
"""The finder whose archive this process was loaded from."""
_children: set[subprocess.Popen[bytes]] = set()
_lock = threading.Lock()


def start_message(loader: bytes, archive: bytes, module: str) -> bytes:
    """What ``BOOT`` expects on standard input."""
    return "{} {} {}\n".format(len(loader), len(archive), module).encode() + loader + archive


def spawn(module: str, *, detached: bool = False) -> subprocess.Popen[bytes]:
    """Start ``console.agent.<module>`` in a fresh interpreter; pipes on all three streams.

    A ``detached`` one gets a session of its own and is left alone when the agent ends.
    """
    finder = ARCHIVE[0]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-u", "-c", BOOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=detached,
    )
    assert process.stdin is not None
    loader = finder.files["console/agent/loader.py"]
    process.stdin.write(start_message(loader, finder.archive, "console.agent." + module))
    process.stdin.flush()
    if not detached:
        keep(process)
    return process


def keep(process: subprocess.Popen[bytes]) -> None:
    """End this child when the agent ends."""
    with _lock:
        _children.difference_update([old for old in _children if old.poll() is not None])
        _children.add(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a child without waiting for it: it may hang in the kernel."""
    with contextlib.suppress(OSError, ValueError):
        process.send_signal(signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    with _lock:
        if process.poll() is not None:
            _children.discard(process)


def end_all() -> None:
    """Kill every child that is not detached."""
    with _lock:
        for process in _children:
            if process.poll() is None:
                with contextlib.suppress(OSError):
                    os.kill(process.pid, signal.SIGKILL)
