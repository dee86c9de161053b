"""Starts one server in a session of its own, waits for it, writes its exit status, ends.

It runs in a fresh interpreter. Ending it never ends the server, which then belongs to init; only
the exit status is lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Any

from console.agent import proc, wire


def main(_finder: Any) -> None:
    """Read the job from stdin, answer with pid or error on stdout, then wait in the background."""
    job = wire.loads(sys.stdin.buffer.readline())
    if os.fork():
        os._exit(0)  # the agent collects this one; the waiting process belongs to init
    ready, failed = os.pipe()  # the write end closes when exec succeeds
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        _become(job, failed)
    os.close(failed)
    reason = b""
    while True:
        piece = os.read(ready, 4096)
        if not piece:
            break
        reason += piece
    if reason:
        os.waitpid(pid, 0)
        _answer({"error": reason.decode("utf-8", "replace")})
        os._exit(1)
    seen = proc.stat(pid)  # there even if it has ended: nobody has collected it yet
    assert seen is not None
    _answer({"pid": pid, "start_ticks": seen.start_ticks, "session": seen.sid})
    _let_go()
    _note_exit(job["exit_file"], pid)
    os._exit(0)


def _become(job: dict[str, Any], failed: int) -> None:
    """In the server's process: session, descriptors, directory, exec. Never returns."""
    step = job["cwd"]
    try:
        os.setsid()
        os.chdir(job["cwd"])
        step = job["log"]
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        log = os.open(job["log"], flags, 0o644)
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.closerange(3, failed)
        os.closerange(failed + 1, 256)
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        step = job["argv"][0]
        os.execvpe(job["argv"][0], job["argv"], job["env"])  # noqa: S606 - no shell is wanted
    except OSError as error:
        message = "{}: {}".format(step, error.strerror)
        os.write(failed, message.encode("utf-8", "backslashreplace"))
    os._exit(127)


def _answer(value: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the agent has ended; the server runs all the same
        os.write(1, wire.dumps(value) + b"\n")


def _let_go() -> None:
    """Hold nothing of the login: no pipe, no directory, no terminal."""
    null = os.open("/dev/null", os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _note_exit(path: str, pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status)
    code = -os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)
    result = {"format": 1, "code": code, "time": time.time()}
    temporary = path + ".new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(os.open(temporary, flags, 0o600), "wb") as target:
        target.write(wire.dumps(result) + b"\n")
    os.replace(temporary, path)
