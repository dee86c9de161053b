"""Plans over a connected host: what both faces ask for, made in one place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from console.actions.containers import need_image
from console.actions.journal import PlanRecord, find, plan_undo, to_resume
from console.actions.launch import (
    WATCH_S,
    Start,
    plan_launch,
    start_again,
    start_container,
    start_process,
    start_unit,
)
from console.actions.relaunch import plan_relaunch
from console.actions.stop import acknowledge, plan_stop
from console.config import Config
from console.config.presets import Presets
from console.errors import UsageError
from console.model import (
    Finding,
    Plan,
    Run,
    Server,
    StepKind,
)
from console.planning.ground import read_unit, survey
from console.planning.killing import Killing
from console.planning.later import refuse_later
from console.planning.looking import (
    Looked,
    Seen,
    both,
    checkable,
    look,
    runs_already,
    see,
    timed,
)
from console.planning.secretstore import resolve
from console.planning.several import Several, over_several, remotes_of
from console.planning.undoing import ACTIONS, plan_undo_serving
from console.preflight import check, from_argv
from console.remote import Remote
from console.runners.prepare import Ground, Node
from console.runners.settings import Choice, merge

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


class Planner(Killing):
    """Makes plans for one host, and for servers of which it is node 0; changes nothing.

    ``others`` are the connections to the other hosts of such servers, by name.

    Raises:
        AgentError: the host only shows what it can without an agent.
    """

    def __init__(
        self, remote: Remote, config: Config, presets: Presets, by: str,
        others: Mapping[str, Remote] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(remote, config)
        self.presets = presets
        self.by = by
        self.others = others or {}
        self.node: Node | None = None
        """Which node of the server over several hosts that is planned this host is."""
        self.version: str | None = None
        """SGLang's version there, once a launch was put together."""
        self.answer_s = 0.0
        """Seconds that the last plan waited for the server's answer alone."""

    @property
    def remotes(self) -> Mapping[str, Remote]:
        """All connections that it has, by host."""
        return {**self.others, self._host: self.remote}

    def _several(self, server: Server, *, some: bool = False) -> Several:
        """The planners of its nodes, by rank; ``some``: of those whose hosts are reached."""
        nodes = remotes_of(server, self.remotes, some=some)
        planners = [Planner(one, self.config, self.presets, self.by) for one in nodes]
        return Several(planners, server)

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
        if len(server.nodes) > 1 and (self.node is None or server.runner.kind == "docker"):
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
            return start_unit(
                server, settings, unit, host=self._host, by=self.by, now=now, node=self.node
            )
        ground = replace(ground or await survey(self.remote, server), node=self.node)
        self.version = ground.version
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
        if len(server.nodes) > 1:
            settings = merge(server, self.presets, choice)
            return await self._several(server).launch(settings, choice, options)
        return await self.launch_node(server, choice, options)

    async def launch_node(self, server: Server, choice: Choice | None, options: Options) -> Plan:
        """The launch of what runs on this host."""
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
        if len(server.nodes) > 1:
            return await self._several(server, some=True).stop(options)
        return await self.stop_node(server, options)

    async def stop_node(self, server: Server, options: Options) -> Plan:
        """The end of what runs on this host; of what has failed there, that it was seen."""
        seen = await see(self.remote, server, await look(self.remote, server))
        return acknowledge(self._stop(server, seen, options), seen.found, seen.state)

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
        if len(server.nodes) > 1:
            settings = merge(server, self.presets, choice)
            return await self._several(server).relaunch(settings, choice, options)
        return await self.relaunch_node(server, choice, options)

    async def relaunch_node(self, server: Server, choice: Choice | None, options: Options) -> Plan:
        """The same of what runs on this host."""
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
        if len(server.nodes) > 1:
            return await self._several(server).roll_back(run)
        return await self.roll_back_node(server, run)

    async def roll_back_node(self, server: Server, run: Run) -> Plan:
        """The same of what runs on this host."""
        seen = await see(self.remote, server, await look(self.remote, server))
        unit = await read_unit(self.remote, server) if server.runner.kind == "systemd" else None
        now = seen.snapshot.time
        run_id = self.node.run_id if self.node else None
        start = start_again(run, unit, host=self._host, by=self.by, now=now, run_id=run_id)
        stop = self._stop(server, seen, Options())
        return plan_relaunch(server, stop, start, before=seen.found.run, preflight=False)

    async def resume(self, plan_id: str) -> PlanRecord:
        """What is left of a plan.

        Raises:
            UsageError: nothing is.
            Refused: a later run has taken the place of its own.
        """
        record = to_resume(await find(self.remote, plan_id))
        server = self.config.servers.get(record.plan.server or "")
        if server is not None and record.plan.action in (*ACTIONS, "undo"):
            nodes = self._several(server).planners if len(server.nodes) > 1 else (self,)
            for node in nodes:
                await refuse_later(node.remote, server, record, await look(node.remote, server))
        return record

    async def undo(self, plan_id: str) -> Plan:
        """What undoes a plan.

        Raises:
            UsageError: nothing of it can be taken back, or it was already.
            Refused: a later run has taken the place of its own.
        """
        record = await find(self.remote, plan_id)
        server = self.config.servers.get(record.plan.server or "")
        if server is None or record.plan.action not in ACTIONS:
            return await self._still_there(plan_undo(record))
        if len(server.nodes) > 1:
            return await self._several(server).undo(record)
        return await plan_undo_serving(self.remote, server, record)

    async def _still_there(self, plan: Plan) -> Plan:
        """Without the signals to what has ended since."""
        if not any(step.kind is StepKind.SIGNAL for step in plan.steps):
            return plan
        processes = (await self.remote.snapshot(full=True)).processes
        living = [p for p in processes if p.state not in ("Z", "X")]
        ids, carried = {p.id for p in living}, {p.run_id for p in living if p.run_id}
        steps = tuple(
            step for step in plan.steps
            if step.kind is not StepKind.SIGNAL or not step.targets
            or any(t.process in ids or t.run_id in carried for t in step.targets)
        )  # fmt: skip
        gone = ("what it started has ended since",) if len(steps) < len(plan.steps) else ()
        return replace(plan, steps=steps, summary=(*plan.summary, *gone))
