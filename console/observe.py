"""One host looked at: processes, devices, servers with their phase and health, zombies."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

import httpx

from console import probe
from console.attribution import Found, find
from console.diagnosis import diagnose
from console.errors import ActionFailed
from console.follower import LogFollower, source_of
from console.model import (
    Diagnosis,
    Health,
    HostState,
    HostView,
    Phase,
    PhaseSpan,
    Run,
    Server,
    ServerState,
    Snapshot,
)
from console.observed import Kept, Tokens, load, save
from console.phases import Learned, learn
from console.remote import Cursor, ExitStatus, LogSource, Remote
from console.zombies import Attempt, Policy, Probe, classify
from console.zombies.stillness import Stillness

RUNS_EVERY_S = 5.0
ARTEFACTS_EVERY_S = 30.0
FULL_EVERY_S = 30.0
METRICS_EVERY_S = 2.0
GENERATE_EVERY_S = 20.0
"""A server that was ready and does not answer is asked for a token so often, for the verdict."""
HEALTH_EVERY_S = 10.0
"""SGLang makes a token for every /health, so it is not asked more often than needed."""


class Depth(IntEnum):
    """How hard to look.

    ``LIGHT``: what a screen needs every second, nothing is waited for. ``QUICK``: one answer within
    seconds: artefacts, short health probes. ``DEEP``: also whether servers still generate.
    """

    LIGHT = 0
    QUICK = 1
    DEEP = 2


class Eye:
    """What is remembered of one server between looks."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.found = Found("nothing", None)
        self.follower: LogFollower | None = None
        self.health = Health.NONE
        self.attempts: tuple[Attempt, ...] = ()
        self.metrics: probe.Metrics | None = None
        self.learned: Mapping[Phase, Learned] = {}
        self.diagnosis: Diagnosis | None = None
        self._diagnosed: tuple[LogSource, Cursor | None] | None = None
        self.tokens: Tokens | None = None
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._asked_at: dict[str, float] = {}

    async def look(
        self,
        remote: Remote,
        client: httpx.AsyncClient,
        snapshot: Snapshot,
        runs: Sequence[Run],
        *,
        wait_s: float,
        deep: bool = False,
    ) -> ServerState:
        """The server's state now. ``wait_s`` bounds how long unanswered probes are waited for."""
        self.found = find(self.server, runs, snapshot)
        own = [r for r in runs if r.server == self.server.name and r.phases]
        self.learned = learn([spans_of(r) for r in own])
        await self._read_log(remote, snapshot.time)
        await self._ask(client, snapshot, wait_s, deep)
        phase = self._phase()
        if phase is Phase.FAILED:
            await self._diagnose(remote)
        else:
            self.diagnosis = None
        return self._state(phase)

    async def _read_log(self, remote: Remote, now: float) -> None:
        source = source_of(self.server, self.found.run)
        run = self.found.run
        skip, after = (run.log_offset, run.log_cursor) if run else (0, "")
        old = self.follower
        if source is None:
            self.follower = None
        elif old is None or (old.source, old.skip, old.after) != (source, skip, after):
            self.follower = LogFollower(source, self.server.engine, skip, after)
        if self.follower is not None:
            with contextlib.suppress(ActionFailed):  # unreadable: its phase is unknown, not failed
                await self.follower.update(remote, now)

    # ---- probes

    async def _ask(
        self, client: httpx.AsyncClient, snapshot: Snapshot, wait_s: float, deep: bool
    ) -> None:
        if not self.found.alive:
            self.health, self.metrics, self.attempts = Health.NONE, None, ()
            self._cancel()
            return
        if self.server.port not in snapshot.listening:
            self.health, self.metrics = Health.REFUSED, None
            self._cancel()
            return
        self._start("health", self._ask_health(client), HEALTH_EVERY_S if wait_s <= 0 else 0.0)
        self._start(
            "metrics", self._ask_metrics(client, snapshot), METRICS_EVERY_S if wait_s <= 0 else 0.0
        )
        told = self.follower.phase if self.follower else None
        silent = self.health in (Health.TIMEOUT, Health.UNAVAILABLE, Health.UNKNOWN)
        if deep or (wait_s <= 0 and told is Phase.READY and silent and self._asked_at):
            every_s = 0.0 if deep else GENERATE_EVERY_S
            self._start("generate", self._ask_generate(client, snapshot), every_s)
        if wait_s > 0 and self._asking:
            pending = [t for name, t in self._asking.items() if name != "generate"]
            if pending:
                await asyncio.wait(pending, timeout=wait_s)
            if "health" in self._asking and self.health is not Health.OK:
                self.health = Health.TIMEOUT  # no answer yet: hung, or busy with a long prefill

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
        self.health = await probe.health(client, probe.address(self.server))

    async def _ask_metrics(self, client: httpx.AsyncClient, snapshot: Snapshot) -> None:
        self.metrics = await probe.metrics(client, probe.address(self.server))
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
        answer = await probe.health(client, probe.address(self.server), "/health_generate")
        attempt = Attempt(began, time.monotonic() - waited, answer)
        self.attempts = (*self.attempts, attempt)[-4:]

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

    # ---- verdict

    def _phase(self) -> Phase:
        told = self.follower.phase if self.follower else None
        run = self.found.run
        if self.found.alive:
            if self.health is Health.OK and told in (None, Phase.SPAWN, Phase.STOPPED):
                return Phase.READY  # started by hand with a log nobody names
            return told or Phase.SPAWN
        if run is None and not (self.follower and self.follower.machine.known):
            return Phase.STOPPED
        if run is not None and run.outcome in ("stopped", "killed", "exit 0"):
            return Phase.STOPPED
        if told in (Phase.DRAINING, Phase.STOPPED):
            return Phase.STOPPED
        return Phase.FAILED  # it ended, and nobody here ended it

    async def _diagnose(self, remote: Remote) -> None:
        """What the log says of the failure; read once per length of the log."""
        if self.follower is None or self.follower.missing:
            return
        key = (self.follower.source, self.follower.stand)
        if key == self._diagnosed:
            return
        try:
            out = await self.follower.written(remote)
        except ActionFailed:  # unreadable: why it failed is unknown
            return
        self._diagnosed = key
        engine = self.server.engine
        said = await asyncio.to_thread(diagnose, out, engine=engine)
        if said.category == "none":
            said = replace(said, summary=f"{await self._end(remote)}; its log tells no reason")
        self.diagnosis = said

    async def _end(self, remote: Remote) -> str:
        """How the processes ended, in words."""
        run, unit = self.found.run, self.server.runner.unit
        if unit is not None:
            seen = await remote.unit_status(unit, user_unit=self.server.runner.user_unit)
            return ending(ExitStatus(seen.exit_status, seen.result))
        status = await remote.exit_status(run.run_id) if run is not None else None
        return ending(status)

    def _state(self, phase: Phase) -> ServerState:
        found, counted = self.found, self.metrics or probe.Metrics()
        run = found.run
        own_id = found.main.run_id if found.main else None
        return ServerState(
            name=self.server.name,
            phase=phase,
            health=self.health,
            pid=found.main.id.pid if found.main else None,
            port=self.server.port,
            run_id=run.run_id if run else own_id,
            preset=label(run) if run else None,
            accept_length=counted.accept_length,
            throughput_tok_s=counted.throughput_tok_s,
            running_requests=counted.running,
            queued_requests=counted.queued,
            tokens_total=counted.tokens_total,
            phases=self.follower.machine.spans if self.follower else (),
            log_silent_s=self.follower.silent_s if self.follower else None,
            vantage="inside",
            model=(run.model if run else "") or counted.model or self.server.model,
            diagnosis=self.diagnosis if phase is Phase.FAILED else None,
        )

    def probe(self, now: float, still: Stillness) -> Probe:
        """What the zombie rules are told of this server."""
        return Probe(
            attempts=self.attempts,
            health=self.health,
            log_silent_s=self.follower.silent_s if self.follower else None,
            tokens_still_s=self.tokens.still_s(now) if self.tokens else None,
            metrics_answered=self.metrics is not None,
            running_requests=self.metrics.running if self.metrics else None,
            still_s=still.still_s([p.id for p in self.found.processes], now),
        )


