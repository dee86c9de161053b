"""The log of a host as an operator meets it: the real console in a terminal, a writer beside it.

Follow: a process writes 50,000 lines a second; milliseconds from a key to its drawing. Crash: a
start that dies is written to a server's log; seconds from that write until the cause and its fix
stand on the screen, through the agent, on this machine and over ssh to it.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.console import Terminal, cpu_s
from tests.rig.sshd import LoopbackSshd
from tests.rig.sshd import missing as sshd_missing

RATE = 50_000
KEYS = int(os.environ.get("BENCH_KEYS", "300"))
CRASHES = int(os.environ.get("BENCH_CRASHES", "100"))

NAME = f"bench{os.getpid()}"
"""Of the server: the host may know others by its record."""

_WRITER = """
import os, sys, time
line = (b"[2026-11-29 05:58:%02d TP%d] Decode batch. #running-req: 8, #token: 812, token usage: "
        b"0.12, accept len: 2.41, cuda graph: True, gen throughput (token/s): 733, #queue-req: 0")
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
begun, written, rate = time.monotonic(), 0, int(sys.argv[2])
while True:
    due = int((time.monotonic() - begun) * rate) - written
    if due:
        rows = (line % (n % 60, n % 8) for n in range(written, written + due))
        os.write(out, b"\\n".join(rows) + b"\\n")
        written += due
    print(written, flush=True)
    time.sleep(0.005)
"""

_START = b"""\
[2026-11-29 05:49:02] server_args=ServerArgs(model_path='/m', tp_size=8)
[2026-11-29 05:49:08 TP0] Init torch distributed begin.
[2026-11-29 05:49:12 TP0] Load weight begin. avail mem=78.90 GB
"""

_READY = b"[2026-11-29 05:55:12] The server is fired up and ready to roll!\n"

_CRASH = """\
[2026-11-29 05:58:22 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 2710, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, dp_rank)
  File "/opt/sglang/python/sglang/srt/configs/model_config.py", line 541, in _derive_context
    raise ValueError(msg)
ValueError: Warning: User-specified context_length ({0}) is greater than the derived \
context_length ({1}). This may lead to incorrect model outputs or CUDA errors.

