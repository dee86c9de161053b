"""The console in a real pseudo-terminal, as a process of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Terminal:
    """A program in a terminal of 80 by 24; what it draws is collected in ``seen``."""

    def __init__(self, argv: list[str], env: dict[str, str] | None = None) -> None:
        self.fd, self._other = pty.openpty()
        fcntl.ioctl(self._other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self._other)
        self.seen = b""
        self.process = subprocess.Popen(
            [sys.executable, *argv], stdin=self._other, stdout=self._other, stderr=self._other,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})}, start_new_session=True,
        )  # fmt: skip

    def read(self, timeout: float) -> None:
        """Collect what comes within the time."""
        if select.select([self.fd], [], [], timeout)[0]:
            self.seen += os.read(self.fd, 1 << 20)

    def until(self, text: bytes, timeout: float = 30.0) -> None:
        """Until some text was drawn."""
        end = time.monotonic() + timeout
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} never came: {self.seen[-500:]!r}"
            self.read(0.2)

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self.fd, keys)

    def wait(self, timeout: float = 20.0) -> int:
        """Until it has ended; its exit code."""
        end = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        self.read(0.1)
        return self.process.wait(timeout=1)

    def sane(self) -> list[str]:
        """What of the terminal was not given back."""
        wrong = []
        if termios.tcgetattr(self._other) != self.before:
            wrong.append("terminal modes")
        for name, on, off in (
            ("alternate screen", b"\x1b[?1049h", b"\x1b[?1049l"),
            ("hidden cursor", b"\x1b[?25l", b"\x1b[?25h"),
            ("mouse", b"\x1b[?1000h", b"\x1b[?1000l"),
            ("bracketed paste", b"\x1b[?2004h", b"\x1b[?2004l"),
        ):
            if self.seen.rfind(on) > self.seen.rfind(off):
                wrong.append(name)
        return wrong

    def hang_up(self) -> None:
        """The window is closed: no terminal any more, and no signal that says so."""
        os.close(self.fd)
        os.close(self._other)
        self.fd = self._other = -1

    def close(self) -> None:
        """End it if it has not ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        if self.fd >= 0:
            self.hang_up()


@contextmanager
def terminal(argv: list[str], env: dict[str, str] | None = None) -> Iterator[Terminal]:
    """A terminal that is closed whatever happens."""
    opened = Terminal(argv, env)
    try:
        yield opened
    finally:
        opened.close()
