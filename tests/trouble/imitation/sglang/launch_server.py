"""``python -m sglang.launch_server …`` as an operator meets it, without a model.

Put its folder and the project's on PYTHONPATH. What is true of it is what was seen of 0.5.12 on an
H200: a launcher that keeps its command line and serves HTTP, ``sglang::scheduler`` and
``sglang::detokenizer`` (ended with their parent), multiprocessing's resource tracker, torch's
compile workers, which wake up now and then. A token goes launcher → scheduler → detokenizer →
launcher; while none comes, /health and /health_generate say 503 after SGLANG_HEALTH_CHECK_TIMEOUT
(20 s) and log what SGLang logs; /v1/models and /metrics answer at once, /server_info never.
SIGUSR1 makes the scheduler wait for ever, as a rank that waits for another in a collective.
``--enable-metrics`` and SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION mean what they mean there.

With ``--nnodes`` the nodes meet at ``--dist-init-addr`` and wait for each other, ``--dist-timeout``
seconds at most; a node whose peer is gone says so and ends; all but the first have a stand-in that
says 200 to /health, whatever becomes of the first, and take no SIGTERM. IMITATION_FAILS_RANK names
a rank that runs out of memory while its weights load.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.trouble.process import LIFE_S, sleep

from .nodes import Nodes
from .parts import child, log

HEALTH_S = float(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT", "20"))
GENERATES = os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1") != "0"
COMPILE_WORKERS = 4
MEETS = 2
"""So many lines of the start come before the nodes meet."""
START = (
    "server_args=ServerArgs(model_path='/data/models/target', tp_size=1, port=0)",
    "Init torch distributed begin.",
    "Init torch distributed ends. elapsed=0.25 s, mem usage=0.09 GB",
    "Load weight begin. avail mem=139.13 GB",
    "Load weight end. elapsed=0.21 s, type=LlamaForCausalLM, avail mem=139.12 GB, mem usage=0 GB.",
    "KV Cache is allocated. #tokens: 21855382, K size: 20.84 GB, V size: 20.84 GB",
    "Memory pool end. avail mem=97.27 GB",
    "Capture cuda graph begin. This can take up to several minutes. avail mem=97.17 GB",
    "Capture cuda graph end. Time elapsed: 37.49 s. mem usage=0.04 GB. avail mem=97.14 GB.",
    "max_total_num_tokens=21855382, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=48, context_len=2048, available_gpu_mem=91.71 GB",
)
PREFILL = (
    "Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0, token usage: 0.00, "
    "#running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, "
    "input throughput (token/s): 0.98"
)


class Tokens:
    """The way of a token through the processes; ``seen_at`` is when the last one came back."""

    def __init__(self) -> None:
        self.asked, scheduler_in = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        scheduler_out, detokenizer_in = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        detokenizer_out, self.came = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.seen_at, self.total = 0.0, 0

        def schedule() -> None:
            signal.signal(signal.SIGUSR1, lambda _signal, _frame: sleep())
            for number in range(COMPILE_WORKERS):
                child(f"python3\0/torch/_inductor/compile_worker/__main__.py\0--n={number}", wake)
            while word := scheduler_in.recv(64):
                log(PREFILL)
                scheduler_out.send(word)

        def detokenize() -> None:
            while word := detokenizer_in.recv(64):
                detokenizer_out.send(word)

        tracker = "python3\0-c\0from multiprocessing.resource_tracker import main;main(7)"
        child(tracker, sleep)
        child("sglang::scheduler", schedule)
        child("sglang::detokenizer", detokenize)
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while self.came.recv(64):
            self.seen_at = time.monotonic()
            self.total += 1

    def one(self, wait_s: float) -> bool:
        """Whether anything came back in that time; looked at once a second, as SGLang does."""
        began = time.monotonic()
        self.asked.send(b"token")
        while time.monotonic() < began + wait_s:
            time.sleep(min(1.0, wait_s / 4))
            if self.seen_at > began:
                return True
        log(
            f"Health check failed. Server couldn't get a response from detokenizer for last "
            f"{wait_s:.0f} seconds. tic start time: 00:00:00. last_heartbeat time: 00:00:00"
        )
        return False


def wake() -> None:
    """An idle compile worker: it looks after its parent now and then."""
    while True:
        until = time.process_time() + 0.002
        while time.process_time() < until:
            pass
        time.sleep(1.0)


class Front(BaseHTTPRequestHandler):
    """The endpoints, and uvicorn's line for each answer."""

    protocol_version = "HTTP/1.1"
    tokens: Tokens
    metrics = False

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        if path in ("/health", "/health_generate"):
            generates = GENERATES or path == "/health_generate"
            fine = not generates or self.tokens.one(HEALTH_S)
            self._say(200 if fine else 503, b"")
        elif path == "/metrics" and self.metrics:
            body = f'sglang:generation_tokens_total{{tp_rank="0"}} {self.tokens.total}\n'
            self._say(200, body.encode())
        elif path == "/v1/models":
            self._say(200, b'{"data": []}')
        elif path in ("/server_info", "/get_server_info"):
            if path.startswith("/get"):
                log(f"Endpoint '{path}' is deprecated and will be removed in a future version.")
            sent = self.tokens.total
            self.tokens.asked.send(b"state")
            while self.tokens.total == sent:
                time.sleep(0.2)
            self._say(200, b"{}")
        else:
            self._say(404, b"")

    def do_POST(self) -> None:
        """A completion of one token."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fine = self.tokens.one(600)
        self._say(200 if fine else 503, b'{"choices": [{"text": "x"}]}')

    def _say(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Not the base's line but uvicorn's."""
        words = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}
        host, port = self.client_address[:2]
        if len(args) > 1:
            code = int(str(args[1]))
            log(f'INFO:     {host}:{port} - "{self.requestline}" {code} {words[code]}')


def main() -> None:
    """Start, warm up, serve until ended."""
    signal.alarm(LIFE_S)
    argv = sys.argv[1:]
    port = int(argv[argv.index("--port") + 1])
    nodes = Nodes.of(argv)
    for line in START[:MEETS]:
        log(line)
    nodes.meet()
    for line in START[MEETS:]:
        nodes.fail_if(line)
        log(line)
    if nodes.rank > 0:
        nodes.stand_in(port)
    tokens = Tokens()
    Front.tokens, Front.metrics = tokens, "--enable-metrics" in argv
    server = ThreadingHTTPServer(("127.0.0.1", port), Front)
    server.daemon_threads = True
    log(f"INFO:     Started server process [{os.getpid()}]")
    log("INFO:     Application startup complete.")
    log(f"INFO:     Uvicorn running on http://127.0.0.1:{port} (Press CTRL+C to quit)")
    tokens.one(HEALTH_S)
    log('INFO:     127.0.0.1:44822 - "POST /generate HTTP/1.1" 200 OK')
    log("The server is fired up and ready to roll!")
    server.serve_forever()


if __name__ == "__main__":
    main()
