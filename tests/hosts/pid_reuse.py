"""Runs as pid 1's child in a pid namespace of its own: pids are reused while they are signalled.

``python -m tests.hosts.pid_reuse ROUNDS`` prints one JSON line of counts. In each round a victim
ends and the very next process gets its number (``ns_last_pid`` of this namespace), while another
process signals the victim's identity in a loop with the agent's own kill verb. Everybody says which
part it plays when SIGTERM reaches it.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import sys
import time
from pathlib import Path
from types import FrameType

from console.agent import machine, proc
from console.agent.calls import Call
from console.agent.kill import signal_all

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
TICK_S = 1.2 / os.sysconf("SC_CLK_TCK")
ROLE = b"m"
HITS, HITS_IN = os.pipe()


def _hit(signum: int, frame: FrameType | None) -> None:
    os.write(HITS_IN, ROLE)


def _child(role: bytes) -> int:
    """Fork one that sleeps in a session of its own and reports a SIGTERM with its role."""
    global ROLE  # noqa: PLW0603 - the handler of the child must have it from its first instruction
    ROLE = role
    pid = os.fork()
    if pid == 0:
        os.setsid()
        while True:
            signal.pause()
    ROLE = b"m"
    return pid


def _hammer(shared: mmap.mmap) -> int:
    """Fork the one that signals whoever is in the shared memory, as fast as it can."""
    pid = os.fork()
    if pid:
        return pid
    boot = machine.boot_id()
    outcomes = {"signalled": 0, "gone": 0, "changed": 0, "denied": 0}
    while True:
        target, start = struct.unpack("qq", shared[:16])
        if target == -1:
            sys.stderr.write(json.dumps(outcomes))
            sys.stderr.flush()
            os._exit(0)
        if target == 0:
            continue
        who = {"pid": target, "start_ticks": start, "boot_id": boot}
        call = Call.__new__(Call)
        call.args = {"signal": "TERM", "targets": [who]}
        for result in signal_all(call):
            outcomes[result["outcome"]] += 1


def main(rounds: int) -> None:
    signal.signal(signal.SIGTERM, _hit)
    shared = mmap.mmap(-1, 16)
    hammer = _hammer(shared)
    reused = 0
    for _ in range(rounds):
        victim = _child(b"v")
        seen = proc.stat(victim)
        assert seen is not None
        shared[:16] = struct.pack("qq", victim, seen.start_ticks)
        # The kernel counts start times in ticks; a whole range of pids takes longer than one.
        time.sleep(TICK_S)
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        LAST_PID.write_text(str(victim - 1))
        innocent = _child(b"i")
        reused += innocent == victim
        time.sleep(TICK_S / 4)
        shared[:16] = struct.pack("qq", 0, 0)
        os.kill(innocent, signal.SIGKILL)
        os.waitpid(innocent, 0)
    shared[:16] = struct.pack("qq", -1, 0)
    os.waitpid(hammer, 0)
    os.close(HITS_IN)
    hits = b""
    while piece := os.read(HITS, 65536):
        hits += piece
    counts = {
        "rounds": rounds,
        "reused": reused,
        "wrong": hits.count(b"i"),
        "right": hits.count(b"v"),
    }
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
