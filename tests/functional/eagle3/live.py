"""A bundled server in a process of its own, on a free port of 127.0.0.1."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.weights import paths

CHAIN = (
    "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(paths().draft),
    "--speculative-num-steps", "3", "--speculative-eagle-topk", "1",
    "--speculative-num-draft-tokens", "4",
)  # fmt: skip
READY = "The server is fired up and ready to roll!"
PATIENCE = 90
"""Seconds; a start takes 3 on a quiet machine."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@dataclass
class Live:
    """A started server.

    Attributes:
        log: the file its standard error goes to.
    """

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def text(self) -> str:
        return self.log.read_text("utf-8", errors="replace")

    def wait_for(self, marker: str) -> None:
        """Wait until the log holds ``marker``; fail with the log if the server ends before."""
        deadline = time.monotonic() + PATIENCE
        while marker not in self.text():
            if self.process.poll() is not None and marker not in self.text():
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.text()}")
            assert time.monotonic() < deadline, f"no {marker!r} in time:\n{self.text()}"
            time.sleep(0.05)

    def get(self, path: str, timeout: float = 60) -> tuple[int, bytes]:
        return self._ask(urllib.request.Request(self.url + path), timeout)

    def post(self, path: str, body: Any, timeout: float = 60) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        status, text = self._ask(asked, timeout)
        return status, json.loads(text) if text else None

    @staticmethod
    def _ask(request: urllib.request.Request, timeout: float) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def scheduler(self) -> int:
        """The scheduler's process id."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for pid in children.split():
            if b"eagle3::scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        raise AssertionError(f"no scheduler among {children!r}")

    def end(self) -> int:
        """SIGTERM and wait; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def serving(
    folder: Path, *args: str, model: Path | None = None, env: dict[str, str] | None = None,
    port: int | None = None, ready: bool = True,
) -> Iterator[Live]:  # fmt: skip
    """A server for the length of a block; whatever is left of it afterwards is killed by pid."""
    port = port or free_port()
    log = folder / f"server-{port}.txt"
    command = [sys.executable, "-m", "eagle3.launch_server", "--model-path",
               str(model or paths().target), "--port", str(port), *args]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stderr=out, stdout=out, stdin=subprocess.DEVNULL, env=os.environ | (env or {})
        )
    live = Live(process, port, log)
    try:
        if ready:
            live.wait_for(READY)
        yield live
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()  # its scheduler follows by the parent death signal
                process.wait(20)
