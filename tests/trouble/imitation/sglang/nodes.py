"""The nodes of the imitation: they meet over TCP, and each notices when another is gone."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import NoReturn

from tests.trouble.process import sleep

from .parts import child, log

SCHEDULER = "/opt/sg/lib/python3.11/site-packages/sglang/srt/managers/scheduler.py"
RUNNER = "/opt/sg/lib/python3.11/site-packages/sglang/srt/model_executor/model_runner.py"


@dataclass
class Nodes:
    """This node among the others; ``links`` are its connections to them."""

    count: int = 1
    rank: int = 0
    host: str = ""
    port: int = 0
    timeout_s: float = 600.0
    links: list[socket.socket] = field(default_factory=list)

    @classmethod
    def of(cls, argv: list[str]) -> Nodes:
        """As the flags say."""
        given = dict(pairwise(argv))
        host, _, port = given.get("--dist-init-addr", ":0").rpartition(":")
        return cls(
            int(given.get("--nnodes", "1")), int(given.get("--node-rank", "0")), host, int(port),
            float(given.get("--dist-timeout", "600")),
        )  # fmt: skip

    def meet(self) -> None:
        """Wait until all nodes are there; end as torch does where they do not come."""
        if self.count == 1:
            return
        end = time.monotonic() + self.timeout_s
        try:
            self._gather(end) if self.rank == 0 else self._join(end)
        except TimeoutError:
            joined = len(self.links) + 1
            self.die(
                "torch.distributed.DistStoreError",
                f"Timed out after {self.timeout_s:.0f} seconds waiting for clients. "
                f"{joined}/{self.count} clients joined.",
                RUNNER, "init_torch_distributed",
            )  # fmt: skip
        for link in self.links:
            link.settimeout(None)
            threading.Thread(target=self._hear, args=(link,), daemon=True).start()

    def _gather(self, end: float) -> None:
        """Node 0: everybody comes to it."""
        with socket.create_server(("", self.port)) as server:
            while len(self.links) < self.count - 1:
                server.settimeout(max(0.05, end - time.monotonic()))
                self.links.append(server.accept()[0])
        for link in self.links:
            link.sendall(b"go")

    def _join(self, end: float) -> None:
        """The others go to node 0, again and again, and wait for its word."""
        while time.monotonic() < end:
            with suppress(OSError):
                link = socket.create_connection((self.host, self.port), timeout=1.0)
                link.settimeout(max(0.05, end - time.monotonic()))
                if link.recv(2) == b"go":
                    self.links.append(link)
                    return
                link.close()  # something between them that found nobody there yet
            time.sleep(0.1)
        raise TimeoutError

    def _hear(self, link: socket.socket) -> None:
        """Nothing is ever said; the end of the connection is the end of the peer."""
        try:
            while link.recv(64):
                pass
        except OSError:
            pass
        self._lost(link)

    def _lost(self, link: socket.socket) -> NoReturn:
        try:
            host, port = link.getpeername()[:2]
        except OSError:
            host, port = self.host, self.port
        message = (
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:544] "
            f"Connection closed by peer [{host}]:{port}"
        )
        self.die("RuntimeError", message, SCHEDULER, "recv_requests")

    def fail_if(self, line: str) -> None:
        """The rank that is told to fails while its weights load."""
        fails = os.environ.get("IMITATION_FAILS_RANK")
        if fails is not None and int(fails) == self.rank and line.startswith("Load weight end"):
            message = (
                "CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of "
                "139.80 GiB of which 1.12 GiB is free."
            )
            self.die("torch.OutOfMemoryError", message, RUNNER, "load_model")

    def die(self, kind: str, message: str, file: str, function: str) -> NoReturn:
        """The scheduler's exception, the word of its parent, and the end of all."""
        rank = f" TP{self.rank}" if self.count > 1 else ""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        text = (
            f"[{stamp}{rank}] Scheduler hit an exception: Traceback (most recent call last):\n"
            f'  File "{file}", line 312, in {function}\n'
            f"    self.{function}()\n"
            f"{kind}: {message}\n\n"
        )
        os.write(1, text.encode())
        log("Received sigquit from a child process. It usually means the child failed.")
        os.kill(os.getpid(), signal.SIGKILL)
        raise SystemExit  # not reached

    def stand_in(self, port: int) -> NoReturn:
        """All but the first node: schedulers, and a server that is always well."""
        stays = "waiting for the rank-0 ShutdownReq broadcast"
        signal.signal(signal.SIGTERM, lambda *_: log(stays))
        child(f"sglang::scheduler_TP{self.rank}", sleep)
        ThreadingHTTPServer(("127.0.0.1", port), _Well).serve_forever()
        raise SystemExit


class _Well(BaseHTTPRequestHandler):
    """200 to everything, and not a word in the log."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200 if self.path.startswith("/health") else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Nothing."""
