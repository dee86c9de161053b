"""``!``: a shell on the host in the console's own terminal, and back, over a real sshd in tmux."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.functional.console.tmux import Pane, require_tmux
from tests.rig.sshd import LoopbackSshd

pytestmark = pytest.mark.hosts
SshdFactory = Callable[..., LoopbackSshd]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _tmux() -> None:
    require_tmux()


@contextmanager
def console(folder: Path, server: LoopbackSshd, *words: str) -> Iterator[Pane]:
    """The console over one host, whose key is not known to anybody yet."""
    host = {"address": server.address, "port": server.port, "user": server.user,
            "python": sys.executable, "identity_files": [str(server.key.path)]}  # fmt: skip
    (folder / "hosts.yaml").write_text(f"hosts:\n  far: {json.dumps(host)}\n")
    program = f"{sys.executable} -c 'from console.cli import main; main()'"
    line = " ".join((program, "console", "--hosts", f"{folder}/hosts.yaml", *words))
    shell = f"stty -g > {folder}/before; {line}; echo left with $?; stty -g > {folder}/after"
    env = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state"),
           "XDG_CONFIG_HOME": str(folder / "config")}  # fmt: skip
    pane = Pane(folder, (80, 24), f"{shell}; sleep 600", env)
    try:
        yield pane
    finally:
        pane.close()


def into_the_shell(pane: Pane) -> None:
    pane.press("!")
    pane.when(lambda shown: "? help" not in shown, "the console has given the terminal")


def typed(pane: Pane, line: str) -> None:
    pane.tmux("send-keys", "-l", line)
    pane.tmux("send-keys", "Enter")


def left(pane: Pane, folder: Path) -> None:
    """Quit; the terminal is as it was before the console."""
    pane.press("q")
    pane.until("left with 0")
    after = folder / "after"
    pane.when(lambda _: after.is_file() and bool(after.read_text()), "the shell goes on")
    assert after.read_text() == (folder / "before").read_text()


def test_a_shell_on_the_host_and_back(tmp_path: Path, sshd_factory: SshdFactory) -> None:
    server = sshd_factory()
    with console(tmp_path, server) as pane:
        pane.until("far: first contact", "SHA256:")
        pane.press("y")
        pane.until("1 host", " far ", "ago")
        for turn in ("42", "43"):
            into_the_shell(pane)  # a key that was trusted in the console is not asked about again
            typed(pane, f"echo far-$((20 + {int(turn) - 20})) ${{SSH_CONNECTION:+by-ssh}}")
            pane.until(f"far-{turn} by-ssh")
            typed(pane, "echo asleep; sleep 600; echo not-this")
            pane.when(lambda shown: "\nasleep" in shown, "it sleeps")
            pane.press("C-c")
            typed(pane, "echo still-$((40 + 2))")
            shown = pane.until("still-42")
            assert "\nnot-this" not in shown
            typed(pane, "exit 0")
            pane.until("ssh to far ended with 0", "? help")
            pane.press("?")
            pane.until("keys of fleet")
            pane.press("Escape")
            pane.when(lambda shown: "keys of fleet" not in shown, "keys are the console's again")
        left(pane, tmp_path)


def test_a_read_only_console_has_no_shell(tmp_path: Path, sshd_factory: SshdFactory) -> None:
    """Nothing can be changed through it, and a shell can change anything."""
    with console(tmp_path, sshd_factory(), "--read-only") as pane:
        pane.until("far: first contact", "SHA256:")
        pane.press("y")
        pane.until("1 host", " far ", "ago")
        pane.press("!")
        pane.until("this console is read-only", "? help")
        left(pane, tmp_path)


def test_ctrl_c_before_the_login_ends_ssh_and_not_the_console(
    tmp_path: Path, sshd_factory: SshdFactory
) -> None:
    """While ssh still connects the terminal sends the interrupt to everybody in it."""
    server = sshd_factory()
    with console(tmp_path, server) as pane:
        pane.until("far: first contact")
        pane.press("y")
        pane.until("1 host", " far ", "ago")
        os.kill(server.pid(), signal.SIGSTOP)  # it takes connections and says nothing
        try:
            into_the_shell(pane)
            pane.press("C-c")
            pane.until("ssh to far ended by SIGINT", "? help")
        finally:
            os.kill(server.pid(), signal.SIGCONT)
        left(pane, tmp_path)


def test_a_host_that_is_gone_is_said(tmp_path: Path, sshd_factory: SshdFactory) -> None:
    server = sshd_factory()
    with console(tmp_path, server) as pane:
        pane.until("far: first contact")
        pane.press("y")
        pane.until("1 host", " far ", "ago")
        server.stop()
        pane.press("!")
        pane.until("ssh to far could not connect", "? help")
        left(pane, tmp_path)
