"""One server looked at, again and again: its processes, phase, health, and why it failed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import httpx

from console.actions.containers import container_ending
from console.diagnosis import diagnose
from console.errors import ActionFailed
from console.logs.follower import LogFollower, source_of
from console.logs.several import Followers
from console.model import (
    Diagnosis,
    Health,
    Phase,
    PhaseSpan,
    Run,
    Server,
    ServerState,
    Snapshot,
)
from console.phases import Learned, learn, limit_s
from console.remote import Cursor, ExitStatus, FileStat, LogSource, Remote
from console.watch import probe
from console.watch.asking import Asking
from console.watch.attribution import Found, find
from console.zombies import Probe
from console.zombies.stillness import Stillness

ENDED_ON_PURPOSE = ("stopped", "killed", "exit 0")
"""Outcomes of a run after which nobody has to look at it."""
NEWS_S = 5.0
"""For so long after a failure was first read, more of its log is judged as it comes."""

SLOW_S = 0.1
DIAGNOSE_SHARE = 20
"""A log that is long to judge and goes on growing is judged for a twentieth of the time."""


class Eye(Asking):
    """What is remembered of one server between looks: its answers, its log, why it failed."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.rank: int | None = None
        self.follower: LogFollower | None = None
        self.learned: Mapping[Phase, Learned] = {}
        self.diagnosis: Diagnosis | None = None
        self.remains: str | None = None
        """How the launcher died and what is left, where anything has outlived it."""
        self._diagnosed: tuple[LogSource, Cursor | None] | None = None
        self._diagnose_at = 0.0
        self._told: tuple[int, Phase | None] = (0, None)
        self._told_at = 0.0

    async def look(
        self,
        remote: Remote,
        client: httpx.AsyncClient,
        snapshot: Snapshot,
        runs: Sequence[Run],
        *,
        wait_s: float,
        front_s: float | None = None,
        deep: bool = False,
    ) -> ServerState:
        """The server's state now. ``wait_s`` bounds how long unanswered probes are waited for.

        ``front_s``: the same where none is answered at all, not even for the counters.
        """
        self.found = find(self.server, runs, snapshot)
        self.rank = self.server.rank_on(remote.host.name)
        own = [r for r in runs if r.server == self.server.name and r.phases]
        self.learned = learn([spans_of(r) for r in own])
        await self._read_log(remote, snapshot.time)
        told = self.follower.phase if self.follower else None
        await self.ask(client, snapshot, told, wait_s, front_s or wait_s, deep=deep)
        phase = self._phase()
        orphaned = phase is Phase.FAILED and self.found.orphaned
        self.remains = await self._remains(remote) if orphaned else None
        if phase is Phase.FAILED:
            await self._diagnose(remote)
        else:
            self.diagnosis = None
        return self._state(phase, snapshot.time)

    async def _read_log(self, remote: Remote, now: float) -> None:
        source = source_of(self.server, self.found.run)
        run = self.found.run
        skip, after = (run.log_offset, run.log_cursor) if run else (0, "")
        old = self.follower
        if source is None:
            self.follower = None
        elif old is None or (old.source, old.skip, old.after) != (source, skip, after):
            kind = Followers if source.also else LogFollower
            self.follower = kind(source, self.server.engine, skip, after)
        if self.follower is not None:
            with contextlib.suppress(ActionFailed):  # unreadable: its phase is unknown, not failed
                await self.follower.update(remote, now)

    @property
    def log_path(self) -> str | None:
        """The file that it reads, where it reads one."""
        source = self.follower.source if self.follower else None
        return source.path if source and not source.also else None

    @property
    def starting(self) -> bool:
        """Whether a start is under way: then its log is read often, whatever that takes."""
        told = self.follower.phase if self.follower else None
        return self.found.alive and told not in (Phase.READY, Phase.DRAINING, Phase.STOPPED)

    async def hear(self, remote: Remote, info: FileStat | None, now: float) -> bool:
        """Read on if the log has grown; True when a failure in it is new, or is just being told.

        ``info``: its file, where it is one; a journal or a container's log has to be asked.
        """
        follower = self.follower
        if follower is None or follower.stand is None:
            return False
        if info is not None and info.size_bytes == follower.stand.offset:
            return False
        with contextlib.suppress(ActionFailed):
            await follower.update(remote, now)
        return self._phase() is Phase.FAILED and self._news(follower)

    def _news(self, follower: LogFollower) -> bool:
        """Whether the log has told of its present state only just now."""
        told = (follower.machine.starts, follower.phase)
        if told != self._told:
            self._told, self._told_at = told, time.monotonic()
        return time.monotonic() - self._told_at < NEWS_S

    # ---- verdict

    def _phase(self) -> Phase:
        told = self.follower.phase if self.follower else None
        run = self.found.run
        if self.found.alive:
            if self.health is Health.OK and told in (None, Phase.SPAWN, Phase.STOPPED):
                return Phase.READY  # started by hand with a log nobody names
            if self.rank and told is Phase.SCHEDULER_READY and self.health is Health.OK:
                return Phase.READY  # its log ends there, and a stand-in answers for it
            if self.found.orphaned and self.health is not Health.OK:
                meant = run is not None and run.outcome in ENDED_ON_PURPOSE
                return Phase.DRAINING if meant else Phase.FAILED
            return told or Phase.SPAWN
        if run is None and not (self.follower and self.follower.machine.known):
            return Phase.STOPPED
        if run is not None and (run.acknowledged or run.outcome in ENDED_ON_PURPOSE):
            return Phase.STOPPED
        if told in (Phase.DRAINING, Phase.STOPPED):
            return Phase.STOPPED
        return Phase.FAILED  # it ended, and nobody here ended it

    async def _diagnose(self, remote: Remote) -> None:
        """What the log says of the failure; read once per length of the log."""
        if self.follower is None or self.follower.missing:
            return
        key = (self.follower.source, self.follower.stand)
        early = time.monotonic() < self._diagnose_at and not self._news(self.follower)
        if key == self._diagnosed or early:
            return
        try:
            out = await self.follower.written(remote)
        except ActionFailed:  # unreadable: why it failed is unknown
            return
        self._diagnosed = key
        engine = self.server.engine
        began = time.monotonic()
        said = await asyncio.to_thread(diagnose, out, engine=engine)
        took = time.monotonic() - began
        self._diagnose_at = began + took * DIAGNOSE_SHARE if took > SLOW_S else 0.0
        if said.category == "none":
            how = self.remains or await self._end(remote)
            said = replace(said, summary=f"{how}; its log tells no reason")
        self.diagnosis = said

    async def _remains(self, remote: Remote) -> str:
        """How the launcher died, and what is left of its server; asked once."""
        if self.remains is not None and self.found.remains in self.remains:
            return self.remains
        run = self.found.run
        status = await remote.exit_status(run.run_id) if run is not None else None
        how = "is gone" if status is None or status.code is None else ending(status)
        how = f"was {how}" if how.startswith("killed") else how
        return f"its launcher {how}; {self.found.remains}"

    async def _end(self, remote: Remote) -> str:
        """How the processes ended, in words."""
        run, unit = self.found.run, self.server.runner.unit
        container = self.server.runner.container
        if container is not None and (said := await container_ending(remote, container)):
            return said
        if unit is not None:
            seen = await remote.unit_status(unit, user_unit=self.server.runner.user_unit)
            return ending(ExitStatus(seen.exit_status, seen.result))
        status = await remote.exit_status(run.run_id) if run is not None else None
        return ending(status)

    def _stalled(self, phase: Phase, now: float) -> str | None:
        """Why a start takes too long, by what earlier starts took."""
        if not self.found.alive or (self.rank and phase is Phase.READY):
            return None
        run = self.found.run
        if phase is Phase.SPAWN and run is not None and not (self.follower and self.follower.phase):
            waited, bound = now - run.launched_at, limit_s(Phase.SPAWN, self.learned) or 0.0
            silent = self.health is not Health.OK and waited > bound
            return f"no word from it in {waited:.0f} s, at most {bound:.0f}" if silent else None
        if self.follower is None or self.follower.phase is not phase:
            return None
        stall = self.follower.machine.stalled(now, self.learned)
        if stall is None:
            return None
        return f"{stall.phase.value} takes {stall.elapsed_s:.0f} s, at most {stall.limit_s:.0f}"

    def _state(self, phase: Phase, now: float) -> ServerState:
        found, counted = self.found, self.metrics or probe.Metrics()
        run = found.run
        own_id = found.main.run_id if found.main else None
        return ServerState(
            name=self.server.name,
            phase=phase,
            health=self.health,
            pid=found.main.id.pid if found.main and self.remains is None else None,
            port=self.port,
            note=self.remains or note(self.server, found),
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
            stalled=self._stalled(phase, now),
            elapsed_s=self.follower.machine.elapsed_s(now)
            if found.alive and self.follower and self.follower.phase is phase
            else None,
            rank=self.rank,
        )

    def probe(self, now: float, still: Stillness) -> Probe:
        """What the zombie rules are told of this server."""
        return Probe(
            attempts=self.attempts,
            health=self.health,
            log_silent_s=self.follower.silent_s if self.follower else None,
            tokens_still_s=self.tokens.still_s(now) if self.tokens else None,
            tokens_watched_s=max(0.0, now - self.tokens.since) if self.tokens else None,
            metrics_answered=self.metrics is not None,
            running_requests=self.metrics.running if self.metrics else None,
            still_s=still.still_s([p.id for p in self.found.processes], now),
        )


def note(server: Server, found: Found) -> str | None:
    """What an operator must know of the processes that stand for a server, though they serve."""
    main = found.main
    if main is None:
        return None
    if found.port is not None and found.port != server.port:
        return f"runs on {found.port}, hosts.yaml says {server.port}"
    if found.run is None and found.how in ("port", "argv"):
        return f"not launched by specops: pid {main.id.pid} of {main.user}"
    return None


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
