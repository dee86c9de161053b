"""What one host shows now: its processes and devices, its servers, its zombies.

An :class:`Observer` belongs to one connection and remembers what a single look cannot know: how far
each log was read, since when nothing moved, which probes went unanswered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from console.attribution import Found, find
from console.config import Config
from console.errors import HostError, SpecopsError
from console.logwatch import LogWatch
from console.model import (
    Health,
    HostState,
    HostView,
    Phase,
    Run,
    Server,
    ServerState,
    Snapshot,
)
from console.remote import LogSource, Remote
from console.zombies import Attempt, Policy, Probe, Stillness, classify

if TYPE_CHECKING:
    import httpx

    from console.probe import Metrics

GENERATE_WAIT_S = 13.5
"""Wait of one /health_generate probe: two of them span the 25 s that the policy asks for and stay
within the 35 s that ``specops zombies`` may take."""
QUICK_WAIT_S = 4.0
"""Wait for /health of a single look; a server that needs longer is shown as ``timeout``."""
ATTEMPTS_KEPT = 6


@dataclass(slots=True)
class ServerWatch:
    """What is remembered of one server between looks."""

    log: LogWatch = field(default_factory=LogWatch)
    health: Health = Health.NONE
    metrics: Metrics | None = None
    attempts: list[Attempt] = field(default_factory=list)
    tokens: tuple[float, float] | None = None
    """The last count of generated tokens and since when it stands."""
    identity: object = None
    """The process that the memory is about; another one starts afresh."""


class Observer:
    """Looks at one host, again and again."""

    def __init__(self, remote: Remote, config: Config, *, policy: Policy | None = None) -> None:
        self.remote = remote
        self.config = config
        self.policy = policy or Policy()
        self.servers = {s.name: s for s in config.servers_on(remote.host.name)}
        self._watches: dict[str, ServerWatch] = {}
        self._stillness = Stillness()
        self._earlier: list[Snapshot] = []
        self._client: httpx.AsyncClient | None = None

    async def look(
        self,
        *,
        full: bool = False,
        artefacts: bool = False,
        health_wait_s: float | None = QUICK_WAIT_S,
        generate: bool = False,
    ) -> HostView:
        """One view of the host.

        ``health_wait_s`` bounds the health request of each server; ``None`` asks nothing and shows
        what is remembered. ``generate`` sends the probes that tell a hung server from a busy one;
        it takes up to twice ``GENERATE_WAIT_S`` where a server does not answer.

        Raises:
            HostError: the link to the host is lost.
        """
        snapshot = await self.remote.snapshot(full=full, artefacts=artefacts)
        runs = await self.remote.runs()
        self._stillness.feed(snapshot)
        found = {name: find(server, runs, snapshot) for name, server in self.servers.items()}
        await self._ask_all(found, snapshot, health_wait_s, generate)
        states = await asyncio.gather(
            *(self._state(self.servers[name], one, snapshot) for name, one in found.items())
        )
        if generate and any(watch.attempts for watch in self._watches.values()):
            # The probes took their time; judge what is there now, not what was there before them.
            snapshot = await self.remote.snapshot(full=False, artefacts=artefacts)
            self._stillness.feed(snapshot)
        zombies = classify(
            snapshot,
            previous=self._previous(snapshot),
            runs=runs,
            servers=self.servers,
            states=states,
            probes=self._probes(found, snapshot),
            policy=self.policy,
        )
        self._remember(snapshot)
        return HostView(
            host=self.remote.host,
            state=HostState.OK,
            seen_at=time.time(),
            hello=self.remote.hello,
            snapshot=snapshot,
            servers=tuple(states),
            zombies=zombies,
            runs=tuple(runs),
        )

    # ---- asking

    async def _ask_all(
        self, found: dict[str, Found], snapshot: Snapshot, wait_s: float | None, generate: bool
    ) -> None:
        if wait_s is None:
            return
        alive = [name for name, one in found.items() if one.alive]
        for name in found.keys() - set(alive):
            watch = self._watch(name, None)
            watch.health, watch.metrics, watch.attempts = Health.NONE, None, []
        async with asyncio.TaskGroup() as group:
            for name in alive:
                main = found[name].main
                watch = self._watch(name, main and main.id)
                group.create_task(self._ask(self.servers[name], watch, snapshot, wait_s, generate))

    async def _ask(
        self, server: Server, watch: ServerWatch, snapshot: Snapshot, wait_s: float, generate: bool
    ) -> None:
        from console import probe  # noqa: PLC0415 - httpx costs a fifth of a second

        client, url = self._http(), probe.address(server)
        watch.health = await probe.health(client, url, wait_s=wait_s)
        watch.metrics = None
        if watch.health is not Health.REFUSED:
            watch.metrics = await probe.metrics(client, url)
            self._count_tokens(watch, snapshot.time)
        if generate and watch.health not in (Health.OK, Health.REFUSED):
            begun = time.monotonic()
            for _ in range(self.policy.hung_probes):
                at = snapshot.time + time.monotonic() - begun
                started = time.monotonic()
                answer = await probe.health(client, url, "/health_generate", wait_s=GENERATE_WAIT_S)
                waited = time.monotonic() - started
                watch.attempts = [*watch.attempts, Attempt(at, waited, answer)][-ATTEMPTS_KEPT:]
                if answer is Health.OK:
                    watch.health, watch.attempts = Health.OK, []
                    return
                if answer is Health.UNAVAILABLE:
                    await asyncio.sleep(max(0.0, GENERATE_WAIT_S - waited))
        elif watch.health is Health.OK:
            watch.attempts = []

    def _http(self) -> httpx.AsyncClient:
        from console import probe  # noqa: PLC0415 - see above

        if self._client is None:
            self._client = probe.open_client(self.remote.http())
        return self._client

    def _count_tokens(self, watch: ServerWatch, now: float) -> None:
        count = watch.metrics.tokens_total if watch.metrics else None
        if count is None:
            return
        if watch.tokens is None or watch.tokens[0] != count:
            watch.tokens = (count, now)

    # ---- judging

    async def _state(self, server: Server, found: Found, snapshot: Snapshot) -> ServerState:
        run = found.run
        watch = self._watch(server.name, found.main and found.main.id)
        source = log_source(server, run)
        if source is not None:
            await watch.log.read(self.remote, source, engine(server, run), snapshot.time)
        phase = _phase(watch, found)
        metrics = watch.metrics
        failed = phase is Phase.FAILED and source is not None
        return ServerState(
            name=server.name,
            phase=phase,
            health=watch.health if found.alive else Health.NONE,
            pid=found.main.id.pid if found.main else None,
            port=run.port if run and found.alive else server.port,
            run_id=run.run_id if run else None,
            preset=(run.speculative if run else None) or server.speculative,
            accept_length=metrics.accept_length if metrics else None,
            throughput_tok_s=metrics.throughput_tok_s if metrics else None,
            running_requests=metrics.running if metrics else None,
            queued_requests=metrics.queued if metrics else None,
            tokens_total=metrics.tokens_total if metrics else None,
            phases=watch.log.spans,
            log_silent_s=watch.log.silent_s(snapshot.time) if found.alive else None,
            model=run.model if run else server.model,
            diagnosis=await watch.log.diagnosis(self.remote) if failed else None,
        )

    def _probes(self, found: dict[str, Found], snapshot: Snapshot) -> dict[str, Probe]:
        out: dict[str, Probe] = {}
        for name, one in found.items():
            if not one.alive:
                continue
            watch = self._watch(name, one.main and one.main.id)
            since = watch.tokens[1] if watch.tokens else None
            out[name] = Probe(
                attempts=tuple(watch.attempts),
                health=watch.health,
                log_silent_s=watch.log.silent_s(snapshot.time),
                tokens_still_s=None if since is None else snapshot.time - since,
                metrics_answered=watch.metrics is not None,
                running_requests=watch.metrics.running if watch.metrics else None,
                still_s=self._stillness.still_s([p.id for p in one.processes], snapshot.time),
            )
        return out

    # ---- remembering

    def _watch(self, name: str, identity: object) -> ServerWatch:
        watch = self._watches.get(name)
        if watch is None or (identity is not None and watch.identity not in (None, identity)):
            watch = self._watches[name] = ServerWatch()
        if identity is not None:
            watch.identity = identity
        return watch

    def _previous(self, snapshot: Snapshot) -> Snapshot | None:
        """The newest earlier look that is old enough for a verdict that needs two."""
        apart = self.policy.samples_apart_s
        old = [s for s in self._earlier if snapshot.time - s.time >= apart]
        return old[-1] if old else (self._earlier[-1] if self._earlier else None)

    def _remember(self, snapshot: Snapshot) -> None:
        self._earlier = [*self._earlier, snapshot][-8:]


def _phase(watch: ServerWatch, found: Found) -> Phase:
    seen = watch.log.phase
    if found.alive:
        if seen in (Phase.STOPPED, Phase.SPAWN) and watch.health is Health.OK:
            return Phase.READY  # its log cannot be read, or says nothing of its start
        return Phase.SPAWN if seen is Phase.STOPPED else seen
    run = found.run
    if run is None or run.outcome in ("stopped", "killed", "replaced"):
        return Phase.STOPPED
    return Phase.STOPPED if seen is Phase.STOPPED else Phase.FAILED


def engine(server: Server, run: Run | None) -> str:
    """The engine whose log lines to expect."""
    return run.engine if run else server.engine


def log_source(server: Server, run: Run | None) -> LogSource | None:
    """Where a server's log is: its run's record says, else the configuration; ``None``: unknown."""
    if run is not None and run.log:
        return LogSource(path=run.log)
    if server.runner.kind == "systemd":
        return LogSource(unit=server.runner.unit)
    if server.runner.kind == "docker":
        return LogSource(container=server.runner.container)
    if server.log and "{" not in server.log:
        return LogSource(path=server.log)
    return None


async def settle(observer: Observer, *, deadline_s: float, generate: bool = True) -> HostView:
    """Look until no verdict waits for another sample, at most ``deadline_s``.

    The first look is complete (artefacts, every process read); two looks lie at least
    ``samples_apart_s`` apart.

    Raises:
        HostError: the link to the host is lost.
    """
    started = time.monotonic()
    await observer.look(full=True, health_wait_s=None)
    await asyncio.sleep(observer.policy.samples_apart_s + 0.1)
    while True:
        view = await observer.look(full=True, artefacts=True, generate=generate)
        left = deadline_s - (time.monotonic() - started)
        if left <= 0 or not waiting(view):
            return view
        await asyncio.sleep(min(5.0, left))


def waiting(view: HostView) -> bool:
    """Whether a verdict of this view may become certain by looking longer."""
    words = ("watched for", "probes over", "seen in two", "needs two")
    return any(
        zombie.why_not and any(word in zombie.why_not for word in words) for zombie in view.zombies
    )


def lost(view: HostView, error: SpecopsError, state: HostState) -> HostView:
    """The last view of a host that cannot be reached now."""
    return replace(view, state=state, error=str(error))


async def look_once(remote: Remote, config: Config, *, quick: bool = False) -> HostView:
    """A single view for the command line: enough for ``status``; ``quick`` asks no server."""
    observer = Observer(remote, config)
    try:
        return await observer.look(full=True, health_wait_s=None if quick else QUICK_WAIT_S)
    except ExceptionGroup as group:
        raise _host_error(group) from group


def _host_error(group: ExceptionGroup) -> Exception:
    found: Sequence[Exception] = group.exceptions
    return next((e for e in found if isinstance(e, HostError)), found[0])
