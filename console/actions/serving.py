"""The steps of serving: preflight, drain, write a unit, launch, start a unit, watch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from console import probe
from console.actions.codec import decode, encode
from console.actions.launch import config_text
from console.actions.steps import Context, Handler, Outcome
from console.model import (
    Finding,
    Hello,
    Run,
    Server,
    ServerState,
    Severity,
    Step,
    StepKind,
    Target,
)
from console.remote import HostFileError, Launch, Remote
from console.runners.settings import REFERENCE
from console.secretstore import resolve
from console.text import clean
from console.watching import Watched, Watcher
from console.zombies.family import Scope

EngineCheck = Callable[[Remote, tuple[str, ...]], Awaitable[tuple[Finding, ...]]]


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
            StepKind.WATCH: self.watch,
        }

    async def preflight(self, step: Step, context: Context) -> Outcome:
        """PREFLIGHT: own rules have been asked while planning; now the host's own engine."""
        errors = [f for f in context.plan.findings if f.severity is Severity.ERROR]
        if not errors and self.engine_check is not None:
            found = await self.engine_check(context.remote, step.argv)
            errors = [f for f in found if f.severity is Severity.ERROR]
        data = {"findings": encode(errors), "code": "preflight", "exit_code": 5}
        if errors:
            return Outcome("refused", "; ".join(f.message for f in errors), data)
        return Outcome("ok", "nothing that would stop it")

    async def drain(self, step: Step, context: Context) -> Outcome:
        """DRAIN: count down while requests run; then mark the run as stopped on purpose."""
        server = self.servers[str(step.params["server"])]
        client = probe.open_client(context.remote.http())
        try:
            detail = await _drain(client, server, step.timeout_s, context.say)
        finally:
            await client.aclose()
        await mark(context.remote, step.params.get("run_id"), "stopped")
        data: dict[str, Any] = {}
        if "again" in step.params:
            data["undo"] = step.params["again"]
        return Outcome("ok", detail, data)

    async def watch(self, step: Step, context: Context) -> Outcome:
        """WATCH: until ready, failed or stalled; then a completion and the run's times."""
        server = self.servers[str(step.params["server"])]
        watcher = Watcher(context.remote, server, self.tell)
        try:
            watched = await watcher.watch(step.timeout_s)
            if watched.outcome == "ready":
                watched = await watcher.confirm(watched)
            else:
                await watcher.remember(watched)
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
    }
    if watched.outcome == "ready":
        return Outcome("ok", "; ".join(("ready", *watched.warnings)), data)
    data["exit_code"] = 7 if watched.outcome == "stalled" else 6
    said = state.diagnosis.summary if state.diagnosis else ""
    detail = "; ".join(part for part in (watched.outcome, watched.detail, said) if part)
    return Outcome("failed", clean(detail), data)


async def _drain(client: Any, server: Server, bound_s: float, say: Callable[[str], None]) -> str:
    """Poll until nothing runs; returns how it ended, in words."""
    url, deadline = probe.address(server), time.monotonic() + bound_s
    while True:
        counted = await probe.metrics(client, url, wait_s=2.0)
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


async def mark(remote: Remote, run_id: object, outcome: str) -> None:
    """Write how a run ends into its record, so that every console tells it the same way."""
    if not isinstance(run_id, str):
        return
    for run in await remote.runs():
        if run.run_id == run_id:
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
    undo = replace(
        step,
        why=f"restore {path}" if before is not None else f"remove {path}",
        params={**step.params, "text": before, "before": text},
    )
    return Outcome("ok", path, {"undo": encode(undo)})


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
    old = next((r for r in await remote.runs() if r.run_id == run.run_id), None)
    if old is not None:
        return Outcome(
            "ok", f"run {run.run_id} was started before", _launched(old, step, remote.hello)
        )
    snapshot = await remote.snapshot()
    if run.port in snapshot.listening:
        holder = snapshot.listening[run.port]
        return Outcome("failed", f"port {run.port} is taken by pid {holder or '?'}")
    values = resolve(_names(run, step.params.get("config") or {}))
    secrets = {
        name: values[value.removeprefix(REFERENCE)]
        for name, value in run.env.items()
        if value.startswith(REFERENCE)
    }
    if path := step.params.get("config_path"):
        flags = {k: values[v.removeprefix(REFERENCE)] for k, v in step.params["config"].items()}
        await remote.write_file(str(path), config_text(flags), mode=0o600)
    (log,) = await remote.stat([run.log])
    memory = {g.index: g.memory_used_mib for g in snapshot.gpus if g.memory_used_mib is not None}
    if snapshot.cpu is not None:
        memory[-1] = snapshot.cpu.memory_used_mib
    ready = replace(
        run,
        baseline_mib=memory,
        launched_at=snapshot.time,
        log_offset=log.size_bytes if log.kind == "file" else 0,
    )
    started = await remote.launch(Launch(ready, secrets))
    pid = started.launcher.pid if started.launcher else None
    return Outcome("ok", f"run {started.run_id}, pid {pid}", _launched(started, step, remote.hello))


def _names(run: Run, config: Mapping[str, str]) -> list[str]:
    values = (*run.env.values(), *config.values())
    return [v.removeprefix(REFERENCE) for v in values if v.startswith(REFERENCE)]


def _launched(run: Run, step: Step, hello: Hello) -> dict[str, Any]:
    """What a launch leaves in the journal: the run, and the step that would end it again."""
    scope = Scope(run_ids=frozenset({run.run_id}), uids=frozenset({hello.uid}))
    title = " ".join(run.argv)
    launcher = run.launcher
    undo = Step(
        StepKind.SIGNAL,
        step.host,
        f"end run {run.run_id}",
        signal="KILL",
        targets=(Target(launcher, hello.uid, hello.user, title, run.run_id),) if launcher else (),
        dangerous=True,
        verify="looked at again until nothing of it is left",
        params={"scopes": encode([scope]), "repeat": True, "planned_at": run.launched_at},
    )
    if run.unit is not None:
        undo = Step(
            StepKind.STOP_UNIT,
            step.host,
            f"stop unit {run.unit}",
            argv=("systemctl", "stop", run.unit),
            dangerous=True,
            timeout_s=120.0,
            params={"unit": run.unit, "systemctl": ["systemctl"]},
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
    snapshot = await remote.snapshot()
    offset = 0
    if run.log:
        (log,) = await remote.stat([run.log])
        offset = log.size_bytes if log.kind == "file" else 0
    memory = {g.index: g.memory_used_mib for g in snapshot.gpus if g.memory_used_mib is not None}
    await remote.save_run(
        replace(run, launched_at=snapshot.time, baseline_mib=memory, log_offset=offset)
    )
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
