"""The steps of serving: preflight, drain, write a unit, launch, start a unit, watch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from console.actions.codec import decode, encode
from console.actions.containers import start_container
from console.actions.launch import config_text
from console.actions.launched import at_start, port_taken, starts, still_alive
from console.actions.steps import Context, Handler, Outcome
from console.model import (
    Finding,
    Hello,
    ProcessId,
    Run,
    Server,
    ServerState,
    Severity,
    Snapshot,
    Step,
    StepKind,
    Target,
)
from console.planning.secretstore import resolve
from console.remote import HostFileError, Launch, Remote
from console.runners.settings import REFERENCE
from console.runners.systemd import systemctl
from console.text import clean
from console.watch import probe
from console.watch.eye import ending
from console.watch.group import watcher_of
from console.watch.watching import Watched
from console.zombies.family import Scope

COUNT_S = 2.0
"""A server that has not told its counters after so long is not asked further before its end."""

EngineCheck = Callable[[Remote, tuple[str, ...], Run | None], Awaitable[tuple[Finding, ...]]]


@dataclass(frozen=True, slots=True)
class Serving:
    """Handlers that know the configured servers.

    ``engine_check`` asks the host's own engine about a command line; ``tell`` is shown every new
    state while a start is watched.
    """

    servers: Mapping[str, Server]
    engine_check: EngineCheck | None = None
    tell: Callable[[ServerState], None] = lambda _state: None

    def handlers(self) -> dict[StepKind, Handler]:
        """The table for :class:`console.actions.executor.Executor`."""
        return {
            StepKind.PREFLIGHT: self.preflight,
            StepKind.DRAIN: self.drain,
            StepKind.WRITE_UNIT: write_unit,
            StepKind.LAUNCH: launch,
            StepKind.START_UNIT: start_unit,
            StepKind.START_CONTAINER: start_container,
            StepKind.WATCH: self.watch,
        }

    async def preflight(self, step: Step, context: Context) -> Outcome:
        """PREFLIGHT: own rules have been asked while planning; now the host's own engine."""
        errors = [f for f in context.plan.findings if f.severity is Severity.ERROR]
        found: tuple[Finding, ...] = ()
        if not errors and self.engine_check is not None:
            run = starts(context.plan, step.host)
            found = await self.engine_check(context.remote, step.argv, run)
            errors = [f for f in found if f.severity is Severity.ERROR]
        data: dict[str, Any] = {"findings": encode(found)}
        if errors:
            data |= {"code": "preflight", "exit_code": 5}
            return Outcome("refused", "; ".join(f.message for f in errors), data)
        said = "; ".join(("nothing that would stop it", *(f.message for f in found)))
        return Outcome("ok", said, data)

    async def drain(self, step: Step, context: Context) -> Outcome:
        """DRAIN: count down while requests run; then mark the run as stopped on purpose."""
        if step.params.get("acknowledge"):
            return await _acknowledge(context.remote, str(step.params["run_id"]))
        server = self.servers[str(step.params["server"])]
        detail = "its requests are node 0's"
        if step.params.get("counts", True):
            client = probe.open_client(context.remote.http())
            try:
                detail = await _drain(client, server, step, context.say)
            finally:
                await client.aclose()
        try:
            await mark(context.remote, step.params.get("run_id"), "stopped")
        except HostFileError as error:
            if not error.full:
                raise
            detail += "; its record stays as it is: the host's disk is full"
        data: dict[str, Any] = {}
        if "again" in step.params:
            data["undo"] = step.params["again"]
        return Outcome("ok", detail, data)

    async def watch(self, step: Step, context: Context) -> Outcome:
        """WATCH: until ready, failed or stalled; then a completion and the run's times.

        With ``params["alive_s"]``: only until it has been seen alive for so long.
        """
        server = self.servers[str(step.params["server"])]
        watcher = watcher_of(server, context.remotes, self.tell)
        alive_s = step.params.get("alive_s")
        try:
            if alive_s is not None:
                watched = await watcher.alive(float(alive_s))
            else:
                watched = await watcher.watch(step.timeout_s)
            if watched.outcome == "ready" and alive_s is None:
                watched = await watcher.confirm(watched)
            elif watched.outcome is not None:
                watched = await watcher.remember(watched)
        finally:
            await watcher.close()
        return watch_outcome(watched)


