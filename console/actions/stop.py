"""Plan the end of a server: let requests finish, end its processes, clean, verify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from console.actions.codec import encode
from console.actions.dump import plan_dump
from console.actions.journal import new_plan_id
from console.actions.kill import KillOptions, plan_kill
from console.actions.launch import again, container_step, launch_step, start_step
from console.actions.signals import target_of
from console.actions.verify import plan_verify
from console.model import (
    Health,
    Host,
    Phase,
    Plan,
    Process,
    Run,
    Server,
    ServerState,
    Snapshot,
    Step,
    StepKind,
    Zombie,
    ZombieKind,
)
from console.runners.systemd import systemctl
from console.watch.attribution import Found

BOUND_S = 60.0
"""Requests under way get so long to finish, and then the server from SIGTERM to SIGKILL.

SGLang ends by itself within its 5 s poll once no request is left; it would wait for one for ever.
"""
SHORT_BOUND_S = 10.0
"""The same for the bundled server, and for one that does not serve: it has nothing to finish."""
STOPPED_BOUND_S = 1.0
"""The same where every launcher is stopped (state T): it takes no signal but SIGKILL."""
_NAME = "stop"


def plan_stop(
    server: Server,
    found: Found,
    state: ServerState | None,
    snapshot: Snapshot,
    runs: Sequence[Run],
    *,
    host: Host,
    bound_s: float | None = None,
) -> Plan:
    """Drain → end → clean → verify; a plan without steps where nothing runs.

    ``bound_s`` bounds the drain and the way from SIGTERM to SIGKILL, each.
    """
    tops = _tops(found.processes)
    bound = _bound_s(server, state, tops) if bound_s is None else bound_s
    marked = [_as_zombie(p, found) for p in tops]
    left: tuple[str, ...] = ()
    if server.runner.kind == "docker":
        steps = _stop_container(server, found, snapshot, runs, host=host, bound_s=bound)
    else:
        base = plan_kill(
            marked,
            snapshot,
            runs,
            host=host,
            servers={server.name: server},
            options=KillOptions(drain_s=bound, named=frozenset({_NAME})),
        )
        steps = tuple(_launchers_first(base.steps, tops))
        left = tuple(text for text in base.summary if text.startswith("left alone"))
    if steps:
        steps = (drain_step(server, found, state, host.name, bound), *steps)
    who = found.main.id.pid if found.main else None
    count = len(found.processes)
    line = (
        f"stop {server.name}: pid {who}, {count} processes"
        if steps
        else f"{server.name} is not running"
    )
    return Plan(
        id=new_plan_id("stop"),
        action="stop",
        host=host.name,
        server=server.name,
        steps=steps,
        created_at=snapshot.time,
        summary=(line, *left),
        offered=_offered(found, state, snapshot, host),
    )


def acknowledge(plan: Plan, found: Found, state: ServerState) -> Plan:
    """The stop of a server that has failed and is gone: note that somebody has seen it.

    The plan as it is where something runs, or where it did not fail.
    """
    run = found.run
    if plan.steps or found.alive or state.phase is not Phase.FAILED:
        return plan
    if run is None:
        said = (
            f"{plan.server} is not running; its log tells of a failure that was not launched here"
        )
        return replace(plan, summary=(said,))
    note = Step(
        StepKind.DRAIN,
        plan.host,
        f"note on run {run.run_id} that its failure was seen",
        timeout_s=10.0,
        params={"server": plan.server, "run_id": run.run_id, "acknowledge": True},
    )
    said = f"acknowledge that {plan.server} failed (run {run.run_id}): it is only stopped then"
    return replace(plan, steps=(note,), summary=(said,))


def _offered(
    found: Found, state: ServerState | None, snapshot: Snapshot, host: Host
) -> tuple[Step, ...]:
    """The stacks of one that does not answer."""
    if state is not None and state.health is Health.OK:
        return ()
    sudo = ("sudo", "-n") if host.sudo and snapshot.uid != 0 else ()
    step = plan_dump(host.name, found.processes, sudo)
    return () if step is None else (step,)


def _stop_container(
    server: Server,
    found: Found,
    snapshot: Snapshot,
    runs: Sequence[Run],
    *,
    host: Host,
    bound_s: float,
) -> tuple[Step, ...]:
    """Docker ends it, with SIGTERM first: its processes are in a namespace of their own.

    Nothing where nothing of it runs.
    """
    name = server.runner.container or ""
    if not found.processes:
        return ()
    sudo = ("sudo", "-n") if host.sudo and snapshot.uid != 0 else ()
    count = len(found.processes)
    stop = Step(
        StepKind.RUN,
        host.name,
        f"stop container {name} ({count} process{'es' if count > 1 else ''})",
        argv=(*sudo, "docker", "stop", f"--time={bound_s:.0f}", name),
        targets=tuple(map(target_of, found.processes)),
        dangerous=True,
        verify="docker says it is stopped",
        timeout_s=bound_s + 60.0,
    )
    return (
        stop,
        plan_verify(host.name, snapshot, found.processes, [found.port or server.port], runs),
    )


def _tops(processes: Sequence[Process]) -> list[Process]:
    """The processes whose parent is not of the server: the rest is their family."""
    pids = {p.id.pid for p in processes}
    return [p for p in processes if p.ppid not in pids]


def _bound_s(server: Server, state: ServerState | None, tops: Sequence[Process]) -> float:
    if tops and all(process.state == "T" for process in tops):
        return STOPPED_BOUND_S
    if state is not None and state.rank:
        return SHORT_BOUND_S  # requests end with node 0
    serves = state is not None and state.phase is Phase.READY and state.health is Health.OK
    return BOUND_S if serves and server.engine != "bundled" else SHORT_BOUND_S


def _launchers_first(steps: Sequence[Step], tops: Sequence[Process]) -> list[Step]:
    """SIGTERM goes to the launcher alone: it ends its workers when their requests are done.

    A worker takes SIGTERM as its end, the launcher takes that for a crash, and requests are lost.
    """
    heads = {process.id for process in tops}
    out = list(steps)
    for at, step in enumerate(steps):
        if step.kind is StepKind.SIGNAL and step.signal == "TERM":
            targets = tuple(t for t in step.targets if t.process in heads)
            who = ", ".join(str(t.process.pid) for t in targets)
            params = {**step.params, "exact": True}
            out[at] = replace(step, why=f"ask {who} to end", targets=targets, params=params)
    return out


def _as_zombie(process: Process, found: Found) -> Zombie:
    """A process an operator names for the end, in the form that kill plans are made from."""
    return Zombie(
        id=_NAME,
        kind=ZombieKind.FOREIGN,
        pid=process.id.pid,
        process=process.id,
        start_time=None,
        user=process.user,
        score=1.0,
        evidence=("named by the operator",),
        killable=True,
        run_id=found.run.run_id if found.run else None,
        title=process.title,
    )


def drain_step(
    server: Server, found: Found, state: ServerState | None, host: str, drain_s: float
) -> Step:
    """Wait for requests under way, then note in the run's record that it was stopped on purpose."""
    running = state.running_requests if state else None
    queued = state.queued_requests if state else None
    known = running is not None
    busy = (running or 0) + (queued or 0)
    what = f"{running} running, {queued or 0} queued" if known else "how many is not known"
    params: dict[str, Any] = {"server": server.name}
    other = state is not None and bool(state.rank)  # of several nodes, the first has the requests
    if other:
        params["counts"] = False
    if found.port is not None and found.port != server.port:
        params["port"] = found.port
    if found.run is not None:
        params["run_id"] = found.run.run_id
        params["again"] = encode(_started_again(server, found.run, host))
    return Step(
        StepKind.DRAIN,
        host,
        "note that its run is stopped" if other else f"let requests finish ({what})",
        verify="" if other else "no request is running, or the time is up",
        timeout_s=drain_s if (busy or not known) and not other else 2.0,
        params=params,
    )


def _started_again(server: Server, run: Run, host: str) -> Step:
    """What brings a stopped server back as it was."""
    if server.runner.kind == "systemd":
        return start_step(run, server.runner.unit or "", systemctl(server.runner.user_unit))
    if server.runner.kind == "docker":
        anew = run.argv[:2] == ("docker", "run")
        return container_step(again(run), server.runner.container or "", anew=anew)
    return launch_step(again(run))
