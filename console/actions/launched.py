"""What every way of starting a server asks of the host right before."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

from console.actions.codec import decode
from console.actions.steps import Outcome
from console.model import Plan, Run, Snapshot, Step, StepKind
from console.remote import Remote

PORT_S = 5.0
"""A killed server's port may be held for a moment by what is still being taken apart."""


def starts(plan: Plan, host: str) -> Run | None:
    """The process that a plan starts on a host; ``None`` where systemd or docker starts it."""
    steps = (s for s in plan.steps if s.kind is StepKind.LAUNCH and s.host == host)
    found = next((step.params.get("run") for step in steps), None)
    return None if found is None else decode(Run, found, place="run")


async def still_alive(step: Step, remote: Remote) -> Outcome | None:
    """Whether the run that the step would start again has never ended: then it is left as it is.

    Its record may say that it was stopped on purpose, because that is noted before it is. With
    ``params["doubt_s"]`` it may be on its way out: it is looked at for so long.
    """
    name = step.params.get("unless_alive")
    old = next((r for r in await remote.runs() if r.run_id == name), None)
    if old is None:
        return None
    deadline = time.monotonic() + float(step.params.get("doubt_s", 0.0))
    while await _lives(old, remote):
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(0.5)
    else:
        return None
    if old.outcome == "stopped":
        served = "ready" if old.served else None
        await remote.save_run(replace(old, outcome=served, ended_at=None))
    return Outcome("ok", f"run {old.run_id} has never ended", {"run_id": old.run_id})


async def _lives(run: Run, remote: Remote) -> bool:
    processes = (await remote.snapshot(full=True)).processes
    members = [p for p in processes if p.id == run.launcher or p.run_id == run.run_id]
    return any(p.state not in ("Z", "X") for p in members)


async def at_start(remote: Remote, run: Run, snapshot: Snapshot) -> Run:
    """The run with what only the moment before its start can tell: memory, length of the log."""
    memory = {g.index: g.memory_used_mib for g in snapshot.gpus if g.memory_used_mib is not None}
    if snapshot.cpu is not None:
        memory[-1] = snapshot.cpu.memory_used_mib
    offset = 0
    if run.log:
        (log,) = await remote.stat([run.log])
        offset = log.size_bytes if log.kind == "file" else 0
    cursor = "" if run.log or run.unit is None else await _journal_end(remote)
    return replace(
        run, baseline_mib=memory, launched_at=snapshot.time, log_offset=offset, log_cursor=cursor
    )


async def _journal_end(remote: Remote) -> str:
    """The last entry of the host's journal: what a unit writes from now on comes after it."""
    words = ("journalctl", "--output=json", "--no-pager", "--quiet", "--lines=1")
    done = await remote.run(words, timeout_s=10.0)
    try:
        return str(json.loads(done.stdout.strip().rsplit(b"\n", 1)[-1])["__CURSOR"])
    except (ValueError, KeyError, TypeError):
        return ""


async def port_taken(remote: Remote, port: int, snapshot: Snapshot) -> str | None:
    """Who holds the port, after a moment for one that is just going; ``None`` once it is free."""
    deadline = time.monotonic() + PORT_S
    while port in snapshot.listening:
        if time.monotonic() > deadline:
            return f"port {port} is taken by pid {snapshot.listening[port] or '?'}"
        await asyncio.sleep(0.1)
        snapshot = await remote.snapshot()
    return None
