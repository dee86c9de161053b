"""The log of a host as an operator meets it: the real console in a terminal, a writer beside it.

Follow: a server writes 50,000 lines a second; milliseconds from a key to its drawing, beside what
a bare Textual application takes while something else reads the same log the same way. Crash: a
start that dies is written to a server's log; seconds from that write until the cause and its fix
stand on the screen. All of it through the agent, on this machine and over ssh to it.
"""

from __future__ import annotations

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
from typing import NamedTuple

from tests.bench.console import SPECOPS, Terminal, ahead, cpu_s
from tests.rig.sshd import LoopbackSshd
from tests.rig.sshd import missing as sshd_missing

RATE = 50_000
KEYS = int(os.environ.get("BENCH_KEYS", "300"))
CRASHES = int(os.environ.get("BENCH_CRASHES", "100"))

NAME = f"bench{os.getpid()}"
"""Of the server: the host may know others by its record."""

_WRITER = """
import http.server, os, sys, threading, time

class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        pass

if len(sys.argv) > 3:
    server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[3])), Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
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


class Scene(NamedTuple):
    """One host with one server whose log is a file."""

    hosts: Path
    log: Path
    port: int
    env: dict[str, str]

    @classmethod
    def make(cls, folder: Path, host: str) -> Scene:
        """``host`` as hosts.yaml has it."""
        log, hosts = folder / "one.log", folder / "hosts.yaml"
        log.write_bytes(_START + _READY)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        hosts.write_text(
            f"hosts:\n  here: {host}\nservers:\n"
            f"  {NAME}: {{host: here, engine: sglang, model: /m, port: {port}, log: {log}}}\n"
        )
        env = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG", "CACHE")}
        return cls(hosts, log, port, env | {"SPECOPS_STATE_DIR": str(folder / "state")})

    @contextmanager
    def console(self) -> Iterator[Terminal]:
        """The console over it."""
        argv = ("console", "--hosts", str(self.hosts))
        terminal = Terminal(*argv, program=SPECOPS, env=self.env)
        try:
            yield terminal
        finally:
            terminal.close()

    @contextmanager
    def reader(self) -> Iterator[Terminal]:
        """A bare Textual application that answers keys, and the log read by something else."""
        argv = [sys.executable, *SPECOPS, "logs", NAME, "-f", "--hosts", str(self.hosts)]
        env = {**os.environ, **self.env}
        with subprocess.Popen(
            argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as reading:
            terminal = Terminal("keys")
            try:
                yield terminal
            finally:
                terminal.close()
                reading.terminate()


@contextmanager
def _over_ssh() -> Iterator[str]:
    """This machine through an OpenSSH server of its own, as hosts.yaml has it."""
    with tempfile.TemporaryDirectory() as name:
        sshd = LoopbackSshd(Path(name) / "sshd")
        try:
            yield (
                f"{{address: {sshd.address}, port: {sshd.port}, user: {sshd.user}, "
                f"identity_files: [{sshd.key.path}], known_hosts: {sshd.known_hosts}}}"
            )
        finally:
            sshd.stop()


def _type(terminal: Terminal, *typed: bytes) -> None:
    """To our server, by its name: there may be others here."""
    for keys in typed:
        os.write(terminal.fd, keys)
        terminal.drain(1.0)


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


def _keys(terminal: Terminal, scene: Scene) -> tuple[list[float], str]:
    """Key to paint while the server writes, sorted; and in words what that took."""
    times: list[float] = []
    rng = random.Random(5)
    looks = ["-m", "sglang.launch_server", "--model-path", "/m"]  # or it would be taken for dead
    argv = [sys.executable, "-c", _WRITER, str(scene.log), str(RATE), str(scene.port), *looks]
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
    return sorted(times), f"{rate:,.0f} lines/s for {took:.0f} s, {share:.0%} of a core"


def follow(where: str, host: str) -> None:
    """Key to paint with a log that pours in, of the console and of the least there is."""
    with tempfile.TemporaryDirectory() as name:
        scene = Scene.make(Path(name), host)
        with scene.console() as terminal:
            terminal.until(NAME.encode())
            terminal.drain(2.5)
            ahead(os.getpid())
            _type(terminal, b"/", NAME.encode() + b"\r")
            os.write(terminal.fd, b"l")
            terminal.until(b"FOLLOW")
            ours, what = _keys(terminal, scene)
        print(f"follow {where:<20} {what} for the console; tail -F {_tail_f(Path(name)):.0%}")
        scene = Scene.make(Path(name), host)
        with scene.reader() as terminal:
            terminal.until(b"FOLLOW")
            bare, what = _keys(terminal, scene)
    _row(f"key to paint {where}", ours, "ms", "50 ms")
    _row("  bare Textual beside", bare, "ms", "none")
    ratio = ours[len(ours) * 99 // 100] / bare[len(bare) * 99 // 100]
    print(f"  {ratio:.1f} x at p99, {ours[len(ours) // 2] / bare[len(bare) // 2]:.1f} x at p50")


def crash(host: str) -> list[float]:
    """Seconds from the write of a crash to its cause and fix on the screen."""
    rng = random.Random(6)
    with tempfile.TemporaryDirectory() as name:
        scene = Scene.make(Path(name), host)
        scene.log.write_bytes(b"")
        with scene.console() as terminal:
            terminal.until(NAME.encode())
            terminal.drain(3.0)
            ahead(os.getpid())
            _type(terminal, b"/", NAME.encode() + b"\r", b"\r")
            return sorted(
                _crash(terminal, scene.log, 131_072 + number, rng.uniform(1.0, 2.0))
                for number in range(CRASHES)
            )


def _crash(terminal: Terminal, log: Path, derived: int, after_s: float) -> float:
    with log.open("ab", buffering=0) as out:
        out.write(_START)
        terminal.drain(after_s)
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
    return time.monotonic() - begun


def _row(name: str, times: list[float], unit: str, bound: str) -> None:
    p50, p99 = times[len(times) // 2], times[min(len(times) - 1, int(len(times) * 0.99))]
    digits = 0 if unit == "ms" else 2
    print(f"{name:<27} p50 {p50:.{digits}f} {unit}  p99 {p99:.{digits}f} {unit}  max "
          f"{times[-1]:.{digits}f} {unit} of {len(times)} (bound p99 {bound}); "
          f"load average {os.getloadavg()[0]:.2f}", flush=True)  # fmt: skip


LOCAL = "{transport: local}"


def main(only: str = "") -> None:
    """Each figure with its bound and the load at its end."""
    missing = sshd_missing()
    if missing is not None:
        print(f"over ssh: {missing}")
    if only in ("", "follow"):
        follow("here", LOCAL)
        if missing is None:
            with _over_ssh() as host:
                follow("over ssh", host)
    if only in ("", "crash"):
        _row("crash to cause", crash(LOCAL), "s", "1 s")
        if missing is None:
            with _over_ssh() as host:
                _row("crash to cause over ssh", crash(host), "s", "1 s")


if __name__ == "__main__":
    main(*sys.argv[1:])
