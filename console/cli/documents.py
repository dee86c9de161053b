"""Views as the contract's JSON documents. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from console.actions.plan import zombie_to_json
from console.model import Gpu, HostState, HostView, Process, ServerState
from console.text import clean, mask
from console.watch.attribution import unlisted
from console.zombies.devices import asked
from console.zombies.roles import port, role

TITLE_CHARS = 200


def status_host(view: HostView, now: float) -> dict[str, Any]:
    """One host of the ``status`` document."""
    snapshot = view.snapshot
    by_pid = {p.id.pid: p for p in snapshot.processes} if snapshot else {}
    cpu = snapshot.cpu if snapshot else None
    age = view.age_s(now)
    return {
        "name": view.host.name,
        "state": view.state.value,
        "error": view.error or None,
        "through": through(view),
        "age_s": None if age is None else round(age, 1),
        "gpus": [gpu_to_json(gpu, by_pid) for gpu in (snapshot.gpus if snapshot else ())],
        "gpu_error": snapshot.gpu_error if snapshot else None,
        "cpu": None
        if cpu is None
        else {
            "memory_used_mib": round(cpu.memory_used_mib, 1),
            "memory_total_mib": round(cpu.memory_total_mib, 1),
            "cores": cpu.cores,
            "utilization_pct": cpu.utilization_pct,
        },
        "servers": [server_to_json(state) for state in view.servers],
        "unlisted": [
            {"pid": p.id.pid, "port": port_of(p), "user": clean(p.user), "title": title(p)}
            for p in unlisted(view)
        ],
        "zombies": [zombie_to_json(zombie) for zombie in view.zombies],
        "unfinished": [
            {
                "plan_id": plan.id,
                "action": plan.action,
                "server": plan.server,
                "under_way": plan.under_way,
                "done": list(plan.done),
                "in_doubt": plan.in_doubt,
                "detail": clean(plan.detail),
            }
            for plan in view.unfinished
        ],
    }


def lost_host(name: str, state: HostState, error: str) -> dict[str, Any]:
    """A host that did not answer: nothing of it is known, and nothing is zero."""
    return {
        "name": name, "state": state.value, "error": error, "through": None, "age_s": None,
        "gpus": [], "gpu_error": None, "cpu": None, "servers": [], "unlisted": [],
        "zombies": [], "unfinished": [],
    }  # fmt: skip


def through(view: HostView) -> str | None:
    """The way round by which a host is seen that does not answer itself."""
    return (view.hello.through or None) if view.hello else None


def gpu_to_json(gpu: Gpu, by_pid: Mapping[int, Process]) -> dict[str, Any]:
    """One GPU with the processes on it; ``null`` is unknown."""
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": clean(gpu.name),
        "memory_used_mib": gpu.memory_used_mib,
        "memory_total_mib": gpu.memory_total_mib,
        "utilization_pct": gpu.utilization_pct,
        "power_w": gpu.power_w,
        "temperature_c": gpu.temperature_c,
        "error": gpu.error,
        "mig": gpu.mig,
        "recovery_action": gpu.recovery_action,
        "processes": [
            {
                "pid": listed.pid,
                "memory_mib": listed.memory_mib,
                "kind": listed.kind,
                "user": clean(by_pid[listed.pid].user) if listed.pid in by_pid else None,
                "title": title(by_pid[listed.pid]) if listed.pid in by_pid else None,
            }
            for listed in gpu.processes
        ],
    }


def port_of(launcher: Process) -> int | None:
    """Where a server that was started by hand serves, by its command line."""
    if launcher.listening:
        return min(launcher.listening)
    part = role(launcher)
    return port(launcher.argv, part.engine) if part else None


def title(process: Process) -> str:
    """A process's command line, inert and without secrets."""
    return mask(clean(process.title, limit=TITLE_CHARS))


def server_to_json(state: ServerState) -> dict[str, Any]:
    """One server of the ``status`` document."""
    return {
        "name": state.name,
        "phase": state.phase.value,
        "health": state.health.value,
        "pid": state.pid,
        "port": state.port,
        "run_id": state.run_id,
        "preset": state.preset,
        "accept_length": state.accept_length,
        "throughput_tok_s": state.throughput_tok_s,
        "running_requests": state.running_requests,
        "queued_requests": state.queued_requests,
        "vantage": state.vantage,
        "note": state.note,
        "diagnosis": None if state.diagnosis is None else state.diagnosis.summary,
        "rank": state.rank,
        "nodes": nodes_to_json(state),
    }


def nodes_to_json(state: ServerState) -> list[dict[str, Any]]:
    """The nodes of a server over several hosts; ``lacks`` is null for one that takes part."""
    return [
        {
            "rank": node.rank,
            "host": node.host,
            "phase": node.phase.value,
            "pid": node.pid,
            "lacks": node.lacks,
        }
        for node in state.nodes
    ]


def phases_to_json(state: ServerState) -> list[dict[str, Any]]:
    """How long each phase took; ``null`` while it lasts or where the log gives no time."""
    return [
        {
            "name": span.phase.value,
            "seconds": None if span.seconds is None else round(span.seconds, 3),
        }
        for span in state.phases
    ]


def zombies_host(view: HostView) -> dict[str, Any]:
    """One host of the ``zombies`` document."""
    return {
        "name": view.host.name,
        "state": view.state.value,
        "through": through(view),
        "asks": asks(view),
        "zombies": [zombie_to_json(zombie) for zombie in view.zombies],
    }


def asks(view: HostView) -> list[dict[str, Any]]:
    """Devices whose driver asks for something, and what can be done."""
    snapshot = view.snapshot
    return [
        {"gpu": gpu.index, "action": gpu.asks, "detail": _asked(view, gpu)}
        for gpu in (snapshot.gpus if snapshot else ())
        if gpu.asks
    ]


def _asked(view: HostView, gpu: Gpu) -> str:
    assert view.snapshot is not None
    return clean((asked(gpu, view.snapshot) or "").replace(" HOST ", f" {view.host.name} "))


def any_zombie(views: Sequence[HostView]) -> bool:
    """Whether there is something that should not be: foreign processes are somebody's work."""
    return any(z.kind.value != "foreign" for view in views for z in view.zombies)