def watch_outcome(watched: Watched) -> Outcome:
    """A watch's end as a step's outcome, with what the JSON document needs."""
    state = watched.state
    data: dict[str, Any] = {
        "outcome": watched.outcome,
        "state": encode(state),
        "seconds": round(watched.seconds, 3),
        "warnings": list(watched.warnings),
        "start_s": watched.start_s,
    }
    if watched.outcome is None:
        return Outcome("ok", f"alive after {watched.seconds:.1f} s; not watched further", data)
    if watched.outcome == "ready":
        ready = "ready"
        if watched.start_s is not None:
            ready += f" {watched.start_s:.1f} s after its launch, and one completion"
        return Outcome("ok", "; ".join((ready, *watched.warnings)), data)
    data["exit_code"] = 7 if watched.outcome == "stalled" else 6
    said = state.diagnosis.summary if state.diagnosis else ""
    how = "" if said.startswith(watched.detail) else watched.detail  # it may be told there too
    detail = "; ".join(part for part in (watched.outcome, how, said) if part)
    return Outcome("failed", clean(detail), data)


async def _drain(client: Any, server: Server, step: Step, say: Callable[[str], None]) -> str:
    """Poll until nothing runs; returns how it ended, in words."""
    url, bound_s = probe.address(server, step.params.get("port")), step.timeout_s
    deadline = time.monotonic() + bound_s
    while True:
        counted = await _counted(client, url)
        if counted is None or counted.running is None:
            return "requests under way are not known"
        busy = counted.running + (counted.queued or 0)
        left = deadline - time.monotonic()
        if busy == 0:
            return "no request under way"
        if left <= 0:
            return f"{busy} requests were still under way after {bound_s:.0f} s"
        say(f"draining: {counted.running} running, {counted.queued or 0} queued, {left:.0f} s left")
        await asyncio.sleep(min(0.5, max(0.05, left)))


async def _counted(client: Any, url: str) -> probe.Metrics | None:
    """What is under way, ``None`` where it is not told within :data:`COUNT_S`."""
    try:
        async with asyncio.timeout(COUNT_S):
            return await probe.metrics(client, url, wait_s=COUNT_S)
    except TimeoutError:
        return None


async def _acknowledge(remote: Remote, run_id: str) -> Outcome:
    """Note on a run that its failure was seen; its outcome and its reason stay."""
    run = next((run for run in await remote.runs() if run.run_id == run_id), None)
    if run is None:
        return Outcome("skipped", f"run {run_id} is not recorded any more")
    await remote.save_run(replace(run, acknowledged=True))
    return Outcome("ok", f"run {run_id}: {run.failure or run.outcome or 'ended'}; seen")


async def mark(
    remote: Remote, run_id: object, outcome: str, ended: Collection[ProcessId] = ()
) -> None:
    """Write how a run ends into its record, so that every console tells it the same way.

    ``ended`` are the processes that were signalled already. A launcher that had died by itself
    before stays the cause: what was done to the rest is kept beside it.
    """
    if not isinstance(run_id, str):
        return
    for run in await remote.runs():
        if run.run_id == run_id:
            dead = run.ended_at is not None and run.outcome not in ("stopped", "killed", "exit 0")
            if dead and run.launcher is not None and run.launcher not in ended:
                failure = run.failure or ending(await remote.exit_status(run_id))
                kept = replace(run, outcome="failed", failure=failure, cleared=outcome)
                await remote.save_run(replace(kept, acknowledged=True))
                continue
            now = (await remote.snapshot()).time
            await remote.save_run(replace(run, outcome=outcome, ended_at=now))


async def write_unit(step: Step, context: Context) -> Outcome:
    """WRITE_UNIT: replace or remove a drop-in and let systemd read it; undone by the old text."""
    path, text = str(step.params["path"]), step.params.get("text")
    manager = tuple(str(word) for word in step.params["systemctl"])
    now = await _read(context.remote, path)
    before = step.params.get("before")
    if now not in (before, text):
        return Outcome("refused", f"{path} has changed since the plan was made")
    if text is None:
        if now is not None:
            done = await context.remote.run(("rm", "--", path), timeout_s=10.0)
            if done.code != 0:
                return Outcome("failed", f"rm: {clean(done.stderr)}")
    else:
        await context.remote.write_file(path, str(text).encode(), mode=0o644)
    done = await context.remote.run((*manager, "daemon-reload"), timeout_s=step.timeout_s)
    if done.code != 0:
        return Outcome("failed", f"daemon-reload: {clean(done.stderr)}")
    return Outcome("ok", path, {"undo": encode(undo_write(step))})


def undo_write(step: Step) -> Step:
    """The step that puts back what a WRITE_UNIT step has replaced; harmless where it has not."""
    path, text, before = (step.params.get(key) for key in ("path", "text", "before"))
    why = f"restore {path}" if before is not None else f"remove {path}"
    return replace(step, why=why, params={**step.params, "text": before, "before": text})


async def _read(remote: Remote, path: str) -> str | None:
    try:
        return (await remote.read_file(path)).decode("utf-8", "replace")
    except HostFileError as error:
        if error.missing:
            return None
        raise


