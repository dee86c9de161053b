"""Plan a relaunch: everything that can be refused is refused before anything is stopped."""

from __future__ import annotations

from collections.abc import Sequence

from console.actions.journal import new_plan_id
from console.actions.launch import WATCH_S, Start, changes, preflight_step, watch_step
from console.model import Finding, Plan, Run, Server


def plan_relaunch(
    server: Server,
    stop: Plan,
    start: Start,
    *,
    before: Run | None,
    findings: Sequence[Finding] = (),
    preflight: bool = True,
    watch_s: float | None = WATCH_S,
) -> Plan:
    """Preflight → stop → clean → verify → launch → watch. ``before`` is the run replaced."""
    steps = [preflight_step(stop.host, start.argv, findings)] if preflight else []
    steps += [
        *stop.steps,
        *start.steps,
        watch_step(server, stop.host, start.run.run_id, watch_s),
    ]
    return Plan(
        id=new_plan_id("relaunch"),
        action="relaunch",
        host=stop.host,
        server=server.name,
        steps=tuple(steps),
        created_at=stop.created_at,
        summary=(
            f"relaunch {server.name} with {start.settings.label}",
            *stop.summary,
            *changes(before, start.run),
            *start.summary,
        ),
        findings=tuple(findings),
        offered=stop.offered,
    )
