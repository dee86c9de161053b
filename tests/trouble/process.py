"""What specimens are made of: titles, held memory, forks that report, raw kernel calls."""

# No pathlib: os.path and open suit forked processes and Python 3.8.
# ruff: noqa: PTH119, PTH123
from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

PR_SET_NAME = 15  # linux/prctl.h
CLONE_NEWPID = 0x20000000  # linux/sched.h
CLONE_VFORK = 0x4000
SYS_EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
SYS_CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
PAGE = 4096
LIFE_S = 900  # no specimen outlives this, whatever happens to its maker

libc = ctypes.CDLL(None, use_errno=True)


class Order(NamedTuple):
    """What was asked for: ``port`` 0 is any; ``age_s`` is how old files are made to look."""

    ranks: int
    mib: int
    port: int
    age_s: float
    folder: str


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat, or None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def state(pid: int) -> str:
    """The state letter, or "" when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return chr(stat[stat.rindex(b")") + 2])


def set_title(*argv: str) -> None:
    """Become ``argv`` in ps, as setproctitle does it: the arguments' own memory is overwritten.

    The caller must have been started with enough argument bytes to hold it (``room``).
    """
    with open("/proc/self/stat", "rb") as file:
        stat = file.read()
    fields = stat[stat.rindex(b")") + 2 :].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start, arg_end
    text = b"\0".join(word.encode() for word in argv)
    size = end - begin
    if len(text) >= size:
        raise ValueError(f"title of {len(text)} bytes, room for {size - 1}")
    ctypes.memmove(begin, text + bytes(size - len(text)), size)
    name = os.path.basename(argv[0]).encode()[:15]
    libc.prctl(PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)


def hold(mib: int) -> bytearray:
    """Memory whose every page is touched."""
    memory = bytearray(mib << 20)
    memory[::PAGE] = b"x" * len(range(0, len(memory), PAGE))
    return memory


def fork(work: Callable[[], None], ready: int | None = None) -> int:
    """Run ``work`` in a child; its pid, once the child has closed ``ready`` if that is given."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(LIFE_S)
        if ready is not None:
            os.close(ready)
        work()
        status = 0
    finally:
        os._exit(status)


def sleep() -> NoReturn:
    """Do nothing until killed."""
    while True:
        time.sleep(60)


def leave_only_threads(work: Callable[[], None]) -> NoReturn:
    """End the main thread alone: a zombie leader whose other thread lives."""
    threading.Thread(target=work, daemon=True).start()
    libc.syscall(SYS_EXIT, 0)  # not exit_group
    raise AssertionError("the main thread is gone")


def vfork_and_wait() -> NoReturn:
    """Wait in state D for a child that neither execs nor exits, as vfork makes its caller wait."""
    if libc.syscall(SYS_CLONE, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        signal.alarm(LIFE_S)
        sleep()
    sleep()


def unshare_pids() -> None:
    """The next child is number 1 of a pid namespace of its own.

    Raises:
        PermissionError: not root.
    """
    if libc.unshare(CLONE_NEWPID) != 0:
        raise PermissionError(ctypes.get_errno(), "unshare --pid")


def listen(port: int) -> socket.socket:
    """A socket that listens on 127.0.0.1; port 0 is any."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def serve(listener: socket.socket) -> NoReturn:
    """Answer 200 to every request; /metrics counts one more token each time."""
    tokens = 0
    while True:
        link, _ = listener.accept()
        with link:
            link.settimeout(2)
            try:
                request = link.recv(4096)
                tokens += 1
                metrics = b"/metrics" in request.split(b"\r\n", 1)[0]
                body = f"sglang:generation_tokens_total {tokens}\n".encode() if metrics else b"ok"
                head = (
                    f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                link.sendall(head.encode() + body)
            except OSError:
                continue


def answers(port: int) -> bool:
    """Whether /health says 200."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
            link.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            return link.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; SystemExit naming it after 20 s."""
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"trouble: {what} did not happen in 20 s")
        time.sleep(0.005)


class Report:
    """The one line a specimen's launcher sends to the maker over ``fd``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pids: dict[str, int] = {}
        self._rest: dict[str, Any] = {}

    def add(self, **pids: int) -> None:
        """Name processes."""
        self._pids.update(pids)

    def say(self, **values: Any) -> None:
        """Other facts: ``ports``, ``paths``, ``mode``."""
        self._rest.update(values)

    def send(self) -> None:
        """Send, with each process's start ticks; then the launcher may do what it does."""
        starts = {name: start_ticks(pid) for name, pid in self._pids.items()}
        line = json.dumps({"pids": self._pids, "starts": starts, **self._rest}) + "\n"
        os.write(self._fd, line.encode())
        os.close(self._fd)


def make_ranks(report: Report, count: int, mib: int, body: Callable[[], None] = sleep) -> list[int]:
    """``count`` workers named as SGLang names its schedulers, each holding ``mib`` MiB."""
    ranks = []
    for rank in range(count):
        pid, pipe = _ready_fork(f"sglang::scheduler_TP{rank}", mib, body)
        os.read(pipe, 1)
        os.close(pipe)
        report.add(**{f"rank{rank}": pid})
        ranks.append(pid)
    return ranks


def _ready_fork(title: str, mib: int, body: Callable[[], None]) -> tuple[int, int]:
    ready, ring = os.pipe()

    def work() -> None:
        set_title(title)
        _memory = hold(mib)
        os.write(ring, b"!")
        os.close(ring)
        body()

    pid = fork(work, ready)
    os.close(ring)
    return pid, ready


def send_and_die(report: Report) -> NoReturn:
    """Send the report and end by SIGKILL, as a launcher that is killed."""
    report.say(dies=True)
    report.send()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")
