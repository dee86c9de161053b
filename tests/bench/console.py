"""How fast the console feels: ``make bench-console``. Real terminals, ratios, the load printed.

Budgets: first paint ≤ 1.15 times a bare Textual application; key to paint p99 ≤ 33 ms with 64
hosts of 8 GPUs at 1 Hz and ≤ 50 ms with a log pouring in; CPU ≤ 3 % of a core with 8 hosts; RSS
≤ 120 MB.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROWS, COLUMNS = 40, 120
KEYS = int(os.environ.get("BENCH_KEYS", "2000"))


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(
        self,
        *argv: str,
        program: tuple[str, ...] = ("-m", "tests.bench.console_app"),
        env: dict[str, str] | None = None,
    ) -> None:
        self.begun = time.monotonic()
        self.fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        known = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            [sys.executable, *program, *argv], stdin=other, stdout=other, stderr=other,
            env={**os.environ, **known, **(env or {})}, start_new_session=True,
        )  # fmt: skip
        os.close(other)

    def read(self, timeout: float) -> bytes:
        """Whatever comes within the time."""
        ready, _, _ = select.select([self.fd], [], [], timeout)
        try:
            return os.read(self.fd, 1 << 20) if ready else b""
        except OSError:  # Linux says EIO when the program has ended
            return b""

    def until(self, text: bytes, timeout: float = 30.0) -> float:
        """Seconds since the start when some text was drawn."""
        seen, end = b"", time.monotonic() + timeout
        while time.monotonic() < end:
            seen = seen[-4096:] + self.read(0.5)
            if text in seen:
                return time.monotonic() - self.begun
        raise TimeoutError(f"{text!r} was never drawn; the last was {seen[-300:]!r}")

    def drain(self, seconds: float) -> None:
        """Read and forget."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.read(left)

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        end = time.monotonic() + 10
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.fd)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident memory in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def first_paint(rounds: int = 9) -> tuple[float, float]:
    """Medians of CPU-warm starts, alternating: bare, console."""
    bare: list[float] = []
    ours: list[float] = []
    for _ in range(rounds):
        for argv, text, times in ((["bare"], b"specops", bare), (["fleet", "8"], b"MEMORY", ours)):
            terminal = Terminal(*argv)
            times.append(terminal.until(text))
            terminal.close()
    return statistics.median(bare), statistics.median(ours)


def key_to_paint(mode: str, hosts: int, keys: int) -> list[float]:
    """Milliseconds from each key to the drawing of the moved cursor."""
    terminal = Terminal(mode, str(hosts))
    terminal.until(b"host00")
    terminal.drain(3.0)
    times = []
    for number in range(keys):
        key = b"j" if number // 20 % 2 == 0 else b"k"
        terminal.drain(0.003)
        begun = time.monotonic()
        os.write(terminal.fd, key)
        seen = b""
        while "▸".encode() not in seen and time.monotonic() - begun < 2:
            seen += terminal.read(2.0)
        times.append((time.monotonic() - begun) * 1000)
    terminal.close()
    return sorted(times)


def idle(hosts: int, seconds: float = 20.0) -> tuple[float, float]:
    """Share of a core, and MB, with the fleet on screen."""
    terminal = Terminal("fleet", str(hosts))
    terminal.until(b"host00")
    terminal.drain(5.0)
    before = cpu_s(terminal.process.pid)
    begun = time.monotonic()
    terminal.drain(seconds)
    share = (cpu_s(terminal.process.pid) - before) / (time.monotonic() - begun)
    memory = rss_mb(terminal.process.pid)
    terminal.close()
    return share, memory


def main() -> None:
    """Everything, one line each."""
    print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores; {KEYS} keys")
    bare, ours = first_paint()
    print(f"first paint          {ours / bare:.2f} x bare Textual ({ours:.2f} s / {bare:.2f} s)")
    for mode, hosts, budget in (("fleet", 64, 33), ("flood", 64, 50)):
        times = key_to_paint(mode, hosts, KEYS)
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        print(f"key to paint {mode:<8} p50 {p50:.1f} ms  p99 {p99:.1f} ms  max {times[-1]:.1f} ms"
              f"  (budget p99 {budget} ms)")  # fmt: skip
    share, memory = idle(8)
    print(f"8 hosts on screen    {share:.1%} of a core (budget 3 %), RSS {memory:.0f} MB (120 MB)")
    print(f"load average {os.getloadavg()[0]:.2f} at the end")


if __name__ == "__main__":
    main()
