"""Follow a start until it is ready, has failed, or takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from console.actions.containers import container_ending
from console.errors import ActionFailed, ConfigError, HostError, Refused
from console.model import Health, Phase, Run, Server, ServerState, Snapshot
from console.phases import limit_s
from console.planning.secretstore import resolve
from console.remote import Remote, UnitStatus
from console.text import clean, mask
from console.watch import probe
from console.watch.eye import Eye, ending

TICK_S = 0.3
FAILED_GRACE_S = 5.0
"""A server that has logged its end but still runs gets so long to go down by itself."""
LOW_ACCEPT = 1.05
"""Accept length counts the bonus token: at 1.0 the target takes none of the draft's tokens."""
AFTER_START = frozenset({Phase.READY, Phase.DRAINING, Phase.STOPPED, Phase.FAILED})
"""Phases that are no part of a start: their time says nothing of how long one takes."""
FAILURE_CHARS = 200
"""Of a failure's root so much is kept with the run."""


@dataclass(frozen=True, slots=True)
class Watched:
    """How a start went. ``warnings`` are what an operator should know though it serves.

    ``outcome`` is ``None`` for a start that was not watched to its end. ``seconds`` is how long was
    watched; ``start_s`` how long the start took, from the launch to ready, as its run's record has
    it: ``None`` where nobody saw it become ready.
    """

    outcome: Literal["ready", "stopped", "failed", "stalled"] | None
    state: ServerState
    seconds: float
    detail: str = ""
    warnings: tuple[str, ...] = field(default=())
    start_s: float | None = None


