"""How fast the console feels: ``make bench-console [PART=first|help|keys|loop|idle]``.

Real terminals, ratios, the load printed with each part.

Budgets: first paint ≤ 1.15 times a bare Textual application; key to paint p99 ≤ 33 ms with 64
hosts of 8 GPUs at 1 Hz and ≤ 50 ms with a log pouring in; the loop held up ≤ 16 ms at p99.9 and
≤ 50 ms at most, over a minute of 64 hosts and every screen; CPU ≤ 3 % of a core with 8 hosts; RSS
≤ 120 MB; ``specops --help`` ≤ 120 ms of CPU.

Everything is started as it is when installed: with compiled bytecode, whatever this shell says.
As root it runs before all else here: the load of others is not measured.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROWS, COLUMNS = 40, 120
KEYS = int(os.environ.get("BENCH_KEYS", "2000"))


HOSTS = "hosts:\n  nowhere: {address: 127.0.0.1, port: 1}\n"
SPECOPS = ("-c", "from console.cli import main; main()")
WALK = ("2", "j", "\x1b", "\r", "l", "\x1b", "\x1b", "4", "j", "a", "1", "?", "\x1b", "G", "k", "g")
"""Keys that go through every screen and back."""


def ahead(pid: int) -> None:
    """Put a program and its children first: what else runs here is not measured.

    Only root may; without, the figures hold the load. A session's own priority counts where the
    kernel groups by session, a thread's where it does not (in a container).
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-15")
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), -15)
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        for child in children:
            ahead(int(child))


class Terminal:
    """A Python program in a pseudo-terminal."""

    def __init__(
        self,
        *argv: str,
        program: tuple[str, ...] = ("-m", "tests.bench.console_app"),
        env: dict[str, str] | None = None,
    ) -> None:
        self.begun = time.monotonic()
        self.fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        given = {"TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})}
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.process = subprocess.Popen(
            [sys.executable, *program, *argv], stdin=other, stdout=other, stderr=other,
            env={**kept, **given}, start_new_session=True,
        )  # fmt: skip
        os.close(other)
        ahead(self.process.pid)

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


def first_paint(folder: Path, rounds: int = 11) -> list[tuple[float, float, float]]:
    """Seconds to the first frame of bare and console, and to its hosts; in turn, after a warm-up.

    The console is the command as an operator types it: its first frame is the one drawn before
    hosts.yaml is read, with head and keys.
    """
    hosts = folder / "hosts.yaml"
    hosts.write_text(HOSTS, encoding="utf-8")
    found = []
    for _ in range(rounds + 1):
        least = Terminal("bare")
        bare = least.until(b"specops")
        least.close()
        console = Terminal("console", "--hosts", str(hosts), program=SPECOPS)
        found.append((bare, console.until(b"reading hosts.yaml"), console.until(b"nowhere")))
        console.close()
    return found[1:]


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


def help_cpu(rounds: int = 9) -> float:
    """CPU seconds of ``specops --help``, the median."""
    times = []
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(rounds + 1):
        pid = os.posix_spawn(
            sys.executable, [sys.executable, *SPECOPS, "--help"], env,
            file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
        )  # fmt: skip
        _, _, used = os.wait4(pid, 0)
        times.append(used.ru_utime + used.ru_stime)
    return statistics.median(times[1:])


def held_up(folder: Path, seconds: float = 60.0) -> dict[str, dict[str, Any]]:
    """How long the loop was held up, seen from inside: at the start, and while keys walk about."""
    report = folder / "loop.json"
    terminal = Terminal("watched", "64", str(report))
    terminal.until(b"host00")
    terminal.drain(5.0)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        os.write(terminal.fd, WALK[number % len(WALK)].encode())
        terminal.drain(0.25)
        number += 1
    terminal.close()
    found: dict[str, dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))
    return found


def _first(folder: Path) -> None:
    starts = first_paint(folder)
    bare, ours, hosts = (statistics.median(times) for times in zip(*starts, strict=True))
    ratio = statistics.median(first / least for least, first, _ in starts)
    print(f"first paint          {ratio:.2f} x bare Textual, pair by pair ({ours:.3f} s /"
          f" {bare:.3f} s; budget 1.15); hosts after {hosts:.3f} s")  # fmt: skip


def _help(folder: Path) -> None:
    del folder
    print(f"specops --help       {help_cpu() * 1000:.0f} ms of CPU (budget 120 ms)")


def _keys(folder: Path) -> None:
    del folder
    for mode, count, budget in (("fleet", 64, 33), ("flood", 64, 50)):
        times = key_to_paint(mode, count, KEYS)
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        print(f"key to paint {mode:<8} p50 {p50:.1f} ms  p99 {p99:.1f} ms  max {times[-1]:.1f}"
              f" ms of {KEYS} (budget p99 {budget} ms)")  # fmt: skip


def _loop(folder: Path) -> None:
    for part, loop in held_up(folder).items():
        print(f"loop held up {part:<8} p99.9 {loop['p999']:.1f} ms  max {loop['max']:.1f} ms"
              "  (budget 16, 50 ms)")  # fmt: skip
        for wall, cpu, what in loop["steps"]:
            print(f"    a step of {wall:5.1f} ms, {cpu:5.1f} ms of CPU: {what}")


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """Cores that never sleep: of a virtual machine's core that does, others take the caches.

    What keeps them awake has no priority at all.
    """
    spin = "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    argv = [sys.executable, "-c", spin]
    spinning = [subprocess.Popen(argv) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def _idle(folder: Path) -> None:
    del folder
    share, memory = idle(8)
    with awake():
        kept, _ = idle(8)
    print(f"8 hosts on screen    {share:.1%} of a core, {kept:.1%} with the cores kept awake"
          f" (budget 3 %), RSS {memory:.0f} MB (120 MB)")  # fmt: skip


PARTS = {"first": _first, "help": _help, "keys": _keys, "loop": _loop, "idle": _idle}


def main(*only: str) -> None:
    """Everything or these parts, a few lines each."""
    print(f"{os.cpu_count()} cores")
    ahead(os.getpid())
    for part in only or PARTS:
        with tempfile.TemporaryDirectory() as name:
            os.environ.update(XDG_STATE_HOME=name, XDG_CONFIG_HOME=name)
            PARTS[part](Path(name))
            print(f"    load average {os.getloadavg()[0]:.2f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
