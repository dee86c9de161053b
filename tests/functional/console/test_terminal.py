"""In a real terminal: whatever ends the console, the terminal is as it was before."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from console.errors import UsageError
from console.screens.opening import Prepared
from console.terminal import run
from tests.functional.console import fake
from tests.functional.console.terminal import terminal

APP = ["-m", "tests.functional.console.tty_app"]
CONSOLE = ["-c", "from console.cli import main; main()", "console", "--demo"]
ROOT = str(Path(__file__).parents[3])


@pytest.fixture(autouse=True)
def _from_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)


def test_quit_and_signals_give_the_terminal_back() -> None:
    for end in (b"q", signal.SIGTERM, signal.SIGHUP):
        with terminal(APP) as tty:
            tty.until(b"kimi-k25")
            assert tty.sane() != []  # the test would see it
            if isinstance(end, bytes):
                tty.press(end)
            else:
                tty.process.send_signal(end)
            assert tty.wait() == 0, end
            assert tty.sane() == [], end


def test_it_ends_when_its_terminal_is_gone() -> None:
    with terminal(APP) as tty:
        tty.until(b"kimi-k25")
        tty.hang_up()
        assert tty.process.wait(timeout=60) == 0


def test_a_crash_gives_it_back_too_and_says_what_it_was() -> None:
    with terminal([*APP, "crash"]) as tty:
        tty.until(b"\x1b[?1049h")
        assert tty.wait() == 1
        assert tty.sane() == []
        assert b"a bug in drawing" in tty.seen


def test_no_colour_sends_no_colour() -> None:
    with terminal(APP, {"NO_COLOR": "1"}) as tty:
        tty.until(b"NEVER READY")
        tty.press(b"j")
        tty.until(b"AssertionError")
        tty.press(b"q")
        tty.wait()
        for colour in (b"\x1b[38;", b"\x1b[48;", b"\x1b[31m", b"\x1b[1;31m", b";38;", b";48;"):
            assert colour not in tty.seen


def test_without_a_terminal_it_says_so() -> None:
    with pytest.raises(UsageError, match="needs a terminal"):
        run(lambda: Prepared(fake.config(), None))  # type: ignore[arg-type]


def test_a_terminal_that_cannot_be_drawn_on_is_refused_at_once() -> None:
    for term in ("dumb", "unknown"):
        with terminal(CONSOLE, {"TERM": term}) as tty:
            assert tty.wait(60) == 2, term
            assert f"TERM={term} cannot be drawn on".encode() in tty.seen
            assert b"\x1b" not in tty.seen


def test_a_terminal_of_no_known_kind_is_drawn_on(tmp_path: Path) -> None:
    for term in ("", "of-no-known-kind"):
        with terminal(CONSOLE, {"TERM": term, "XDG_CONFIG_HOME": str(tmp_path)}) as tty:
            tty.until(b"demo-eagle3", 60)
            tty.press(b"q")
            assert tty.wait(60) == 0, term


def test_a_signal_ends_the_opening_too() -> None:
    with terminal([*APP, "slow"]) as tty:
        tty.until(b"reading hosts.yaml")
        tty.process.send_signal(signal.SIGTERM)
        assert tty.wait(60) == 0
        assert tty.sane() == []