[2026-11-29 05:58:22] Received sigquit from a child process. It usually means the child failed.
"""


@contextmanager
def _console(folder: Path, host: str) -> Iterator[tuple[Terminal, Path]]:
    """The console over one host with one server whose log is a file; the log's path."""
    log = folder / "one.log"
    log.write_bytes(b"")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    hosts = folder / "hosts.yaml"
    hosts.write_text(
        f"hosts:\n  here: {host}\nservers:\n"
        f"  {NAME}: {{host: here, engine: sglang, model: /m, port: {port}, log: {log}}}\n"
    )
    program = "from console.cli import main; main()"
    terminal = Terminal(
        "-c", program, "console", "--hosts", str(hosts), program=(),
        env={f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG", "CACHE")}
        | {"SPECOPS_STATE_DIR": str(folder / "state")},
    )  # fmt: skip
    try:
        yield terminal, log
    finally:
        terminal.close()


def _ahead(pid: int) -> None:
    """Put a program and its children first: what else runs here is not measured.

    Only root may; without, the figures hold the load. A session's own priority counts where the
    kernel groups by session, a thread's where it does not (in a container).
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-15")
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), -15)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    for child in children:
        _ahead(int(child))


def _key(terminal: Terminal, key: bytes, word: bytes) -> float:
    """Milliseconds from a key to the word that answers it."""
    while terminal.read(0.0):
        pass
    begun = time.monotonic()
    os.write(terminal.fd, key)
    seen = b""
    while word not in seen:
        if time.monotonic() - begun > 10:
            raise TimeoutError(f"no {word!r} after {key!r}: {seen[-300:]!r}")
        seen += terminal.read(1.0)
    return (time.monotonic() - begun) * 1000


def _tail_f(folder: Path) -> float:
    """The share of a core that ``tail -F`` takes for the same log into a pipe."""
    path = folder / "peer.log"
    path.touch()
    with (
        subprocess.Popen(["tail", "-F", path], stdout=subprocess.PIPE) as tail,
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, path, str(RATE)], stdout=subprocess.DEVNULL
        ) as writer,
    ):
        assert tail.stdout is not None
        end, before = time.monotonic() + 5, cpu_s(tail.pid)
        while time.monotonic() < end:
            tail.stdout.read1(1 << 20)  # type: ignore[attr-defined]
        share = (cpu_s(tail.pid) - before) / 5
        tail.kill()
        writer.kill()
    return share


def follow() -> list[float]:
    """Key to paint with a log that pours in; printed on the way: what that takes."""
    times: list[float] = []
    rng = random.Random(5)
    with tempfile.TemporaryDirectory() as name:
        with _console(Path(name), "{transport: local}") as (terminal, log):
            log.write_bytes(_START + _READY)
            terminal.until(NAME.encode())
            terminal.drain(2.5)
            _ahead(os.getpid())
            os.write(terminal.fd, b"l")
            terminal.until(b"FOLLOW")
            argv = [sys.executable, "-c", _WRITER, str(log), str(RATE)]
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
                assert writer.stdout is not None
                os.set_blocking(writer.stdout.fileno(), False)
                begun, ran = time.monotonic(), cpu_s(terminal.process.pid)
                terminal.drain(5.0)
                for number in range(KEYS):
                    terminal.drain(rng.uniform(0.005, 0.04))
                    key, word = ((b"k", b"PAUSED"), (b"f", b"FOLLOW"))[number % 2]
                    times.append(_key(terminal, key, word))
                took = time.monotonic() - begun
                share = (cpu_s(terminal.process.pid) - ran) / took
                said = writer.stdout.read().split()
                writer.kill()
        rate = int(said[-1]) / took
        peer = _tail_f(Path(name))
        print(f"follow               {rate:,.0f} lines/s for {took:.0f} s took the console "
              f"{share:.0%} of a core; tail -F {peer:.0%}")  # fmt: skip
    return sorted(times)


def crash(host: str) -> list[float]:
    """Seconds from the write of a crash to its cause and fix on the screen."""
    times: list[float] = []
    rng = random.Random(6)
    with tempfile.TemporaryDirectory() as name, _console(Path(name), host) as (terminal, log):
        terminal.until(NAME.encode())
        terminal.drain(3.0)
        _ahead(os.getpid())
        os.write(terminal.fd, b"\r")
        terminal.drain(1.0)
        for number in range(CRASHES):
            with log.open("ab", buffering=0) as out:
                out.write(_START)
                terminal.drain(rng.uniform(1.0, 2.0))
                derived = 131_072 + number
                wanted = b"context-length %d" % derived
                while terminal.read(0.0):
                    pass
                begun = time.monotonic()
                out.write(_CRASH.format(262_144, derived).encode())
            seen = b""
            while wanted not in seen:
                if time.monotonic() - begun > 20:
                    raise TimeoutError(f"{wanted!r} was never drawn: {seen[-2000:]!r}")
                seen += terminal.read(1.0)
            times.append(time.monotonic() - begun)
    return sorted(times)


def crash_over_ssh() -> list[float]:
    """The same through an OpenSSH server on this machine."""
    with tempfile.TemporaryDirectory() as name:
        sshd = LoopbackSshd(Path(name) / "sshd")
        try:
            return crash(
                f"{{address: {sshd.address}, port: {sshd.port}, user: {sshd.user}, "
                f"identity_files: [{sshd.key.path}], known_hosts: {sshd.known_hosts}}}"
            )
        finally:
            sshd.stop()


def _row(name: str, times: list[float], unit: str, bound: str) -> None:
    p50, p99 = times[len(times) // 2], times[min(len(times) - 1, int(len(times) * 0.99))]
    digits = 0 if unit == "ms" else 2
    print(f"{name:<27} p50 {p50:.{digits}f} {unit}  p99 {p99:.{digits}f} {unit}  max "
          f"{times[-1]:.{digits}f} {unit} of {len(times)} (bound p99 {bound}); "
          f"load average {os.getloadavg()[0]:.2f}", flush=True)  # fmt: skip


def main(only: str = "") -> None:
    """Each figure with its bound and the load at its end."""
    if only in ("", "follow"):
        _row("key to paint", follow(), "ms", "50 ms")
    if only in ("", "crash"):
        _row("crash to cause", crash("{transport: local}"), "s", "1 s")
        if (why := sshd_missing()) is None:
            _row("crash to cause over ssh", crash_over_ssh(), "s", "1 s")
        else:
            print(f"crash to cause over ssh: {why}")


if __name__ == "__main__":
    main(*sys.argv[1:])
