"""Snapshots out of the short form that the case files use.

A process needs a pid and a ``line`` (its title, split like a shell does) or a ``comm``; the rest
has the values of an ordinary daemon of the snapshot's user that has run for an hour.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.actions.codec import decode
from console.model import Gpu, Process, Run, Server, ServerState, Snapshot
from console.zombies import Attempt, Policy, Probe

BOOT = "b0070000-0000-4000-8000-000000000001"
NOW = 1_800_000_000.0
CASES = Path(__file__).parents[2] / "data" / "zombies"


@dataclass(frozen=True)
class Case:
    """One file: two samples of a host, what is known of its servers, what must come out."""

    name: str
    snapshot: Snapshot
    previous: Snapshot | None
    runs: tuple[Run, ...]
    servers: dict[str, Server]
    states: tuple[ServerState, ...]
    probes: dict[str, Probe]
    policy: Policy
    expect: list[dict[str, Any]]


def process(data: Mapping[str, Any], *, age_shift: float = 0.0) -> Process:
    """A process from the short form; start ticks follow from the pid unless ``start`` is given."""
    given = dict(data)
    pid = int(given.pop("pid"))
    line = given.pop("line", "")
    argv = tuple(given.pop("argv", shlex.split(line)))
    first = argv[0].rsplit("/", 1)[-1] if argv else ""
    identity = {"pid": pid, "start_ticks": given.pop("start", pid * 10), "boot_id": BOOT}
    values: dict[str, Any] = {
        "id": identity,
        "ppid": 1,
        "pgid": pid,
        "sid": pid,
        "uid": 0,
        "user": "root",
        "state": "S",
        "comm": first[:15],
        "argv": list(argv),
        "rss_mib": 500.0,
        "age_s": 3600.0,
        "cpu_ticks": 1000,
        "read_bytes": 0,
        "write_bytes": 0,
        "run_id": given.pop("run", None),
        "gpu_memory_mib": {int(k): v for k, v in given.pop("gpu", {}).items()},
    }
    values |= given
    values["age_s"] += age_shift
    values["task_states"] = {int(k): v for k, v in values.get("task_states", {}).items()}
    values.setdefault("threads", max(1, len(values["task_states"])))
    return decode(Process, values, place=f"process {pid}")


def snapshot(data: Mapping[str, Any], *, shift: float = 0.0) -> Snapshot:
    """A snapshot from the short form. GPUs' used memory follows from the processes if not given."""
    processes = tuple(process(item, age_shift=shift) for item in data.get("processes", ()))
    gpus = []
    for item in data.get("gpus", ()):
        index = int(item["index"])
        listed = [
            {"pid": p.id.pid, "memory_mib": p.gpu_memory_mib[index]}
            for p in processes
            if index in p.gpu_memory_mib
        ]
        listed += item.get("listed", [])
        used = 4.0 + sum(one["memory_mib"] or 0.0 for one in listed)
        rest = {k: v for k, v in item.items() if k != "listed"}
        values = {"uuid": f"GPU-{index}", "name": "H200", "memory_used_mib": used, **rest}
        values["processes"] = listed
        values.setdefault("memory_total_mib", 143771.0)
        gpus.append(decode(Gpu, values, place=f"gpu {index}"))
    listening = {port: p.id.pid for p in processes for port in p.listening}
    listening |= {int(k): v for k, v in data.get("listening", {}).items()}
    values = {
        "boot_id": BOOT,
        "time": NOW + shift,
        "uid": data.get("uid", 0),
        "processes": (),
        "gpu_source": "nvml" if gpus else None,
        "gpu_error": data.get("gpu_error"),
        "artefacts": data.get("artefacts", ()),
        "protected": data.get("protected", ()),
        "processes_complete": data.get("processes_complete", True),
    }
    base = decode(Snapshot, values, place="snapshot")
    return Snapshot(
        boot_id=base.boot_id,
        time=base.time,
        uid=base.uid,
        processes=processes,
        gpus=tuple(gpus),
        gpu_source=base.gpu_source,
        gpu_error=base.gpu_error,
        artefacts=base.artefacts,
        listening=listening,
        protected=base.protected,
        processes_complete=base.processes_complete,
    )


def earlier(data: Mapping[str, Any], change: Mapping[str, Any]) -> Snapshot:
    """The sample before: the same host, with what ``change`` says was different."""
    fields = change.get("processes", {})
    absent = set(change.get("absent", ()))
    processes = [
        {**item, **fields.get(str(item["pid"]), {})}
        for item in data.get("processes", ())
        if item["pid"] not in absent
    ]
    processes += change.get("only", [])
    before = {**data, **{k: v for k, v in change.items() if k in data or k == "gpus"}}
    before["processes"] = processes
    return snapshot(before, shift=-float(change.get("seconds", 5.0)))


def run(data: Mapping[str, Any]) -> Run:
    """A run record from the short form; ``launcher`` is a pid (or pid and start)."""
    values: dict[str, Any] = {
        "engine": "sglang",
        "host": "h",
        "argv": (),
        "env": {},
        "cwd": "/",
        "log": "/var/log/x.log",
        "port": 30000,
        "session": None,
        "unit": None,
        "launched_at": NOW - 3600,
        "launched_by": "op",
        **data,
    }
    pid = values.get("launcher")
    if isinstance(pid, int):
        values["launcher"] = {"pid": pid, "start_ticks": pid * 10, "boot_id": BOOT}
    values.setdefault("launcher", None)
    return decode(Run, values, place="run")


def probe(data: Mapping[str, Any]) -> Probe:
    """A probe; ``failed`` is a list of waits in seconds that followed each other up to now."""
    values = dict(data)
    waits = values.pop("failed", [])
    begun = NOW - sum(waits)
    attempts = []
    for wait in waits:
        attempts.append(Attempt(begun, wait, values.get("answer", "timeout")))
        begun += wait
    values.pop("answer", None)
    return decode(Probe, {**values, "attempts": [vars_of(a) for a in attempts]}, place="probe")


def vars_of(attempt: Attempt) -> dict[str, Any]:
    """An attempt as JSON values."""
    return {"begun": attempt.begun, "waited_s": attempt.waited_s, "answer": str(attempt.answer)}


def load(path: Path) -> Case:
    """A case from its file."""
    data = json.loads(path.read_text())
    now = data["now"]
    change = data.get("before")
    servers = {
        name: decode(Server, {"name": name, "host": "h", **item}, place=name)
        for name, item in data.get("servers", {}).items()
    }
    states = tuple(
        decode(ServerState, {"health": "unknown", "phase": "ready", **item}, place="state")
        for item in data.get("states", ())
    )
    return Case(
        path.stem,
        snapshot(now),
        None if change is None else earlier(now, change),
        tuple(run(item) for item in data.get("runs", ())),
        servers,
        states,
        {name: probe(item) for name, item in data.get("probes", {}).items()},
        decode(Policy, data.get("policy", {}), place="policy"),
        data["expect"],
    )
