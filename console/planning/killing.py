"""Plans to end processes and to remove leftovers; the last look before they are carried out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from console.actions.clean import plan_clean
from console.actions.journal import new_plan_id
from console.actions.kill import KillOptions, choose, outdated, plan_kill
from console.actions.plan import typed
from console.actions.serving import mark
from console.config import Config
from console.errors import AgentError, UsageError
from console.model import (
    Health,
    HostView,
    Plan,
    Process,
    ProcessId,
    StepResult,
    Zombie,
    ZombieKind,
)
from console.remote import Remote
from console.watch.observe import Depth, Observer
from console.zombies.vetoes import owned


class Killing:
    """Makes such plans for one host; changes nothing.

    Raises:
        AgentError: the host only shows what it can without an agent.
    """

    def __init__(self, remote: Remote, config: Config) -> None:
        if remote.degraded:
            hint = "install python3 there, or set python: in hosts.yaml"
            raise AgentError(remote.degraded, place=remote.host.name, hint=hint)
        self.remote = remote
        self.config = config

    @property
    def _host(self) -> str:
        return self.remote.host.name

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
        signalled = {
            target.process
            for index in done
            if plan.steps[index].dangerous
            for target in plan.steps[index].targets
        }
        for run_id in sorted(ended):
            await mark(self.remote, run_id, "killed", signalled)

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
