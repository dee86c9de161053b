"""The check after a kill: device memory back at its baseline, pids off the devices, ports free.

What cannot be read is never taken for zero: then the step says "memory NOT verified" and fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from console.actions.steps import Context, Outcome
from console.model import Gpu, Process, Run, Snapshot, Step, StepKind

TOLERANCE_MIB = 64.0
"""What a device may hold above its baseline and still count as free."""
RELEASE_S = 120.0
"""How long device memory may take to fall: seconds as a rule, over 60 s seen on large hosts."""


@dataclass(frozen=True, slots=True)
class Held:
    """What still stands between a host and clean."""

    reasons: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def plan_verify(
    host: str,
    snapshot: Snapshot,
    killed: Iterable[Process],
    ports: Iterable[int],
    runs: Iterable[Run],
) -> Step:
    """The check for a set of processes: the devices they hold, their ports, themselves."""
    targets = tuple(killed)
    devices = sorted({index for process in targets for index in process.gpu_memory_mib})
    recorded = {r.run_id: r for r in runs}
    baseline: dict[str, float] = {}
    for index in devices:
        known = [
            recorded[p.run_id].baseline_mib[index]
            for p in targets
            if p.run_id in recorded and index in recorded[p.run_id].baseline_mib
        ]
        if known:
            baseline[str(index)] = max(known)
    by_pid = {process.id.pid: process for process in snapshot.processes}
    here = [gpu for gpu in snapshot.gpus if gpu.index in devices]
    idle = {str(gpu.index): _unexplained(gpu, by_pid) for gpu in here}
    busy = sorted(set(ports))
    what = [f"GPU {', '.join(map(str, devices))} back at the baseline"] * bool(devices)
    what += [f"port {', '.join(map(str, busy))} free"] * bool(busy)
    return Step(
        StepKind.VERIFY,
        host,
        "check that everything is released",
        verify=" and ".join(what) or "no process left",
        timeout_s=RELEASE_S,
        params={
            "gpus": devices,
            "baseline_mib": baseline,
            "idle_mib": idle,
            "ports": busy,
            "processes": [{"pid": p.id.pid, "start_ticks": p.id.start_ticks} for p in targets],
            "had_nvidia": snapshot.gpu_source is not None or snapshot.gpu_error is not None,
        },
    )


def _unexplained(gpu: Gpu, by_pid: Mapping[int, Process]) -> float | None:
    """Memory of a device that no process here accounts for, ``None`` where that is unknown.

    In a container the driver may list pids of the host: what these hold is not explained here.
    """
    parts = [listed.memory_mib for listed in gpu.processes if listed.pid in by_pid]
    if gpu.memory_used_mib is None or any(part is None for part in parts):
        return None
    return max(0.0, gpu.memory_used_mib - sum(part for part in parts if part is not None))


async def verify_step(step: Step, context: Context) -> Outcome:
    """VERIFY: poll until two looks in a row are clean, or say what is held and by what."""
    deadline = time.monotonic() + step.timeout_s
    clean_looks = 0
    pause = 0.25
    while True:
        snapshot = await context.remote.snapshot()
        held = still_held(snapshot, step.params)
        clean_looks = 0 if held.reasons or held.unknown else clean_looks + 1
        # On a machine without devices there is no counter that could flicker.
        if clean_looks >= (2 if step.params.get("gpus") else 1):
            return Outcome("ok", _done(step.params), {"verified": True})
        if time.monotonic() >= deadline or (held.unknown and not held.reasons):
            break
        context.say(f"waiting: {'; '.join((*held.reasons, *held.unknown)) or 'looking again'}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 2.0)
    if held.reasons:
        return Outcome("failed", "; ".join((*held.reasons, *held.unknown)), {"verified": False})
    detail = "killed, memory NOT verified: " + "; ".join(held.unknown)
    return Outcome("failed", detail, {"verified": False, "unknown": list(held.unknown)})


def still_held(snapshot: Snapshot, params: Mapping[str, object]) -> Held:
    """What of a verify step's conditions does not hold in this snapshot (pure)."""
    unknown: list[str] = []
    by_pid = {process.id.pid: process for process in snapshot.processes}
    mine = {(p["pid"], p["start_ticks"]) for p in _dicts(params.get("processes"))}
    reasons = [
        f"port {port} is held by {_who(snapshot.listening[port], by_pid)}"
        for port in _ints(params.get("ports"))
        if port in snapshot.listening
    ]
    gpus = {gpu.index: gpu for gpu in snapshot.gpus}
    for index in _ints(params.get("gpus")):
        gpu = gpus.get(index)
        why = snapshot.gpu_error or (gpu.error if gpu else "the device is not listed any more")
        if gpu is None or gpu.memory_used_mib is None:
            unknown.append(f"GPU {index}: {why or 'memory cannot be read'}")
            continue
        reasons += _on_device(gpu, params, mine, by_pid)
    return Held(tuple(reasons), tuple(unknown))


def _on_device(
    gpu: Gpu,
    params: Mapping[str, object],
    mine: set[tuple[object, object]],
    by_pid: Mapping[int, Process],
) -> list[str]:
    used = gpu.memory_used_mib or 0.0
    for listed in gpu.processes:
        process = by_pid.get(listed.pid)
        # The driver may list a pid for a moment after it has gone; then no process has the number.
        is_mine = (
            (listed.pid, process.id.start_ticks) in mine
            if process
            else any(pid == listed.pid for pid, _ in mine)
        )
        if is_mine:
            return [f"GPU {gpu.index}: {listed.pid} is still listed with {_mib(listed.memory_mib)}"]
    limit = _at(params.get("baseline_mib"), gpu.index)
    if limit is not None and used <= limit + TOLERANCE_MIB:
        return []
    idle, now = _at(params.get("idle_mib"), gpu.index), _unexplained(gpu, by_pid)
    if idle is not None and now is not None and now <= idle + TOLERANCE_MIB:
        return []  # what is used beyond the baseline belongs to other processes of this host
    holders = [f"{_who(p.pid, by_pid)} {_mib(p.memory_mib)}" for p in gpu.processes]
    named = sum(p.memory_mib or 0.0 for p in gpu.processes)
    rest = [f"{_mib(used - named)} by nothing visible here"] if used - named >= 1.0 else []
    by_what = ", ".join([*holders, *rest]) or "nothing visible here"
    return [f"GPU {gpu.index}: {_mib(used)} in use ({by_what})"]


def _who(pid: int | None, by_pid: Mapping[int, Process]) -> str:
    if pid is None:
        return "nothing visible here"
    process = by_pid.get(pid)
    if process is None:
        return f"pid {pid}, which is not visible here,"
    return f"pid {pid} ({process.user}, {process.title[:40]})"


def _mib(value: float | None) -> str:
    return "? MiB" if value is None else f"{value:.0f} MiB"


def _done(params: Mapping[str, object]) -> str:
    parts = [f"{len(_ints(params.get('gpus')))} GPUs at the baseline"] * bool(params.get("gpus"))
    parts += ["ports free"] * bool(params.get("ports"))
    if not params.get("had_nvidia"):
        parts.append("no NVIDIA device: the memory is the machine's, freed with the processes")
    return ", ".join(parts) or "nothing left"


def _ints(value: object) -> list[int]:
    return [int(item) for item in value] if isinstance(value, (list, tuple)) else []


def _dicts(value: object) -> list[Mapping[str, object]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _at(value: object, index: int) -> float | None:
    found = value.get(str(index)) if isinstance(value, Mapping) else None
    return float(found) if isinstance(found, (int, float)) else None
