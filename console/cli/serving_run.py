"""Carry a plan of serving out on the command line, and say how it went."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from console.actions.codec import decode
from console.actions.ended import TOLD, outcome_of, run_notify_command
from console.actions.executor import Executor
from console.actions.plan import step_to_json
from console.actions.serving import EngineCheck, Serving
from console.cli.documents import nodes_to_json, phases_to_json
from console.cli.output import duration, print_json, say, warn
from console.cli.serve import Asked, Ended, StateLine, document, say_end
from console.diagnosis import diagnosis_to_json
from console.errors import SpecopsError
from console.model import Plan, ServerState, StepKind, StepResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.actions.audit import AuditLog
    from console.cli.common import Cli
    from console.config import Config
    from console.remote import Remote


async def carry_out(
    cli: Cli,
    remotes: Mapping[str, Remote],
    config: Config,
    audit: AuditLog,
    plan: Plan,
    asked: Asked,
    begun: Begun,
) -> int:
    """Run the plan and print how it went; returns the exit code."""
    results = await execute(remotes, config, audit, plan, quiet=cli.json)
    seconds = time.monotonic() - begun.at
    report = summarise(plan, results, seconds)
    if report["outcome"] in ("failed", "stalled") and asked.rollback:
        report["rollback"] = await _rollback(remotes, config, audit, plan, cli)
    if cli.json:
        print_json({**report, "timings": timings(plan, results, seconds, begun)})
    else:
        _say(plan, results, report, seconds)
    await notify(config, report)
    return int(report["exit_code"])


async def execute(
    remotes: Mapping[str, Remote], config: Config, audit: AuditLog, plan: Plan, *, quiet: bool
) -> list[StepResult]:
    """All results of a plan; says each step as it goes unless ``quiet``. ``remotes``: by host."""
    tell = (lambda _state: None) if quiet else StateLine(plan.server or "")
    serving = Serving(config.servers, engine_check=engine_check(plan), tell=tell)
    executor = Executor(
        remotes[plan.host],
        audit,
        handlers=serving.handlers(),
        others=remotes,
        say=(lambda _line: None) if quiet else (lambda line: warn(f"  {line}")),
    )
    results: list[StepResult] = []
    async for result in executor.execute(plan):
        results.append(result)
        step = plan.steps[result.step]
        if not quiet:
            text = f"{result.step + 1} {step.kind.value:<10} {result.outcome:<8}"
            warn(f"{text} {duration(result.seconds):>10}  {result.detail}")
    return results


@dataclass(frozen=True, slots=True)
class Begun:
    """What passed before the first step: since ``at`` (monotonic, s).

    ``connect_s`` to log in and start the agent; ``answer_s`` waited for nothing but the server's
    own word whether it serves and what is under way.
    """

    at: float
    connect_s: float = 0.0
    answer_s: float = 0.0


def timings(
    plan: Plan, results: list[StepResult], seconds: float, begun: Begun
) -> dict[str, float]:
    """Where the time went, s: what had to be waited for by name, and all the rest.

    ``connect``: the login and the agent's start; ``drain``: the server's answer, requests under way
    and its own end; ``release``: processes and device memory going; ``engine_check``: the host's
    own engine asked; ``server_start``: from the launch to ready; ``confirm``: after it, one real
    completion.
    """
    waits = ("connect", "drain", "release", "engine_check", "server_start", "confirm")
    named = dict.fromkeys(waits, 0.0)
    named["connect"], named["drain"] = begun.connect_s, begun.answer_s
    asked = False
    for result in results:
        step = plan.steps[result.step]
        took = float(result.data.get("seconds", result.seconds))
        if step.kind in (StepKind.DRAIN, StepKind.STOP_UNIT, StepKind.RUN):  # RUN: docker stop
            named["drain"] += took
        elif step.kind is StepKind.WAIT_GONE and not asked:
            named["drain"], asked = named["drain"] + took, True  # SIGTERM's; the next is SIGKILL's
        elif step.kind in (StepKind.WAIT_GONE, StepKind.VERIFY):
            named["release"] += took
        elif step.kind is StepKind.PREFLIGHT:
            named["engine_check"] += took
        elif step.kind is StepKind.WATCH:
            named["server_start"] += took
            named["confirm"] += result.seconds - took
    named["other"] = seconds - sum(named.values())
    return {f"{name}_s": round(value, 3) for name, value in named.items()}


def engine_check(plan: Plan) -> EngineCheck | None:
    """How to ask the host's own engine, where the plan has a step that asks."""
    if not any(step.kind is StepKind.PREFLIGHT for step in plan.steps):
        return None
    from console.planning.enginecheck import ask_engine

    return ask_engine