class Watcher:
    """Watches one server on one host; ``tell`` is called with each new state.

    ``to_come`` is asked when nothing of it runs: whether somebody is about to start it.
    """

    def __init__(
        self,
        remote: Remote,
        server: Server,
        tell: Callable[[ServerState], None] | None = None,
        *,
        to_come: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._to_come = to_come
        self.remote = remote
        self.eye = Eye(server)
        self.server = server
        self._tell = tell or (lambda _state: None)
        self._client = probe.open_client(remote.http())
        self._runs: tuple[Run, ...] = ()
        self._runs_at = 0.0
        self._failed_at: float | None = None
        self._restarts: int | None = None
        self._ready_at: float | None = None
        self._looks = 0

    async def watch(self, timeout_s: float | None = None) -> Watched:
        """Until ready, ended, stalled, or the bound is reached.

        Raises:
            HostError: the link is lost; the server goes on, and so may another watch.
        """
        started = time.monotonic()
        while True:
            state, snapshot = await self.look()
            self._tell(state)
            ended = await self.ended(state, snapshot)
            elapsed = time.monotonic() - started
            if ended is not None:
                outcome, detail = ended
                return Watched(outcome, await self.final(state), elapsed, detail)
            if self.serves(state, snapshot):
                return Watched("ready", state, elapsed)
            if (why := self.stall(state, snapshot)) is not None:
                return Watched("stalled", state, elapsed, why)
            if timeout_s is not None and elapsed > timeout_s:
                return Watched("stalled", state, elapsed, f"not ready within {timeout_s:.0f} s")
            await asyncio.sleep(TICK_S)

    async def alive(self, seconds: float) -> Watched:
        """Until it has been seen alive for so long; ``failed`` when it ends before.

        The outcome is ``ready`` where it serves already, else ``None``: nothing is decided yet.

        Raises:
            HostError: the link is lost.
        """
        started = time.monotonic()
        while True:
            state, snapshot = await self.look()
            self._tell(state)
            elapsed = time.monotonic() - started
            if (ended := await self.ended(state, snapshot)) is not None:
                outcome, detail = ended
                return Watched(outcome, await self.final(state), elapsed, detail)
            if elapsed >= seconds:
                serves = state.phase is Phase.READY and state.health is Health.OK
                return Watched("ready" if serves else None, state, elapsed)
            await asyncio.sleep(TICK_S)

    def serves(self, state: ServerState, snapshot: Snapshot) -> bool:
        """Whether it is ready; when it became so is remembered for its run's record."""
        if state.phase is not Phase.READY or state.health is not Health.OK:
            return False
        self._ready_at = snapshot.time if self._looks > 1 else None
        return True

    async def look(self) -> tuple[ServerState, Snapshot]:
        """Its state now, and what it was seen in.

        Raises:
            HostError: the link is lost.
        """
        snapshot = await self.remote.snapshot()
        if time.monotonic() - self._runs_at > 2.0:
            self._runs = tuple(await self.remote.runs())
            self._runs_at = time.monotonic()
        self._looks += 1
        state = await self.eye.look(self.remote, self._client, snapshot, self._runs, wait_s=0.1)
        return state, snapshot

    async def ended(
        self, state: ServerState, snapshot: Snapshot
    ) -> tuple[Literal["failed", "stopped"], str] | None:
        """Whether it has come to an end, and how, in words."""
        if self.eye.found.alive:
            if state.phase is not Phase.FAILED:
                self._failed_at = None
                return None
            self._failed_at = self._failed_at or snapshot.time
            if snapshot.time - self._failed_at > FAILED_GRACE_S:
                if self.eye.remains is None:
                    return "failed", "it logged its end, but processes of it are still there"
                ends = f"specops kill-zombies {self.remote.host.name} clears that"
                return "failed", f"{self.eye.remains}: {ends}"
            return None
        unit = await self._unit()
        if unit is not None and self._unit_goes_on(unit):
            return None
        if self._to_come is not None and await self._to_come():
            return None
        run = self.eye.found.run
        if state.phase is Phase.STOPPED:
            if run is None:
                return "stopped", "no run of it"
            how = "failed, which was acknowledged" if run.acknowledged else "was stopped"
            return "stopped", f"run {run.run_id} {how}"
        return "failed", await self._how(run, unit)

    async def _unit(self) -> UnitStatus | None:
        name = self.server.runner.unit
        if name is None:
            return None
        return await self.remote.unit_status(name, user_unit=self.server.runner.user_unit)

    def _unit_goes_on(self, unit: UnitStatus) -> bool:
        """Whether systemd is still at it; a restart by itself counts as the failure it follows."""
        if self._restarts is None:
            self._restarts = unit.restarts
        return (
            unit.active in ("active", "activating", "reloading")
            and unit.sub != "auto-restart"
            and unit.restarts == self._restarts
        )

    async def _how(self, run: Run | None, unit: UnitStatus | None) -> str:
        container = self.server.runner.container
        if container is not None and (said := await container_ending(self.remote, container)):
            return said
        if unit is not None:
            return f"unit {unit.unit}: {unit.result} (status {unit.exit_status})"
        return ending(await self.remote.exit_status(run.run_id) if run is not None else None)

    async def final(self, state: ServerState) -> ServerState:
        """The state after the last words of the log have been read."""
        last, _ = await self.look()
        if last.phase is Phase.FAILED or state.phase is not Phase.FAILED:
            return last
        return state

    def stall(self, state: ServerState, snapshot: Snapshot) -> str | None:
        """Why its start takes too long, or nothing."""
        follower = self.eye.follower
        if follower is not None and follower.machine.steps:
            stall = follower.machine.stalled(snapshot.time, self.eye.learned)
            if stall is None:
                return None
            return f"{stall.phase.value} takes {stall.elapsed_s:.0f} s, at most {stall.limit_s:.0f}"
        run = self.eye.found.run
        bound = limit_s(Phase.SPAWN, self.eye.learned)
        if run is None or bound is None or state.health is Health.OK:
            return None
        waited = snapshot.time - run.launched_at
        return f"no word from it in {waited:.0f} s" if waited > bound + 60.0 else None

    async def confirm(self, watched: Watched) -> Watched:
        """After ready: one real completion, and whether the draft is any use; keep the times."""
        url = self.eye.url
        warnings: list[str] = []
        key = await self._key()
        try:
            await probe.complete(self._client, url, key=key)
        except HostError as error:
            warnings.append(f"ready, but {error.message}")
        accept = await probe.accept_length(self._client, url)
        if accept is not None and accept < LOW_ACCEPT:
            warnings.append(
                f"accept length {accept:.2f}: the target takes no token of the draft's; "
                "is it the draft for this model?"
            )
        kept = await self.remember(watched)
        state = replace(watched.state, accept_length=accept)
        return replace(kept, state=state, warnings=tuple(warnings))

    async def _key(self) -> str | None:
        value = self.server.args.get("api-key")
        if not isinstance(value, str) or not value.startswith("secret:"):
            return None
        name = value.removeprefix("secret:")
        try:
            return resolve([name])[name]
        except ConfigError:
            return None

    async def remember(self, watched: Watched) -> Watched:
        """Write into the run's record how it went, unless this session may not write.

        Returns it with what the record says of the start.
        """
        run = self.eye.found.run
        if run is not None and not self.remote.hello.read_only:
            run = next((r for r in await self.remote.runs() if r.run_id == run.run_id), run)
            if (kept := self._record(run, watched)) is not None:
                run = kept
                # A record that cannot be kept is no failure of the server.
                with contextlib.suppress(Refused, ActionFailed):
                    await self.remote.save_run(kept)
        return replace(watched, start_s=None if run is None else start_s(run))

    def _record(self, fresh: Run, watched: Watched) -> Run | None:
        """The record as it is to be; ``None`` where it stays as it is."""
        outcome = watched.outcome
        if fresh.outcome in ("stopped", "killed", outcome) or outcome == "stopped":
            return None  # the console that ended or started it has kept how
        took = tuple(
            (span.phase.value, round(span.seconds, 3))
            for span in watched.state.phases
            if span.seconds is not None and span.phase not in AFTER_START
        )
        told = any(span.phase is Phase.READY for span in watched.state.phases)
        if self._ready_at is not None:  # a log says nothing of the time before its first line
            spawn = self._ready_at - fresh.launched_at - sum(seconds for _, seconds in took)
            took = (("spawn", round(max(0.0, spawn), 3)), *took)
        if outcome == "ready" or told or fresh.served:
            took += (("ready", 0.0),)  # kept when its later end overwrites the outcome
        return replace(fresh, phases=took, outcome=outcome, failure=failure_of(watched))

    async def close(self) -> None:
        """End open probes; the connection is the caller's."""
        self.eye.close()
        await self._client.aclose()


def start_s(run: Run) -> float | None:
    """How long a start took from the launch to ready, s; ``None`` where it is not known."""
    if not run.served or not any(name == Phase.SPAWN.value for name, _ in run.phases):
        return None
    return sum(seconds for _, seconds in run.phases)


def failure_of(watched: Watched) -> str:
    """Why a start failed, in the one line that its run's record keeps; empty where it did not."""
    if watched.outcome not in ("failed", "stalled"):
        return ""
    said = watched.state.diagnosis
    if said is None or said.root is None:
        return clean(watched.detail, limit=FAILURE_CHARS)
    text = f"{said.root.type}: {said.root.message}".strip().partition("\n")[0]
    return mask(clean(text, limit=FAILURE_CHARS))
