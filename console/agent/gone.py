"""Waiting for processes to be gone, every thread of them."""

from __future__ import annotations

import time
from typing import Any

from console.agent import identity, machine
from console.agent.calls import Call, VerbError, Verbs
from console.agent.link import Cancelled

POLL_S = 0.05


def process_ids(value: Any) -> list[tuple[int, int, str]]:
    """(pid, start ticks, boot id) triples from a request, bounded; raises ``VerbError``."""
    if not isinstance(value, list):
        raise VerbError("usage", "processes must be a list")
    found = []
    for item in value:
        pid, start, boot = (item.get(key) for key in ("pid", "start_ticks", "boot_id"))
        ints = isinstance(pid, int) and isinstance(start, int) and not isinstance(pid, bool)
        if not ints or not isinstance(boot, str) or not 0 < pid < 1 << 22 or start < 0:
            raise VerbError("usage", "a process needs pid (1 to 4194303), start_ticks, boot_id")
        found.append((pid, start, boot))
    return found


def wait_gone(call: Call) -> list[int]:
    """The verb: indexes of those that are still there after ``timeout_s``."""
    wanted = process_ids(call.args.get("processes"))
    deadline = time.monotonic() + call.seconds("timeout_s", 60.0)
    boot = machine.boot_id()
    left = [index for index, item in enumerate(wanted) if item[2] == boot]
    while True:
        left = [i for i in left if not _gone(*wanted[i][:2])]
        if not left or time.monotonic() >= deadline:
            return left
        if call.cancelled.wait(POLL_S):
            raise Cancelled


def _gone(pid: int, start: int) -> bool:
    """Whether it is known to be gone: what cannot be read just now is still there."""
    try:
        return identity.all_threads_gone(pid, start)
    except OSError:
        return False


VERBS: Verbs = {"wait_gone": wait_gone}
