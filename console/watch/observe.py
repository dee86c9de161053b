"""One host looked at: processes, devices, servers with their phase and health, zombies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

from console.actions.pending import open_plans
from console.model import HostState, HostView, OpenPlan, Run, Server, Snapshot
from console.remote import Remote
from console.watch import probe
from console.watch.attribution import unlisted
from console.watch.eye import Eye
from console.watch.observed import Kept, load, save
from console.zombies import Policy, classify
from console.zombies.stillness import Stillness

RUNS_EVERY_S = 5.0
ARTEFACTS_EVERY_S = 30.0
FULL_EVERY_S = 30.0


class Depth(IntEnum):
    """How hard to look.

    ``LIGHT``: what a screen needs every second, nothing is waited for. ``QUICK``: one answer within
    seconds: artefacts, short health probes. ``DEEP``: also whether servers still generate.
    """

    LIGHT = 0
    QUICK = 1
    DEEP = 2


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
        self.unfinished: tuple[OpenPlan, ...] = ()
        self._client = probe.open_client(remote.http())
        self._earlier: list[Snapshot] = []
        self._at: dict[str, float] = {}
        self._strange: set[str] = set()
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
        self._last, self._at["look"] = snapshot, time.monotonic()
        if self.remote.degraded:
            return self._view(HostState.NO_AGENT, snapshot, error=self.remote.degraded)
        if self._due("runs", 0.0 if quick or self._new_run(snapshot) else RUNS_EVERY_S):
            self.runs = tuple(await self.remote.runs())
            self.unfinished = await open_plans(self.remote, self.runs, snapshot.processes)
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
        view = replace(
            self._view(HostState.OK, snapshot),
            servers=states,
            zombies=zombies,
            runs=self.runs,
            unfinished=self.unfinished,
        )
        return replace(view, unlisted=tuple(process.id.pid for process in unlisted(view)))

    async def hear(self) -> bool:
        """Read what logs have grown by; True where a server has failed in it just now.

        Raises:
            HostError: the link is lost.
        """
        eyes = {eye.log_path: eye for eye in self.eyes.values() if eye.log_path}
        asked = [eye for eye in self.eyes.values() if not eye.log_path and eye.starting]
        if not (eyes or asked) or self._last is None or self.remote.degraded:
            return False
        now = self._last.time + time.monotonic() - self._at["look"]
        failed = [
            await eyes[info.path].hear(self.remote, info, now)
            for info in (await self.remote.stat(list(eyes)) if eyes else ())
        ]
        failed += [await eye.hear(self.remote, None, now) for eye in asked]
        return any(failed)

    def _view(self, state: HostState, snapshot: Snapshot, error: str = "") -> HostView:
        """What a sample alone shows: no more is known where no agent can run."""
        return HostView(
            host=self.remote.host,
            state=state,
            error=error,
            seen_at=time.time(),
            hello=self.remote.hello,
            snapshot=snapshot,
        )

    def anew(self) -> None:
        """Somebody asks, or something was changed: the next look reads everything."""
        for name in ("runs", "artefacts", "full"):
            self._at.pop(name, None)

    def _new_run(self, snapshot: Snapshot) -> bool:
        """Whether a process is of a run that nothing is known of: it was launched just now.

        Asked once for each run: its record may be in another state folder.
        """
        running = {process.run_id for process in snapshot.processes if process.run_id}
        strange = running - {run.run_id for run in self.runs}
        before, self._strange = self._strange, strange
        return not strange <= before

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