def ending(status: ExitStatus | None) -> str:
    """An exit status in words."""
    if status is None or status.code is None:
        return "its processes are gone" if status is None or not status.result else status.result
    if status.code < 0:
        try:
            name = signal.Signals(-status.code).name
        except ValueError:
            name = f"signal {-status.code}"
        return f"killed by {name}"
    return f"exited with code {status.code}"


def label(run: Run) -> str | None:
    """The presets of a run in a word."""
    names = [n for n in (run.speculative, run.nccl) if n and n != "default"]
    return "+".join(names) or run.speculative or run.nccl


def spans_of(run: Run) -> list[PhaseSpan]:
    """The phases of a recorded run as spans, for learning how long they take."""
    known = {phase.value for phase in Phase}
    return [PhaseSpan(Phase(name), 0.0, s) for name, s in run.phases if name in known]


class Observer:
    """One host over time: what one look cannot show (stillness, phases, two samples) is kept."""

    def __init__(self, remote: Remote, servers: Sequence[Server]) -> None:
        self.remote = remote
        self.eyes = {server.name: Eye(server) for server in servers}
        self.servers = {server.name: server for server in servers}
        kept = load(remote.host.name, remote.hello.boot_id)
        self.stillness: Stillness = kept.stillness
        for name, eye in self.eyes.items():
            eye.tokens = kept.tokens.get(name)
        self.runs: tuple[Run, ...] = ()
        self._client = probe.open_client(remote.http())
        self._earlier: list[Snapshot] = []
        self._at: dict[str, float] = {}
        self._last: Snapshot | None = None

    async def observe(self, depth: Depth = Depth.QUICK) -> HostView:
        """Look once.

        Raises:
            HostError: the link is lost.
        """
        quick = depth is not Depth.LIGHT
        artefacts = self._due("artefacts", 0.0 if quick else ARTEFACTS_EVERY_S)
        full = self._due("full", 0.0 if quick else FULL_EVERY_S)
        snapshot = await self.remote.snapshot(full=full, artefacts=artefacts)
        if not artefacts and self._last is not None:
            snapshot = replace(snapshot, artefacts=self._last.artefacts)
        self._last = snapshot
        if self._due("runs", 0.0 if quick else RUNS_EVERY_S):
            self.runs = tuple(await self.remote.runs())
        self.stillness.feed(snapshot)
        looks = (
            eye.look(
                self.remote,
                self._client,
                snapshot,
                self.runs,
                wait_s=3.0 if quick else 0.0,
                deep=depth is Depth.DEEP,
            )
            for eye in self.eyes.values()
        )
        states = tuple(await asyncio.gather(*looks))
        zombies = classify(
            snapshot,
            previous=self._previous(snapshot),
            runs=self.runs,
            servers=self.servers,
            states=states,
            probes={
                name: eye.probe(snapshot.time, self.stillness) for name, eye in self.eyes.items()
            },
            policy=self.policy(),
        )
        return HostView(
            host=self.remote.host,
            state=HostState.OK,
            seen_at=time.time(),
            hello=self.remote.hello,
            snapshot=snapshot,
            servers=states,
            zombies=zombies,
            runs=self.runs,
        )

    def _due(self, name: str, every_s: float) -> bool:
        now = time.monotonic()
        if now - self._at.get(name, -1e9) < every_s:
            return False
        self._at[name] = now
        return True

    def _previous(self, snapshot: Snapshot) -> Snapshot | None:
        """The newest earlier snapshot that is old enough to be a second sample."""
        apart = Policy().samples_apart_s
        old = [s for s in self._earlier if snapshot.time - s.time >= apart]
        self._earlier = [*old[-1:], *(s for s in self._earlier if s not in old), snapshot]
        return old[-1] if old else None

    def policy(self) -> Policy:
        """The rules' thresholds with what starts of these servers took."""
        learned: dict[str, float] = {}
        for run in self.runs:
            if run.phases and run.server in self.servers:
                took = sum(seconds for _, seconds in run.phases)
                learned[run.server] = max(took, learned.get(run.server, 0.0))
        return Policy(learned_ready_s=learned)

    async def twice(self, depth: Depth) -> HostView:
        """Two looks far enough apart for verdicts that need two; with ``DEEP`` two probes each.

        Takes about 2.5 s, with a hung server under 32 s.
        """
        await self.observe(depth)
        await asyncio.sleep(Policy().samples_apart_s + 0.3)
        if depth is Depth.DEEP:
            await self._probe_again()
        view = await self.observe(Depth.QUICK)
        self.keep()
        return view

    async def _probe_again(self) -> None:
        """A second generate probe beside the first where that is still open."""
        waiting = [eye for eye in self.eyes.values() if eye.hangs()]
        if waiting:
            snapshot = await self.remote.snapshot()
            again = [eye.second(self._client, snapshot) for eye in waiting]
            await asyncio.gather(*again, *(eye.settle(probe.HEALTH_WAIT_S) for eye in waiting))

    def keep(self) -> None:
        """Keep on this machine what the next command could not see in its short look."""
        pids = {p.id.pid for eye in self.eyes.values() for p in eye.found.processes}
        tokens = {name: eye.tokens for name, eye in self.eyes.items() if eye.tokens is not None}
        kept = Kept(self.stillness, tokens)
        save(self.remote.host.name, self.remote.hello.boot_id, kept, pids)

    async def close(self) -> None:
        """End probes; the connection is the caller's."""
        for eye in self.eyes.values():
            eye.close()
        await self._client.aclose()
