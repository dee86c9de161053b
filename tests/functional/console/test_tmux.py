"""A shell in a real terminal goes on as before, whatever ended the console in it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.functional.console.tmux import PATIENCE_S, Pane, require_tmux

ROOT = Path(__file__).parents[3]
APP = f"{sys.executable} -m tests.functional.console.tty_app"
SPECOPS = f"{sys.executable} -c 'from console.cli import main; main()'"


@pytest.fixture(autouse=True)
def _tmux() -> None:
    require_tmux()


class Shell(Pane):
    """A plain shell; commands are typed into it as an operator would."""

    def type(self, line: str, enter: str = "Enter") -> None:
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", enter)

    def pid(self) -> int:
        """Of the console that was started with its pid written first."""
        return int((self.folder / "pid").read_text())

    def stty(self, name: str) -> str:
        """The line discipline, as the shell's own stty tells it."""
        path = self.folder / name
        self.type(f"stty -g > {path}.new && mv {path}.new {path}")
        end = time.monotonic() + PATIENCE_S
        while not path.is_file():
            assert time.monotonic() < end, f"the shell does not answer\n{self.screen}"
            time.sleep(0.1)
        return path.read_text()

    def start(self, *words: str) -> None:
        """The console, with its pid in a file."""
        self.type(
            f"sh -c 'echo $$ > {self.folder}/pid; exec {APP} {' '.join(words)}'; echo left=$?"
        )


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    env = {"PYTHONPATH": str(ROOT), "PS1": "$ ", "ENV": "/dev/null",
           "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}  # fmt: skip
    opened = Shell(folder, (100, 30), "exec sh", env)
    try:
        yield opened
    finally:
        opened.close()


def usable(terminal: Shell) -> None:
    """What is typed is shown, and done."""
    terminal.type("echo alive-$((40 + 2))")
    shown = terminal.until("alive-42")
    assert "echo alive-$((40 + 2))" in shown, "what is typed is not shown"


@pytest.mark.parametrize("end", ["q", "crash", "SIGTERM", "SIGHUP", "SIGINT"])
def test_the_terminal_is_as_before(end: str, tmp_path: Path) -> None:
    with shell(tmp_path) as terminal:
        before = (terminal.stty("before"), terminal.modes())
        terminal.start(*(["crash"] if end == "crash" else []))
        if end != "crash":
            terminal.until("kimi-k25", "? help")
            assert terminal.modes() != before[1]  # the test would see it
        if end == "q":
            terminal.press("q")
        elif end == "SIGINT":
            terminal.press("C-c")
        elif end != "crash":
            os.kill(terminal.pid(), getattr(signal, end))
        shown = terminal.until("left=1" if end == "crash" else "left=0")
        assert "? help  : command" not in shown, "the console's screen was left standing"
        assert terminal.modes() == before[1]
        assert terminal.stty("after") == before[0]
        usable(terminal)


def test_doctor_mends_what_a_kill_left(tmp_path: Path) -> None:
    with shell(tmp_path) as terminal:
        terminal.type("stty sane")  # what a login has, and what doctor goes back to
        before = (terminal.stty("before"), terminal.modes())
        terminal.start()
        terminal.until("kimi-k25", "? help")
        os.kill(terminal.pid(), signal.SIGKILL)
        terminal.until("left=137")
        assert terminal.modes() != before[1]  # broken: that is what is to be mended
        # In a raw terminal a plain shell takes Ctrl-J, not Enter, for the end of a line.
        terminal.type(f"{SPECOPS} doctor --terminal", enter="C-j")
        end = time.monotonic() + PATIENCE_S
        while terminal.modes() != before[1]:
            assert time.monotonic() < end, f"{terminal.modes()} is not {before[1]}"
            time.sleep(0.1)
        usable(terminal)
        assert terminal.stty("after") == before[0]