def summarise(plan: Plan, results: list[StepResult], seconds: float) -> dict[str, Any]:
    """The contract's document of how a plan went."""
    last = results[-1] if results else None
    step = plan.steps[last.step] if last else None
    state: ServerState | None = None
    if last and "state" in last.data:
        state = decode(ServerState, last.data["state"], place="state")
    outcome, code = outcome_of(plan, last)
    body = document(
        plan.server or "", outcome, plan, _phase(state, outcome), seconds, exit_code=code
    )
    if state is not None:
        body["phases"] = phases_to_json(state)
        body["diagnosis"] = diagnosis_to_json(state.diagnosis) if state.diagnosis else None
        body["health"] = state.health.value
        body["run_id"] = state.run_id
        body["start_s"] = last.data.get("start_s") if last else None
        body["accept_length"] = state.accept_length
        body["nodes"] = nodes_to_json(state)
    body["findings"] += [f for r in results for f in r.data.get("findings", ())]
    body["dump"] = next((r.data["path"] for r in results if _took_stacks(plan, r)), None)
    if last is not None and step is not None:
        body["detail"] = last.detail
        body["warnings"] = list(last.data.get("warnings", ()))
        body["failed_step"] = step_to_json(step) if code else None
    return body


def _took_stacks(plan: Plan, result: StepResult) -> bool:
    return plan.steps[result.step].kind is StepKind.DUMP and "path" in result.data


def _phase(state: ServerState | None, outcome: str | None) -> str | None:
    if state is not None:
        return state.phase.value
    return "stopped" if outcome == "stopped" else None


async def _rollback(
    remotes: Mapping[str, Remote], config: Config, audit: AuditLog, plan: Plan, cli: Cli
) -> dict[str, Any]:
    """Start the last run that served, after ending what is left of the failed one."""
    from console.planning.planner import Planner

    server = config.server(plan.server or "")
    remote = remotes[plan.host]
    served = [r for r in await remote.runs() if r.server == server.name and r.served]
    if not served:
        return {"outcome": "refused", "detail": "no run of it is known to have served"}
    last = max(served, key=lambda run: run.launched_at)
    planner = Planner(remote, config, cli.presets(), audit.user, remotes)
    try:
        back = await planner.roll_back(server, last)
        results = await execute(remotes, config, audit, back, quiet=cli.json)
    except SpecopsError as error:
        return {"outcome": "failed", "detail": str(error)}
    outcome, _ = outcome_of(back, results[-1] if results else None)
    return {"outcome": outcome, "to_run": last.run_id, "plan_id": back.id}


def _say(plan: Plan, results: list[StepResult], report: dict[str, Any], seconds: float) -> None:
    last = results[-1] if results else None
    name = plan.server or ""
    if last is not None and "state" in last.data:
        state = decode(ServerState, last.data["state"], place="state")
        start_s = last.data.get("start_s")
        ended = Ended(report["outcome"], last.detail, state, start_s)
        say_end(name, ended, f"all of it {duration(seconds)}")
    else:
        detail = last.detail if last else ""
        word = str(report["outcome"] or "done").upper()
        say(f"{name} {word} after {duration(seconds)}  {detail}")
    if report["exit_code"]:
        warn(f"plan {plan.id}: specops resume {plan.id}, or specops undo {plan.id}")


async def notify(config: Config, report: dict[str, Any]) -> None:
    """Bell, OSC 9 and the operator's own command when a start is ready or has failed."""
    outcome = str(report["outcome"])
    if outcome not in TOLD:
        return
    text = f"{report['server']} {outcome}"
    if sys.stderr.isatty():
        if config.notify.bell:
            sys.stderr.write("\a")
        if config.notify.osc9:
            sys.stderr.write(f"\x1b]9;{text}\x07")
        sys.stderr.flush()
    if command := config.notify.command:
        failed = await run_notify_command(command, str(report["server"]), outcome, sys.stderr)
        if failed:
            warn(failed)
