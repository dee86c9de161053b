"""What one server answers: health, metrics, and a token where its silence must be judged.

A question goes on while looks come and go; an answer counts for the process that was asked, and a
bad one not beyond the moment when the server says that it is ready.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import httpx

from console.model import Health, Phase, ProcessId, Server, Snapshot
from console.watch import probe
from console.watch.attribution import Found, answers_for
from console.watch.observed import Tokens
from console.zombies import Attempt

METRICS_EVERY_S = 2.0
GENERATE_EVERY_S = 20.0
"""A server that was ready and does not answer is asked for a token so often, for the verdict."""
JUST_NOW_S = 5.0
SHORT_S = 0.5
HEALTH_EVERY_S = 10.0
"""SGLang makes a token for every /health, so it is not asked more often than needed."""


class Asking:
    """The probes of one server and their newest answers.

    ``generates``: its health is asked of /health_generate, because its /health does not generate.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.found = Found("nothing", None)
        self.health = Health.NONE
        self.generates = False
        self.attempts: tuple[Attempt, ...] = ()
        self.metrics: probe.Metrics | None = None
        self.tokens: Tokens | None = None
        self._health_at = 0.0
        self._failed_at = -1e9
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._asked_at: dict[str, float] = {}
        self._asked_of: ProcessId | None = None
        self._was_ready: bool | None = None

    @property
    def port(self) -> int:
        """Where it is asked: where its processes serve, else what hosts.yaml says."""
        return self.found.port or self.server.port

    @property
    def url(self) -> str:
        """The same with its address."""
        return probe.address(self.server, self.port)

    async def ask(
        self,
        client: httpx.AsyncClient,
        snapshot: Snapshot,
        told: Phase | None,
        wait_s: float,
        front_s: float,
        *,
        deep: bool,
    ) -> None:
        """Ask what is due, and wait so long for it at most (see :meth:`Eye.look`).

        ``told`` is the phase that its log tells.
        """
        just_ready = self._forget_old(told)
        if not self.found.alive:
            self.health = Health.NONE
            return
        listens = self.port in snapshot.listening
        if not listens or not answers_for(self.found, self.port, snapshot):
            self._forget()
            if snapshot.ports_known and not just_ready:  # the log is read after the ports
                self.health = Health.REFUSED
            return
        if self.health is Health.REFUSED and not self._health_at:
            self.health = Health.UNKNOWN  # nobody refused: it was a closed port, now it is open
        self._start("health", self._ask_health(client), HEALTH_EVERY_S if wait_s <= 0 else 0.0)
        self._start(
            "metrics", self._ask_metrics(client, snapshot), METRICS_EVERY_S if wait_s <= 0 else 0.0
        )
        if time.monotonic() - self._failed_at < JUST_NOW_S:
            wait_s = min(wait_s, SHORT_S)  # a token was waited for in vain up to now
        silent = self.health in (Health.TIMEOUT, Health.UNAVAILABLE) or (
            self.health is Health.UNKNOWN and self._health_at > 0
        )
        if deep or (wait_s <= 0 and told is Phase.READY and silent):
            every_s = 0.0 if deep else GENERATE_EVERY_S
            self._start("generate", self._ask_generate(client, snapshot), every_s)
        if wait_s > 0 and self._asking:
            pending = [t for name, t in self._asking.items() if name != "generate"]
            if pending:
                await _wait(pending, wait_s, min(front_s, wait_s))
            if "health" in self._asking and self.health is not Health.OK:
                self.health = Health.TIMEOUT  # no answer yet: hung, or busy with a long prefill

    def _forget_old(self, told: Phase | None) -> bool:
        """Forget answers of another process, and bad ones of before it said that it is ready.

        True where it has said so since the last look.
        """
        before, self._asked_of = self._asked_of, self.found.main.id if self.found.main else None
        was_ready, self._was_ready = self._was_ready, told is Phase.READY
        if not self.found.alive or (before and before not in {p.id for p in self.found.processes}):
            self._forget()
            self.attempts = ()
        just_ready = was_ready is False and told is Phase.READY
        if just_ready and self.health is not Health.OK:
            self._forget()
        return just_ready

    def _forget(self) -> None:
        """Nothing is known of its health, and it is asked at the next occasion."""
        self._cancel()
        self._asked_at.clear()
        self.health, self._health_at, self.metrics = Health.UNKNOWN, 0.0, None

    def _start(self, name: str, question: Coroutine[Any, Any, None], every_s: float) -> None:
        """Ask once more unless the last question is still open or was asked just now."""
        now = time.monotonic()
        if name in self._asking or now - self._asked_at.get(name, -1e9) < every_s:
            question.close()
            return
        self._asked_at[name] = now
        task = asyncio.ensure_future(question)
        self._asking[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self._asking.get(name) is task:
            del self._asking[name]
        if not task.cancelled():
            task.exception()  # a lost link is reported by the snapshot that follows

    def _cancel(self) -> None:
        for task in self._asking.values():
            task.cancel()
        self._asking.clear()

    async def _ask_health(self, client: httpx.AsyncClient) -> None:
        path = "/health_generate" if self.generates else "/health"
        self.health = await probe.health(client, self.url, path)
        self._health_at = time.monotonic()

    async def _ask_metrics(self, client: httpx.AsyncClient, snapshot: Snapshot) -> None:
        self.metrics = await probe.metrics(client, self.url)
        total = self.metrics.tokens_total if self.metrics else None
        if total is None:
            self.tokens = None
            return
        run_id = self.found.run.run_id if self.found.run else None
        known = self.tokens if self.tokens and self.tokens.run_id == run_id else None
        if known is None or known.total != total:
            self.tokens = Tokens(run_id, total, snapshot.time, moved=known is not None)

    async def _ask_generate(self, client: httpx.AsyncClient, snapshot: Snapshot) -> None:
        began, waited = snapshot.time, time.monotonic()
        answer = await probe.health(client, self.url, "/health_generate")
        attempt = Attempt(began, time.monotonic() - waited, answer)
        self.attempts = (*self.attempts, attempt)[-4:]
        if attempt.failed:
            self._failed_at = time.monotonic()
        if attempt.failed and self.health is Health.OK and self._health_at >= waited:
            # /health says 200 beside it: it is set not to generate and proves nothing here.
            self.generates, self.health = True, answer

    def hangs(self) -> bool:
        """Whether a generate probe is still without an answer, or the last one got none."""
        return "generate" in self._asking or bool(
            self.attempts and self.attempts[-1].answer is not Health.OK
        )

    async def second(self, client: httpx.AsyncClient, snapshot: Snapshot) -> None:
        """One more generate probe, beside an open one."""
        await self._ask_generate(client, snapshot)

    async def settle(self, timeout_s: float) -> None:
        """Wait for open generate probes."""
        open_ = [t for name, t in self._asking.items() if name == "generate"]
        if open_:
            await asyncio.wait(open_, timeout=timeout_s)

    def close(self) -> None:
        """End open probes."""
        self._cancel()


async def _wait(asked: Sequence[asyncio.Task[None]], wait_s: float, front_s: float) -> None:
    """Until all are answered, ``wait_s`` at most, or ``front_s`` where not one is."""
    done, left = await asyncio.wait(asked, timeout=front_s, return_when=asyncio.FIRST_COMPLETED)
    if done and left:
        await asyncio.wait(left, timeout=wait_s)


__all__ = ["Asking"]
