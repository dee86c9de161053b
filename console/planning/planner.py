"""Plans over a connected host: what both faces ask for, made in one place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from console.actions.clean import plan_clean
from console.actions.containers import need_image
from console.actions.journal import find, new_plan_id, plan_undo
from console.actions.kill import KillOptions, choose, outdated, plan_kill
from console.actions.launch import (
    WATCH_S,
    Start,
    plan_launch,
    start_again,
    start_container,
    start_process,
    start_unit,
)
from console.actions.plan import typed
from console.actions.relaunch import plan_relaunch
from console.actions.serving import mark
from console.actions.stop import plan_stop
from console.config import Config
from console.config.presets import Presets
from console.errors import AgentError, UsageError
from console.model import (
    Finding,
    Health,
    HostView,
    Plan,
    Process,
    ProcessId,
    Run,
    Server,
    StepResult,
    Zombie,
    ZombieKind,
)
from console.planning.ground import read_unit, survey
from console.planning.looking import (
    Looked,
    Seen,
    both,
    checkable,
    look,
    over_several,
    runs_already,
    see,
    timed,
)
from console.planning.secretstore import resolve
from console.planning.undoing import ACTIONS, plan_undo_serving
from console.preflight import check, from_argv
from console.remote import Remote
from console.runners.prepare import Ground
from console.runners.settings import Choice, merge
from console.watch.observe import Depth, Observer
from console.zombies.vetoes import owned

if TYPE_CHECKING:
    from console.planning.hostfacts import Asked


@dataclass(frozen=True, slots=True)
class Options:
    """How to serve: bounds in seconds, and whether to check first.

    ``watch_s`` is ``None`` where only the first second of life is looked at. ``stop_s`` bounds
    draining and the way from SIGTERM to SIGKILL; ``None`` goes by the server.
    """

    preflight: bool = True
    watch_s: float | None = WATCH_S
    stop_s: float | None = None


class Planner:
    """Makes plans for one host; changes nothing. ``by`` is the operator, for run records.

    Raises:
        AgentError: the host only shows what it can without an agent.
    """

    def __init__(self, remote: Remote, config: Config, presets: Presets, by: str) -> None:
        if remote.degraded:
            hint = "install python3 there, or set python: in hosts.yaml"
            raise AgentError(remote.degraded, place=remote.host.name, hint=hint)
        self.remote = remote
        self.config = config
        self.presets = presets
        self.by = by
        self.answer_s = 0.0
        """Seconds that the last plan waited for the server's answer alone."""

    @property
    def _host(self) -> str:
        return self.remote.host.name

    async def _ground(self, server: Server) -> Ground | None:
        """What a launch of it by ourselves stands on."""
        return await survey(self.remote, server) if server.runner.kind == "process" else None

    async def _prepare(
        self, server: Server, choice: Choice | None, options: Options, *, alone: bool
    ) -> tuple[Start, Seen, tuple[Finding, ...]]:
        """The launch, the server as it is, and what preflight says: asked for at the same time.

        Raises:
            ActionFailed: ``alone``, and it runs already.
        """
        from console.planning.hostfacts import Asked, environments_of  # noqa: PLC0415 - only launches need it

        checked = options.preflight and checkable(server)
        environments = asyncio.ensure_future(environments_of(self.remote, wanted=checked))
        environments.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            looked, ground = await both(look(self.remote, server), self._ground(server))
            if alone and looked.found.alive:
                raise runs_already(server, looked.found, self._host)
            start = await self.start(server, choice, looked.snapshot.time, ground)
            if not checked:
                began = time.monotonic()
                seen = await see(self.remote, server, looked)
                self.answer_s = time.monotonic() - began
                return start, seen, ()
            asked = Asked(environments, ground.versions if ground else None)
            checking = self._check(start, looked, asked)
            seen, (found, at) = await both(see(self.remote, server, looked), timed(checking))
            self.answer_s = time.monotonic() - at
            return start, seen, found
        finally:
            environments.cancel()

    async def start(
        self, server: Server, choice: Choice | None, now: float, ground: Ground | None = None
    ) -> Start:
        """A launch put together for the server's runner.

        Raises:
            UsageError: a preset, the runner or the entry does not allow it.
            ConfigError: a secret it names has no value here.
            ActionFailed: the host lacks the interpreter, the unit, the engine.
        """
        settings = merge(server, self.presets, choice)
        if len(server.hosts) > 1 and server.runner.kind != "systemd":
            raise over_several(server)
        if server.runner.kind == "docker":
            chosen = choice is not None and choice != Choice()
            start = start_container(
                server, settings, host=self._host, by=self.by, now=now, chosen=chosen
            )
            resolve(start.secrets)
            if server.runner.image is not None:
                await need_image(self.remote, server.runner.image, server.name)
            return start
        if server.runner.kind == "systemd":
            unit = await read_unit(self.remote, server)
            return start_unit(server, settings, unit, host=self._host, by=self.by, now=now)
        ground = ground or await survey(self.remote, server)
        start = start_process(server, settings, ground, host=self._host, by=self.by, now=now)
        resolve(start.secrets)  # one that has no value is said before anything is stopped
        return start

    async def _check(self, start: Start, looked: Looked, asked: Asked) -> tuple[Finding, ...]:
        """Own rules over the launch and the facts of its host; the engine is asked later."""
        from console.planning.hostfacts import Replaced, gather  # noqa: PLC0415 - only launches need it

        command = from_argv(start.argv, start.run.env, start.run.cwd)
        pids = frozenset(p.id.pid for p in looked.found.processes)
        facts = await gather(
            self.remote,
            command,
            looked.snapshot,
            replaced=Replaced(pids, start.run.server),
            servers=self.config.servers_on(self._host),
            runs=looked.runs,
            version=start.version,
            asked=asked,
        )
        return check(command, facts)

    async def launch(self, server: Server, choice: Choice | None, options: Options) -> Plan:
        """Preflight → launch → watch.

        Raises:
            ActionFailed: it runs already.
        """
        start, seen, found = await self._prepare(server, choice, options, alone=True)
        return plan_launch(
            server,
            start,
            host=self._host,
            now=seen.snapshot.time,
            findings=found,
            preflight=options.preflight and checkable(server),
            watch_s=options.watch_s,
        )

    async def stop(self, server: Server, options: Options) -> Plan:
        """Drain → end → clean → verify; without steps where it does not run."""
        seen = await see(self.remote, server, await look(self.remote, server))
        return self._stop(server, seen, options)

    def _stop(self, server: Server, seen: Seen, options: Options) -> Plan:
        return plan_stop(
            server,
            seen.found,
            seen.state,
            seen.snapshot,
            seen.runs,
            host=self.remote.host,
            bound_s=options.stop_s,
        )

    async def relaunch(self, server: Server, choice: Choice | None, options: Options) -> Plan:
        """Preflight → stop → clean → verify → launch → watch."""
        start, seen, found = await self._prepare(server, choice, options, alone=False)
        return plan_relaunch(
            server,
            self._stop(server, seen, options),
            start,
            before=seen.found.run,
            findings=found,
            preflight=options.preflight and checkable(server),
            watch_s=options.watch_s,
        )

    async def roll_back(self, server: Server, run: Run) -> Plan:
        """Stop what there is and start an earlier run again, exactly as it was.

        Raises:
            UsageError: a container has no earlier form to return to.
        """
        if not checkable(server):
            raise UsageError("a container keeps the flags it was made with", place=server.name)
        seen = await see(self.remote, server, await look(self.remote, server))
        unit = await read_unit(self.remote, server) if server.runner.kind == "systemd" else None
        now = seen.snapshot.time
        start = start_again(run, unit, host=self._host, by=self.by, now=now)
        stop = self._stop(server, seen, Options())
        return plan_relaunch(server, stop, start, before=seen.found.run, preflight=False)

    async def observe(self, *, deep: bool, generating: bool = False) -> HostView:
        """Two looks at the whole host; ``generating``: health means that a token came."""
        observer = Observer(self.remote, self.config.servers_on(self._host))
        for eye in observer.eyes.values():
            eye.generates = generating
        try:
            return await observer.twice(Depth.DEEP if deep else Depth.QUICK)
        finally:
            await observer.close()

    def kill_plan(
        self, view: HostView, kinds: Collection[ZombieKind] = (), named: Collection[str] = ()
    ) -> Plan:
        """A kill plan from a view."""
        assert view.snapshot is not None
        chosen = choose(view.zombies, kinds=kinds, named=named)
        plan = plan_kill(
            chosen.zombies,
            view.snapshot,
            view.runs,
            host=self.remote.host,
            servers={s.name: s for s in self.config.servers_on(self._host)},
            options=KillOptions(named=frozenset(named)),
        )
        strangers = any(zombie.kind is ZombieKind.FOREIGN for zombie in chosen.zombies)
        plan = replace(plan, action="kill-zombies")
        return typed(plan, self._host) if strangers else plan

    async def still_due(self, plan: Plan) -> str | None:
        """Why a kill plan is out of date, or nothing: the last look before it is carried out."""
        if plan.action != "kill-zombies" or not plan.steps:
            return None
        # Half a minute of probes is not repeated, but what is asked is whether a token comes.
        view = await self.observe(deep=False, generating=bool(_planned_hung(plan)))
        assert view.snapshot is not None
        return outdated(plan, (*view.zombies, *self._still_hung(plan, view)), view.snapshot)

    def _still_hung(self, plan: Plan, view: HostView) -> list[Zombie]:
        """Servers planned as hung that still answer nothing.

        The full proof takes half a minute; one answer is enough to refute it.
        """
        assert view.snapshot is not None
        silent = {state.pid for state in view.servers if state.health is not Health.OK}
        planned = _planned_hung(plan)
        return [
            _named(process, ZombieKind.HUNG, "no answer yet")
            for process in view.snapshot.processes
            if process.id.pid in planned & silent
        ]

    async def note_killed(self, plan: Plan, results: Sequence[StepResult]) -> None:
        """Write into the records of runs that a kill ended that it did, not a fault of theirs."""
        done = {r.step for r in results if r.outcome == "ok"}
        ended = {
            target.run_id
            for index, step in enumerate(plan.steps)
            if index in done and step.dangerous
            for target in step.targets
            if target.run_id is not None
        }
        for run_id in sorted(ended):
            await mark(self.remote, run_id, "killed")

    async def kill(self, processes: Sequence[ProcessId]) -> Plan:
        """A plan to end exactly these processes, whatever they are, by the operator's word.

        Raises:
            UsageError: one of them is gone or its number is somebody else's now.
        """
        snapshot = await self.remote.snapshot(full=True, artefacts=True)
        by_id = {p.id: p for p in snapshot.processes}
        marked: list[Zombie] = []
        for one in processes:
            process = by_id.get(one)
            if process is None:
                raise UsageError(f"process {one.pid} is gone", place=self._host, hint="look again")
            marked.append(_named(process, ZombieKind.FOREIGN, "named by the operator"))
        named = frozenset(str(one.pid) for one in processes)
        chosen = choose(marked, named=named, snapshot=snapshot)
        runs = await self.remote.runs()
        servers = {s.name: s for s in self.config.servers_on(self._host)}
        plan = plan_kill(
            marked,
            snapshot,
            runs,
            host=self.remote.host,
            servers=servers,
            options=KillOptions(named=named),
        )
        count = len(chosen.zombies)
        lines = [f"end {count} named process{'es' * (count != 1)}"]
        lines += [f"left alone: {zombie.pid}: {why}" for zombie, why in chosen.skipped]
        lines += [line for line in plan.summary if line.startswith("left alone")]
        plan = replace(plan, action="kill", summary=tuple(lines))
        ours = {run.run_id for run in runs}
        units, containers = owned(servers, runs)
        strangers = [
            one
            for one in (by_id[wanted] for wanted in processes)
            if one.run_id not in ours and one.unit not in units and one.container not in containers
        ]
        return typed(plan, self._host) if strangers else plan

    async def clean(self, paths: Collection[str] | None = None) -> Plan:
        """A plan to remove stale leftovers, all of them or those at the given paths."""
        view = await self.observe(deep=False)
        assert view.snapshot is not None
        stale = [
            z
            for z in view.zombies
            if z.kind is ZombieKind.LEFTOVER
            and z.killable
            and (paths is None or (z.resource and z.resource.path in paths))
        ]
        return Plan(
            id=new_plan_id("clean"),
            action="clean",
            host=self._host,
            steps=plan_clean(self._host, view.snapshot, stale),
            created_at=view.snapshot.time,
            summary=(f"{len(stale)} leftovers",),
        )

    async def undo(self, plan_id: str) -> Plan:
        """What undoes a plan."""
        record = await find(self.remote, plan_id)
        server = self.config.servers.get(record.plan.server or "")
        if server is None or record.plan.action not in ACTIONS:
            return plan_undo(record)
        return await plan_undo_serving(self.remote, server, record)


def _planned_hung(plan: Plan) -> set[int]:
    """The launchers that a kill plan takes for hung."""
    items = (item for step in plan.steps for item in step.params.get("zombies", ()))
    return {item["pid"] for item in items if item["kind"] == ZombieKind.HUNG.value}


def _named(process: Process, kind: ZombieKind, why: str) -> Zombie:
    """A process in the form that kill plans are made from."""
    return Zombie(
        id=str(process.id.pid),
        kind=kind,
        pid=process.id.pid,
        process=process.id,
        start_time=None,
        user=process.user,
        score=1.0,
        evidence=(why,),
        killable=True,
        title=process.title,
    )
