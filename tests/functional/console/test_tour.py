"""The README's tour by its keys, in a real terminal, with the bundled server on this machine."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.functional.console.tmux import require_tmux
from tests.tour import Tour, tour

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", autouse=True)
def _tmux() -> None:
    require_tmux()


def test_the_tour_at_80_by_24(tmp_path: Path) -> None:
    with tour(tmp_path, 80, 24) as console:
        pid = console.whole_loop()
        _zombie(console, pid)
        console.leave()


def test_the_tour_at_200_by_50(tmp_path: Path) -> None:
    with tour(tmp_path, 200, 50) as console:
        console.whole_loop()
        console.follows()  # beside the rows, without a key
        console.press("Enter")
        console.until("ready", "accept length", "fired up")  # state, numbers and log side by side
        console.press("S")
        console.until("stop pair on here", "[ Cancel ]")
        console.press("Enter")  # is never yes
        console.when(lambda text: "stop pair on here" not in text, "the dialog goes")
        console.until("health ok")
        console.press("Escape")
        console.until("/server:pair")
        console.stop()
        console.leave()


def _zombie(console: Tour, pid: int) -> None:
    """The launcher is killed the hard way; its worker is removed by keys."""
    os.kill(pid, signal.SIGKILL)
    console.until("ORPHAN", "launcher")
    console.press("Enter", "Z")  # of this server alone
    while "[ Cancel ]" not in console.any_of("[ Close ]", "[ Cancel ]"):
        console.until("ORPHAN pid")  # says why there is nothing to do yet
        console.press("Escape")
        time.sleep(1.0)
        console.press("Z")
    console.until("1 orphan", "[ Cancel ]")
    console.press("y")
    console.until("kill-zombies here: done: 1 gone", "given back")
    console.press("Escape")
    console.until("stopped")  # we ended it, so that it did not fail
