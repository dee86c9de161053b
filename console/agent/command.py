"""Running one short command: bounded in time and output, its whole process group ended after."""

from __future__ import annotations

import base64
import contextlib
import os
import selectors
import signal
import subprocess
import time
from typing import Any

from console.agent import child
from console.agent.calls import Call, VerbError, Verbs

MAX_OUTPUT = 8 << 20
"""Bytes kept of each stream; the rest is read and dropped."""


def run(call: Call) -> dict[str, Any]:
    """The verb: code (``None`` when it timed out), stdout and stderr in base64."""
    argv = call.words("argv")
    if not argv or not argv[0]:
        raise VerbError("usage", "argv is empty")
    env = dict(os.environ)
    env.update(call.variables("env"))
    data = base64.b64decode(call.text("stdin", ""))
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if data else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        raise VerbError("os", "{}: {}".format(argv[0], error.strerror), errno=error.errno) from None
    child.keep(process)
    deadline = time.monotonic() + call.seconds("timeout_s", 30.0)
    out, err = bytearray(), bytearray()
    try:
        finished = _pump(call, process, data, out, err, deadline)
    finally:
        _end_group(process)
    return {
        "code": process.returncode if finished else None,
        "stdout": base64.b64encode(out).decode("ascii"),
        "stderr": base64.b64encode(err).decode("ascii"),
    }


def _pump(
    call: Call,
    process: subprocess.Popen[bytes],
    data: bytes,
    out: bytearray,
    err: bytearray,
    deadline: float,
) -> bool:
    """Feed and read until the process ends; ``False`` when its time is over."""
    rest = memoryview(data)
    with selectors.DefaultSelector() as selector:
        for pipe, into in ((process.stdout, out), (process.stderr, err)):
            assert pipe is not None
            selector.register(pipe, selectors.EVENT_READ, into)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
        while time.monotonic() < deadline and not call.cancelled.is_set():
            if process.poll() is not None and not selector.select(0):
                return True  # a grandchild may keep the pipes open for ever
            for key, _ in selector.select(0.05) if selector.get_map() else ():
                if key.data is None:
                    rest = _write(process, rest)
                    if not rest:
                        selector.unregister(key.fileobj)
                        assert process.stdin is not None
                        process.stdin.close()
                    continue
                piece = os.read(key.fd, 65536)
                if not piece:
                    selector.unregister(key.fileobj)
                key.data.extend(piece[: max(0, MAX_OUTPUT - len(key.data))])
            if not selector.get_map():
                try:
                    process.wait(max(0.0, min(0.05, deadline - time.monotonic())))
                except subprocess.TimeoutExpired:
                    continue
                return True
    return False


def _write(process: subprocess.Popen[bytes], rest: memoryview) -> memoryview:
    assert process.stdin is not None
    try:
        return rest[os.write(process.stdin.fileno(), rest[:65536]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return memoryview(b"")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the command's own session; collect the command itself."""
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        # one that hangs in the kernel is not waited for
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
    child.end(process)


VERBS: Verbs = {"run": run}
