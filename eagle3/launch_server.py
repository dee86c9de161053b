"""``python -m eagle3.launch_server``: check, start the scheduler, serve, and end in order.

The processes, their log lines and their ends are those of SGLang 0.5.12. The port is bound only
when the scheduler has loaded; ``/health`` is 503 until a request of the server to itself has been
answered; a scheduler that crashes takes the launcher with it by SIGKILL. SIGTERM drains: running
requests may finish within ``--drain-timeout``, then the exit status is 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.client
import json
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from eagle3 import check, sglang_engine
from eagle3.client import SchedulerClient, SchedulerGone
from eagle3.config import ConfigError
from eagle3.logs import configure
from eagle3.server_args import ServerArgs, parse, resolve

if TYPE_CHECKING:
    from eagle3.asgi import Server
    from eagle3.frontend import Frontend

READY = "The server is fired up and ready to roll!"
_WARMUP_TRIES = 120
_FORCE = ("1", "true")
log = logging.getLogger("eagle3.launch_server")


class Launcher:
    """One run of the server."""

    def __init__(self, args: ServerArgs) -> None:
        self.args = args
        self.client = SchedulerClient()
        self.process: asyncio.subprocess.Process | None = None
        self.quit = asyncio.Event()
        self.term = asyncio.Event()
        self.serving = False

    async def run(self) -> int:
        """Serve until a signal; the exit status.

        Raises:
            RuntimeError: the scheduler died while loading, without a word.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGQUIT, self.quit.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._terminate)
        try:
            return await self._run()
        finally:
            await self._end_scheduler()

    def _terminate(self) -> None:
        forced = os.environ.get("SGL_FORCE_SHUTDOWN", "").lower() in _FORCE
        if self.term.is_set() or forced or not self.serving:
            self._kill_scheduler()
            os._exit(128 + signal.SIGTERM)
        self.term.set()

    async def _run(self) -> int:
        await self._start_scheduler()
        ready = asyncio.create_task(self.client.ready())
        quit_ = asyncio.create_task(self.quit.wait())
        await asyncio.wait((ready, quit_), return_when=asyncio.FIRST_COMPLETED)
        try:
            if self.quit.is_set():
                raise SchedulerGone
            capacity = ready.result()
        except SchedulerGone:
            ready.cancel()
            await self._died_loading()
        self.serving = True
        return await self._serve(capacity)

    async def _start_scheduler(self) -> None:
        ours, theirs = socket.socketpair()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "eagle3.scheduler", str(theirs.fileno()),
            pass_fds=[theirs.fileno()], stdin=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        await self.client.connect(ours, dataclasses.asdict(self.args))

    async def _died_loading(self) -> None:
        """The scheduler ended before it was ready: end as SGLang does.

        Raises:
            RuntimeError: it was killed.
        """
        assert self.process is not None
        with contextlib.suppress(TimeoutError):  # its SIGQUIT and its end race
            await asyncio.wait_for(self.quit.wait(), 1.0)
        if self.quit.is_set():
            log.error("Received sigquit from a child process. It usually means the child failed.")
            self._kill_everything()
        code = await self.process.wait()
        raise RuntimeError(
            f"Rank 0 scheduler died during initialization (exit code: {code}). If exit code is -9 "
            "(SIGKILL), a common cause is the OS OOM killer."
        )

    async def _serve(self, capacity: dict[str, Any]) -> int:
        # Imported here: the scheduler loads its models meanwhile, and --check never needs it.
        from eagle3 import asgi  # noqa: PLC0415

        frontend, server = asgi.build(self.args, self.client, capacity)
        tasks = [
            asyncio.create_task(self._watch(self.client.listen())),
            asyncio.create_task(self._warm_up(frontend, server)),
            asyncio.create_task(self._drain(frontend, server)),
            asyncio.create_task(self._quit_running()),
        ]
        try:
            await server.serve()
        except SystemExit:  # uvicorn: the port is taken; it has said so
            return 1
        finally:
            for task in tasks:
                task.cancel()
        return 0

    async def _watch(self, listening: Any) -> None:
        """Hand out the scheduler's messages; when it ends unasked, end too."""
        await listening
        assert self.process is not None
        code = await self.process.wait()
        if self.term.is_set():
            return
        log.error(
            "Subprocess scheduler_0 (pid=%d) crashed with exit code %d. "
            "Triggering SIGQUIT for cleanup...", self.process.pid, code,
        )  # fmt: skip
        self._quit("None", "None")

    async def _quit_running(self) -> None:
        await self.quit.wait()
        self._quit(str(int(signal.SIGQUIT)), "<frame>")

    def _quit(self, signum: str, frame: str) -> None:
        log.error("SIGQUIT received. signum=%s, frame=%s. It usually means one child failed.",
                  signum, frame)  # fmt: skip
        self._kill_everything()

    async def _warm_up(self, frontend: Frontend, server: Server) -> None:
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.02)
        if self.args.debug_hang_at == "warmup":
            return
        if not self.args.skip_server_warmup:
            try:
                await asyncio.to_thread(warm_up, self.args)
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                log.error("Initialization failed. warmup error: %s", error)
                self._kill_everything()
        frontend.status = "up"
        log.info(READY)

    async def _drain(self, frontend: Frontend, server: Server) -> None:
        await self.term.wait()
        frontend.status = "draining"
        deadline = time.monotonic() + self.args.drain_timeout
        log.info("Gracefully exiting... Remaining number of requests %d", self.client.open_requests)
        while self.client.open_requests and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        if self.client.open_requests:
            log.info("Drain timeout: %d requests are cut off.", self.client.open_requests)
            self.client.cut_off()
        server.should_exit = True

    async def _end_scheduler(self) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        self.client.stop()
        try:
            await asyncio.wait_for(self.process.wait(), 5)
        except TimeoutError:
            self._kill_scheduler()
            await self.process.wait()

    def _kill_scheduler(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    def _kill_everything(self) -> None:
        """Kill the scheduler, then this process: how SGLang ends after a crash (status 137)."""
        self._kill_scheduler()
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def warm_up(args: ServerArgs) -> None:
    """Ask the server for a first answer, as a client would.

    Raises:
        OSError, RuntimeError, HTTPException: it did not answer, or not with 200.
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(args.host, args.host)  # noqa: S104 - not bound
    headers = {"Content-Type": "application/json"}
    if args.api_key:
        headers["Authorization"] = f"Bearer {args.api_key}"
    asked = json.dumps({
        "input_ids": [0, 1, 2, 3],
        "sampling_params": {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True},
    })  # fmt: skip
    for method, path, body, timeout in (
        ("GET", "/model_info", None, 5.0),
        ("POST", "/generate", asked, 600.0),
    ):
        connection = http.client.HTTPConnection(host, args.port, timeout=timeout)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"{path} answered {response.status}: {text[:200]!r}")


def refuse(why: str) -> NoReturn:
    """End as argparse does with an argument that cannot be used: one line, status 2."""
    sys.stderr.write(f"launch_server.py: error: {why}\n")
    sys.exit(2)


def main() -> None:
    """Entry point."""
    argv = sys.argv[1:]
    if sglang_engine.wanted(argv):
        sglang_engine.run(argv)
    args = parse(argv)
    configure(args.log_level)
    if args.check:
        sys.exit(check.run(args))
    try:
        resolved = resolve(args)
    except ConfigError as error:  # the operator named a folder that is none: no fault to trace
        refuse(f"argument --model-path: {error}")
    draft = resolved.speculative_draft_model_path
    if resolved.speculative_algorithm is not None and draft and not Path(draft).is_dir():
        refuse(f"argument --speculative-draft-model-path: {draft}: no such model folder")
    log.info("server_args=%s", resolved.shown())
    sys.exit(asyncio.run(Launcher(resolved).run()))


if __name__ == "__main__":
    main()
