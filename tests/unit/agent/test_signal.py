"""The signal verb beside a process that ends by itself in the same moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from console.agent import kill, machine, proc
from console.agent.calls import Call
from console.agent.link import Link

RUN = "20260101-000000-beside"
LARGE = "held = bytearray(b'x') * (256 << 20); print('here', flush=True); input()"
"""It takes the kernel a while to take its memory apart: all that time it is neither alive nor dead,
its state is still R and its variables are gone."""


@pytest.fixture
def ending() -> Iterator[subprocess.Popen[str]]:
    """A large process that is being taken apart when the test begins."""
    child = subprocess.Popen(
        [sys.executable, "-c", LARGE],
        env={**os.environ, "SPECOPS_RUN_ID": RUN},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"
    yield child
    child.kill()
    child.communicate(timeout=30)


def _target(pid: int, run_id: str = RUN) -> dict[str, object]:
    seen = proc.stat(pid)
    assert seen is not None
    boot = machine.boot_id()
    return {"pid": pid, "start_ticks": seen.start_ticks, "boot_id": boot, "run_id": run_id}


def _term(*targets: dict[str, object]) -> Call:
    return Call(1, {"signal": "TERM", "targets": list(targets)}, Link(-1))


def test_a_process_that_is_ending_refuses_no_signal(ending: subprocess.Popen[str]) -> None:
    call = _term(_target(ending.pid, "20260101-000000-another"))
    assert kill.signal_all(call)[0]["outcome"] == "denied"

    call = _term(_target(ending.pid))
    ending.send_signal(signal.SIGKILL)
    outcomes = set()
    while "gone" not in outcomes:
        (answer,) = kill.signal_all(call)
        assert answer["outcome"] != "denied", answer
        outcomes.add(answer["outcome"])


FAMILY = """
import ctypes, os, time
libc, children = ctypes.CDLL(None), []
for _ in range(40):
    child = os.fork()
    if not child:
        libc.prctl(1, 9, 0, 0, 0)
        time.sleep(100)
        os._exit(0)
    children.append(child)
print(*children, flush=True)
time.sleep(100)
"""
"""Children that are killed when their parent ends, as a server's ranks are."""


def test_the_dying_children_of_a_target_refuse_no_signal() -> None:
    for _ in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", FAMILY],
            env={**os.environ, "SPECOPS_RUN_ID": RUN},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as parent:
            assert parent.stdout is not None
            pids = [parent.pid, *map(int, parent.stdout.readline().split())]
            answers = kill.signal_all(_term(*map(_target, pids)))
            assert {answer["outcome"] for answer in answers} <= {"signalled", "gone"}, answers
            assert answers[0]["outcome"] == "signalled"