async def launch(step: Step, context: Context) -> Outcome:
    """LAUNCH: start the run unless an interrupted attempt already did; undone by its end."""
    run = decode(Run, step.params["run"], place="run")
    remote = context.remote
    if (alive := await still_alive(step, remote)) is not None:
        return alive
    snapshot, old = await _started_before(remote, run)
    if old is not None:
        return Outcome(
            "ok", f"run {run.run_id} was started before", _launched(old, step, remote.hello)
        )
    if (taken := await port_taken(remote, run.port, snapshot)) is not None:
        return Outcome("failed", taken)
    values = resolve(_names(run, step.params.get("config") or {}))
    secrets = {
        name: values[value.removeprefix(REFERENCE)]
        for name, value in run.env.items()
        if value.startswith(REFERENCE)
    }
    if path := step.params.get("config_path"):
        flags = {k: values[v.removeprefix(REFERENCE)] for k, v in step.params["config"].items()}
        await remote.write_file(str(path), config_text(flags), mode=0o600)
    started = await remote.launch(Launch(await at_start(remote, run, snapshot), secrets))
    pid = started.launcher.pid if started.launcher else None
    return Outcome("ok", f"run {started.run_id}, pid {pid}", _launched(started, step, remote.hello))


async def _started_before(remote: Remote, run: Run) -> tuple[Snapshot, Run | None]:
    """The run as an interrupted attempt left it: recorded, or alive before it could be recorded."""
    snapshot = await remote.snapshot(full=True)
    old = next((r for r in await remote.runs() if r.run_id == run.run_id), None)
    if old is not None:
        return snapshot, old
    members = [p for p in snapshot.processes if p.run_id == run.run_id]
    if not members:
        return snapshot, None
    pids = {p.id.pid for p in members}
    first = min((p for p in members if p.ppid not in pids), key=lambda p: p.id.start_ticks)
    unit = first.unit if first.unit and run.run_id in first.unit else None
    began = snapshot.time - first.age_s
    found = replace(run, launcher=first.id, session=first.sid, unit=unit, launched_at=began)
    await remote.save_run(found)
    return snapshot, found


def _names(run: Run, config: Mapping[str, str]) -> list[str]:
    values = (*run.env.values(), *config.values())
    return [v.removeprefix(REFERENCE) for v in values if v.startswith(REFERENCE)]


def _launched(run: Run, step: Step, hello: Hello) -> dict[str, Any]:
    """What a launch leaves in the journal: the run, and the step that would end it again."""
    scope = Scope(run_ids=frozenset({run.run_id}), uids=frozenset({hello.uid}))
    title = " ".join(run.argv)
    launcher = run.launcher
    since = launcher.start_ticks if launcher else 0  # all of its run came after that
    manager = list(systemctl(hello.uid != 0))
    undo = Step(
        StepKind.SIGNAL,
        step.host,
        f"end run {run.run_id}",
        signal="KILL",
        targets=(Target(launcher, hello.uid, hello.user, title, run.run_id),) if launcher else (),
        dangerous=True,
        verify="looked at again until nothing of it is left",
        params={"scopes": encode([scope]), "repeat": True, "newest": since},
    )
    if run.unit is not None:
        undo = Step(
            StepKind.STOP_UNIT,
            step.host,
            f"stop unit {run.unit}",
            argv=(*manager, "stop", run.unit),
            dangerous=True,
            timeout_s=120.0,
            params={"unit": run.unit, "systemctl": manager},
        )
    return {
        "run_id": run.run_id,
        "pid": run.launcher.pid if run.launcher else None,
        "unit": run.unit,
        "log": run.log,
        "undo": encode(undo),
    }


async def start_unit(step: Step, context: Context) -> Outcome:
    """START_UNIT: record the run, then let systemd start it; undone by stopping the unit."""
    run = decode(Run, step.params["run"], place="run")
    unit = str(step.params["unit"])
    manager = tuple(str(word) for word in step.params["systemctl"])
    remote = context.remote
    if (alive := await still_alive(step, remote)) is not None:
        return alive
    begun = any(r.run_id == run.run_id and r.outcome is None for r in await remote.runs())
    if not begun:
        fresh = replace(run, outcome=None, ended_at=None, phases=(), failure="")
        await remote.save_run(await at_start(remote, fresh, await remote.snapshot()))
    await remote.run((*manager, "reset-failed", unit), timeout_s=10.0)  # fails where nothing failed
    done = await remote.run(step.argv, timeout_s=step.timeout_s)
    if done.code != 0:
        return Outcome("failed", f"systemctl start {unit}: {clean(done.stderr)}")
    undo = Step(
        StepKind.STOP_UNIT,
        step.host,
        f"stop unit {unit}",
        argv=(*manager, "stop", unit),
        dangerous=True,
        timeout_s=120.0,
        params={"unit": unit, "systemctl": list(manager)},
    )
    return Outcome(
        "ok", f"run {run.run_id}, unit {unit}", {"run_id": run.run_id, "undo": encode(undo)}
    )
