"""What the console can do to its hosts: plans, their execution, logs, commands that look."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.actions.journal import PlanRecord
from console.actions.launched import starts
from console.actions.serving import Serving
from console.config import Config
from console.config.presets import Presets, read_folder
from console.errors import ActionFailed, HostError, Refused, UsageError
from console.logs.several import parts_of, tail_all
from console.model import (
    Finding,
    Plan,
    Preset,
    Server,
    ServerState,
    StepKind,
    StepResult,
    ZombieKind,
)
from console.planning.measuring import Load, each_level, history_path, keep, running
from console.planning.planner import Options, Planner
from console.planning.present import present
from console.planning.resetting import plan_gpu_reset
from console.remote import Cursor, LogChunk, LogSource, Remote
from console.runners.settings import Choice
from console.screens.ports import Output
from console.watch.fleet import Fleet

if TYPE_CHECKING:
    from console.bench import Level

COMMAND_S = 60.0
RECONNECT_S = 2.0
LOOKING = frozenset(
    {"status", "zombies", "preflight", "logs", "diagnose", "runs", "presets", "config", "doctor",
     "report", "adopt"}
)  # fmt: skip
"""Commands that may be typed after ``:`` as they are; what changes a host goes through a dialog."""
CHANGING = frozenset({"save", "init", "--purge", "-f", "--follow"})
"""Subcommands and options of them that would change something, or never end."""


class Operations:
    """Implements :class:`console.screens.ports.ActionsPort` over the fleet's connections."""

    def __init__(
        self,
        fleet: Fleet,
        config: Config,
        presets: Presets,
        *,
        audit: AuditLog | None = None,
        say: Callable[[str], None] = lambda _line: None,
        tell: Callable[[ServerState], None] = lambda _state: None,
    ) -> None:
        self.fleet = fleet
        self.config = config
        self.presets = presets
        self.audit_log = audit or AuditLog()
        self.say = say
        self.tell = tell
        self._resumed: dict[str, PlanRecord] = {}

    async def _planner(self, host: str, also: Preset | None = None) -> Planner:
        """With the presets as their files are now: one may have been saved a moment ago.

        ``also`` stands in place of a saved preset of its name.
        """
        remote = self.fleet.remote(host)
        presets = await asyncio.to_thread(read_folder, self.presets.folder)
        if also is not None:
            known = {**presets.by_key, (also.kind, also.name): also}
            presets = replace(presets, by_key=known)
        others = self.fleet.remotes
        return Planner(remote, self.fleet.config, presets, self.audit_log.user, others)

    async def plan(self, action: str, host: str, server: str | None = None, **options: Any) -> Plan:
        """What an action would do; see :class:`console.screens.ports.ActionsPort`."""
        if server is not None:  # of several, node 0's host makes the plan where it is reached
            nodes = self.fleet.config.server(server).nodes
            host = next((name for name in nodes if name in self.fleet.remotes), host)
        planner = await self._planner(host)
        if action == "kill":
            return await planner.kill(tuple(options["processes"]))
        if action == "kill-zombies":
            return await self._kill_zombies(planner, host, options.get("zombies"))
        if action == "clean":
            return await planner.clean(options.get("artefacts"))
        if action == "reset-gpu":
            return await plan_gpu_reset(planner.remote, int(options["gpu"]))
        if action in ("undo", "resume"):
            return await self._history(planner, action, str(options["plan_id"]))
        if server is None:
            raise UsageError(f"{action} needs a server")
        entry = self.fleet.config.server(server)
        if action == "stop":
            return await planner.stop(entry, Options())
        choice = Choice(
            speculative=options.get("speculative"),
            nccl=options.get("nccl"),
            preset=options.get("preset"),
            change=options.get("change"),
        )
        if action not in ("launch", "relaunch"):
            raise UsageError(f"no action '{action}'")
        if options.get("present"):
            return await self._relaunch_as_it_is(planner, entry, choice)
        make = planner.launch if action == "launch" else planner.relaunch
        if not options.get("skip_preflight"):
            return await make(entry, choice, Options())
        plan = await make(entry, choice, Options(preflight=False))
        return replace(plan, summary=(*plan.summary, "preflight is skipped, as asked"))

    async def _relaunch_as_it_is(self, planner: Planner, server: Server, choice: Choice) -> Plan:
        """With the presets that the server has now, which need not be those of hosts.yaml."""
        states = self.fleet.views[server.host].servers
        state = next((state for state in states if state.name == server.name), None)
        runs = await planner.remote.runs()
        now, said = present(server, state, runs, planner.presets)
        plan = await planner.relaunch(server, replace(now, change=choice.change), Options())
        lines = (plan.summary[0], said, *plan.summary[1:]) if said else plan.summary
        return replace(plan, summary=lines)

    async def _kill_zombies(self, planner: Planner, host: str, ids: Any) -> Plan:
        """From the view on the screen: what the operator sees is what is meant."""
        view = self.fleet.views[host]
        if view.snapshot is None:
            raise HostError("nothing of it is known yet", place=host)
        fresh = replace(view, snapshot=await planner.remote.snapshot(full=True, artefacts=True))
        wanted = set(ids or ())
        if wanted:
            fresh = replace(fresh, zombies=tuple(z for z in fresh.zombies if z.id in wanted))
        # A name lifts the vetoes that keep a stranger's process alive, so it is used only where
        # the operator pointed at one; the dialog has had it typed.
        foreign = any(z.kind is ZombieKind.FOREIGN for z in fresh.zombies)
        named = frozenset(wanted) if wanted and foreign else frozenset()
        return planner.kill_plan(fresh, named=named)

    async def _history(self, planner: Planner, action: str, plan_id: str) -> Plan:
        if action == "undo":
            return await planner.undo(plan_id)
        record = await planner.resume(plan_id)
        self._resumed[plan_id] = record
        return record.plan

    async def execute(self, plan: Plan) -> AsyncIterator[StepResult]:
        """Do it, step by step; the fleet looks at the host again afterwards.

        Raises:
            Refused: read-only, the host's lock is taken, or things have changed since.
        """
        remote = self.fleet.remote(plan.host)
        planner = await self._planner(plan.host)
        serving = Serving(
            self.fleet.config.servers, engine_check=_engine_check(plan), tell=self.tell
        )
        executor = Executor(
            remote,
            self.audit_log,
            handlers=serving.handlers(),
            others=self.fleet.remotes,
            read_only=self.fleet.read_only,
            say=self.say,
            recheck=planner.still_due,
        )
        record = self._resumed.pop(plan.id, None)
        done = record.done if record else None
        in_doubt = record.in_doubt if record else None
        try:
            results: list[StepResult] = []
            async for result in executor.execute(plan, done=done, in_doubt=in_doubt):
                results.append(result)
                yield result
            if plan.action in ("kill", "kill-zombies"):
                await planner.note_killed(plan, results)
        finally:
            for host in {plan.host, *(step.host for step in plan.steps)}:
                self.fleet.refresh(host)

    async def preflight_stream(self, plan: Plan) -> AsyncIterator[Finding]:
        """What the host's own engine says; own rules' findings are in the plan already."""
        check = _engine_check(plan)
        if check is None:
            return
        for step in plan.steps:
            if step.kind is StepKind.PREFLIGHT:
                for finding in await check(
                    self.fleet.remote(step.host), step.argv, starts(plan, step.host)
                ):
                    yield finding

    async def tail(
        self, host: str, source: LogSource, *, last_lines: int | None = None
    ) -> AsyncIterator[LogChunk]:
        """Follow a log; a lost link is waited out and the log resumed where it was."""
        if not source.also:
            async for chunk in self._tail(host, source, last_lines):
                yield chunk
            return

        async def parts() -> list[LogSource]:
            return await parts_of(self.fleet.remote(host), source)

        while True:
            try:
                async for chunk in tail_all(parts, lambda one: self._tail(host, one, last_lines)):
                    yield chunk
            except HostError:  # before the first look at which files there are
                await asyncio.sleep(RECONNECT_S)

    async def _tail(
        self, host: str, source: LogSource, last_lines: int | None
    ) -> AsyncIterator[LogChunk]:
        cursor: Cursor | None = None
        while True:
            try:
                remote: Remote = self.fleet.remote(host)
                last = last_lines if cursor is None else None
                async for chunk in remote.tail(source, cursor=cursor, last_lines=last):
                    cursor = chunk.cursor
                    yield chunk
                # A container has stopped; the next one of that name writes on.
            except HostError:
                pass
            await asyncio.sleep(RECONNECT_S)

    async def check_preset(self, server: str, preset: Preset) -> tuple[Finding, ...]:
        """What preflight says of a relaunch with a preset, which need not be saved yet.

        Raises:
            HostError: there is no connection to the server's host.
            UsageError: the server cannot be started with it.
        """
        entry = self.fleet.config.server(server)
        planner = await self._planner(entry.host, preset)
        name, kind = preset.name, preset.kind
        chosen = Choice(
            speculative=name if kind == "speculative" else None,
            nccl=name if kind == "nccl" else None,
            preset=name if kind == "server" else None,
        )
        return (await planner.relaunch(entry, chosen, Options())).findings

    async def bench(self, server: str, load: Load) -> AsyncIterator[Level]:
        """Measure a server; what is done is kept, also when the rest is given up.

        Raises:
            ActionFailed: the server does not complete, or the figures could not be kept.
            HostError: the link is lost.
        """
        entry = self.fleet.config.server(server)
        remote = self.fleet.remote(entry.host)
        ran = await running(remote, entry)
        found: list[Level] = []
        whole = False
        try:
            async with contextlib.aclosing(each_level(remote, entry, load)) as levels:
                async for level in levels:
                    found.append(level)
                    yield level
            whole = True
        finally:
            try:
                if found:
                    keep(entry.host, ran, found, load)
            except OSError as error:
                if whole:
                    place = str(history_path(entry.host))
                    raise ActionFailed(f"not kept: {error.strerror}", place=place) from error

    async def run_command(self, line: str) -> Output:
        """Run a command that only looks, in a process of its own, bounded in time.

        Raises:
            UsageError: it is no command, or would never end.
            Refused: it would change something.
        """
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"{error}", place=line) from error
        if not words:
            return Output(0, "")
        said = {word.partition("=")[0] for word in words}
        if words[0] not in LOOKING or CHANGING & said:
            raise Refused(f"'{line}' is not run from here", hint="use its key, or a shell")
        program = "from console.cli import main; main()"
        argv = [sys.executable, "-c", program, *words, "--hosts", str(self.fleet.config.path)]
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "NO_COLOR": "1"},
        )
        try:
            async with asyncio.timeout(COMMAND_S):
                text, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return Output(7, f"no end within {COMMAND_S:.0f} s")
        return Output(process.returncode or 0, text.decode("utf-8", "replace"))

    async def audit(self, limit: int = 500) -> list[Mapping[str, Any]]:
        """The newest entries of the audit file, newest first."""
        entries = await asyncio.to_thread(lambda: list(self.audit_log.read()))
        return entries[-limit:][::-1]


def _engine_check(plan: Plan) -> Any:
    """How to ask the host's own engine, where the plan has a step that asks."""
    if not any(step.kind is StepKind.PREFLIGHT for step in plan.steps):
        return None
    from console.planning.enginecheck import ask_engine  # noqa: PLC0415 - only launches need it

    return ask_engine
