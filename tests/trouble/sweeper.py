"""The process that cleans up: it hears what was made before it is made, and acts at the end.

It lives in a session of its own and reads a pipe that only the maker holds, so it acts when the
maker closes it and also when the maker is killed. Its instructions, one JSON list a line:
``["kill", pid, start_ticks]``, ``["remove", path]``, ``["thaw", folder]``, ``["unmount", folder]``.
Processes are killed by pid and start time, and whatever else carries the maker's token (128 random
bits in the environment) after them, until nothing is left.
"""

# No pathlib: os.path and open suit forked processes and Python 3.8.
# ruff: noqa: PTH108, PTH123, PTH208
from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from typing import Any

from tests.trouble.process import start_ticks

TOKEN = "SPECOPS_TROUBLE"
FITHAW = 0xC0045878  # linux/fs.h


def start(token: str) -> tuple[int, int]:
    """Fork the sweeper; its pid and the pipe's end to write instructions to."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reader)
        return pid, writer
    try:
        os.close(writer)
        os.setsid()
        # The maker's own standard streams must close when the maker ends, not when we do.
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        with os.fdopen(reader) as lines:
            orders = [json.loads(line) for line in lines if line.endswith("\n")]
        sweep(orders, token)
    finally:
        os._exit(0)


def sweep(orders: list[list[Any]], token: str) -> None:
    """Undo everything, in the order: thaw, kill, unmount, remove."""
    for _, folder in (order for order in orders if order[0] == "thaw"):
        _thaw(folder)
    known = [(order[1], order[2]) for order in orders if order[0] == "kill"]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _kill_all([*known, *_carriers(token)]):
        time.sleep(0.005)
    for _, folder in (order for order in orders if order[0] == "unmount"):
        subprocess.run(["umount", "--detach-loop", folder], check=False)
    for _, path in (order for order in orders if order[0] == "remove"):
        shutil.rmtree(path, ignore_errors=True)
        if os.path.lexists(path):
            os.unlink(path)


def thaw_later(folder: str, seconds: float) -> None:
    """Thaw after a time, without opening anything that could block."""
    time.sleep(seconds)
    _thaw(folder)


def _thaw(folder: str) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.ioctl(handle, FITHAW, 0)
    except OSError:
        return  # was not frozen
    finally:
        os.close(handle)


def _carriers(token: str) -> list[tuple[int, int]]:
    """Processes with the token in their environment."""
    mark = f"{TOKEN}={token}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        ticks = start_ticks(int(name))
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                ours = mark in file.read().split(b"\0")
        except OSError:
            continue
        if ours and ticks is not None:
            found.append((int(name), ticks))
    return found


def _kill_all(targets: list[tuple[int, int]]) -> bool:
    """SIGKILL to those that are still the ones meant; whether there were any."""
    alive = False
    for pid, ticks in targets:
        if start_ticks(pid) != ticks or _only_a_zombie(pid):
            continue
        alive = True
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return alive


def _only_a_zombie(pid: int) -> bool:
    """Whether no thread of it runs: its parent will reap it, a signal would do nothing."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
                stat = file.read()
            if chr(stat[stat.rindex(b")") + 2]) not in "ZX":
                return False
    except OSError:
        pass
    return True
