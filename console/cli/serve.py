"""``launch``, ``stop``, ``relaunch`` and ``watch``: a server's life from the command line."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from console.cli.common import Cli, common, confirm, connected_all, run_async
from console.cli.output import duration, paint, print_json, say, warn
from console.errors import HostError, PreflightFailed, UsageError

if TYPE_CHECKING:
    from console.model import Plan, Server, ServerState
    from console.planning.planner import Planner


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a command that serves."""

    preset: str | None = None
    nccl: str | None = None
    wait: bool = False
    timeout: float | None = None
    skip_preflight: bool = False
    dry_run: bool = False
    yes: bool = False
    rollback: bool = False
    dump: bool = False


DUMP = click.option(
    "--dump", is_flag=True, help="First keep the stacks of one that does not answer (py-spy)."
)


def serving(*, presets: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that launch, stop and relaunch share."""
    options = [
        click.option("--dry-run", is_flag=True, help="Show the plan; exit 1 if it would act."),
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option(
            "--timeout",
            type=click.FloatRange(1),
            metavar="S",
            help="Give up watching after S seconds."
            if presets
            else "Seconds for requests to finish, and again until SIGKILL.",
        ),
    ]
    if presets:
        options += [
            click.option("--preset", metavar="P", help="A speculative or server preset."),
            click.option("--nccl", metavar="N", help="An NCCL preset."),
            click.option("--wait", is_flag=True, help="Watch until ready, failed or stalled."),
            click.option("--skip-preflight", is_flag=True, help="Start it even if it would fail."),
        ]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@click.command()
@click.argument("server")
@serving(presets=True)
@common()
def launch(cli: Cli, server: str, **options: Any) -> int:
    """Start a server: preflight, launch; with --wait, watch until it is ready."""
    return run_async(_serve(cli, "launch", server, Asked(**options)))


@click.command()
@click.argument("server")
@serving(presets=False)
@DUMP
@common()
def stop(cli: Cli, server: str, **options: Any) -> int:
    """Stop a server: let requests finish, end its processes, clean up, verify memory.

    One that has failed and is gone is acknowledged: its state is then stopped, not failed.
    """
    return run_async(_serve(cli, "stop", server, Asked(**options)))


@click.command()
@click.argument("server")
@serving(presets=True)
@DUMP
@click.option("--rollback", is_flag=True, help="If it fails, start the last run that served.")
@common()
def relaunch(cli: Cli, server: str, **options: Any) -> int:
    """Preflight, stop, clean, verify memory, launch, watch. Refuses before anything is stopped."""
    return run_async(_serve(cli, "relaunch", server, Asked(**options)))


@click.command()
@click.argument("server")
@click.option("--timeout", type=click.FloatRange(1), metavar="S", help="Give up after so long.")
@common()
def watch(cli: Cli, server: str, timeout: float | None) -> int:
    """Follow a start until it is ready (0), has failed (6) or stalls (7)."""
    from console.cli.watch import watch_server

    return run_async(watch_server(cli, server, timeout))


# ---- plans


async def _serve(cli: Cli, action: str, name: str, asked: Asked) -> int:
    from console.actions.audit import AuditLog
    from console.actions.dump import with_dump
    from console.planning.planner import Planner

    check_asked(asked)
    config = cli.config()
    server = config.server(name)
    presets = cli.presets()
    audit = AuditLog()
    started = time.monotonic()
    lost: dict[str, HostError] = {}  # what can be stopped is stopped, whatever became of the rest
    kept = lost if action == "stop" else None
    async with connected_all(config, server.nodes, lost=kept) as remotes:
        connect_s = time.monotonic() - started
        for error in lost.values():
            warn(str(error), head="specops")
        planner = Planner(next(iter(remotes.values())), config, presets, audit.user, remotes)
        plan = await _plan(planner, action, server, asked)
        if asked.dump:
            if not plan.offered:
                warn(f"{name}: it answers or does not run: no stacks are taken", head="specops")
            plan = with_dump(plan)
        refused = _errors(plan)
        if asked.dry_run:
            return _dry_run(cli, plan, refused)
        if not plan.steps:
            return _nothing(cli, server, plan) or (HostError.exit_code if lost else 0)
        if refused:
            return _refuse(cli, plan, time.monotonic() - started)
        if not cli.json:
            _say_plan(plan)
        confirm(f"{plan.summary[0]} on {' and '.join(remotes)}?", yes=asked.yes)
        from console.cli.serving_run import Begun, carry_out

        begun = Begun(started, connect_s, planner.answer_s)
        code = await carry_out(cli, remotes, config, audit, plan, asked, begun)
        return code or (HostError.exit_code if lost else 0)


async def _plan(planner: Planner, action: str, server: Server, asked: Asked) -> Plan:
    from console.actions.launch import WATCH_S
    from console.planning.planner import Options
    from console.runners.settings import choose

    if action == "stop":
        return await planner.stop(server, Options(stop_s=asked.timeout))
    watch_s = asked.timeout or WATCH_S
    options = Options(not asked.skip_preflight, watch_s if asked.wait else None)
    choice = choose(planner.presets, asked.preset, asked.nccl)
    make = planner.launch if action == "launch" else planner.relaunch
    return await make(server, choice, options)


def _errors(plan: Plan) -> list[str]:
    return [f.message for f in plan.findings if f.severity.value == "error"]


def _dry_run(cli: Cli, plan: Plan, refused: list[str]) -> int:
    from console.actions.plan import plan_to_json

    document = plan_to_json(plan)
    if cli.json:
        print_json(
            {
                "server": plan.server,
                "outcome": "refused" if refused else None,
                "dry_run": True,
                "phase": None,
                "seconds": 0.0,
                "phases": [],
                "diagnosis": None,
                "plan": document["steps"],
                "plan_id": plan.id,
                "summary": document["summary"],
                "findings": document["findings"],
            }
        )
    else:
        _say_plan(plan)
    if refused:
        return 5
    return 1 if plan.steps else 0


def _nothing(cli: Cli, server: Server, plan: Plan) -> int:
    """Nothing to do: it is stopped already."""
    if cli.json:
        print_json(document(server.name, "stopped", plan, "stopped", 0.0))
    else:
        say(plan.summary[0])
    return 0


def _refuse(cli: Cli, plan: Plan, seconds: float) -> int:
    if cli.json:
        print_json(document(plan.server or "", "refused", plan, None, seconds))
        warn("; ".join(_errors(plan)), head="specops: preflight")
        return PreflightFailed.exit_code
    _say_plan(plan)
    raise PreflightFailed(
        "; ".join(_errors(plan)),
        place=plan.server or "",
        hint="nothing was touched; --skip-preflight starts it all the same",
    )


def document(
    server: str,
    outcome: str | None,
    plan: Plan | None,
    phase: str | None,
    seconds: float,
    **more: Any,
) -> dict[str, Any]:
    """The contract's document of launch, relaunch, watch and stop."""
    from console.actions.plan import plan_to_json

    body = plan_to_json(plan) if plan is not None else None
    return {
        "server": server,
        "outcome": outcome,
        "phase": phase,
        "seconds": round(seconds, 3),
        "phases": [],
        "diagnosis": None,
        "plan": body["steps"] if body else [],
        "plan_id": plan.id if plan else None,
        "findings": body["findings"] if body else [],
        **more,
    }


def _say_plan(plan: Plan) -> None:
    from console.actions.plan import plan_lines
    from console.text import clean

    for line in plan_lines(plan):
        say(line)
    for finding in plan.findings:
        style = {"error": "red", "warning": "yellow"}.get(finding.severity.value, "dim")
        say(paint(clean(f"  {finding.severity.value}: {finding.message}"), style))
        if finding.fix:
            say(clean(f"      fix: {finding.fix}"))


# ---- how it ended


def exit_of(outcome: str | None) -> int:
    """The exit code of an outcome: a stopped server is not ready, and nothing has failed."""
    return {None: 0, "ready": 0, "stopped": 1, "failed": 6, "stalled": 7, "refused": 5}[outcome]


class StateLine:
    """Says each new phase on stderr, once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = ""

    def __call__(self, state: ServerState) -> None:
        """Show a state if it is another phase than before."""
        text = f"{state.phase.value}, health {state.health.value}"
        if text != self._last:
            self._last = text
            warn(text, head=self._name)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a watch ended. ``start_s``: from the launch to ready, as the run's record has it."""

    outcome: str | None
    detail: str
    state: ServerState
    start_s: float | None = None


def say_end(name: str, ended: Ended, around: str) -> None:
    """How it ended, for people: phases with their times, then the diagnosis.

    ``around`` says what else took how long: the start is one time, whoever tells it.
    """
    from console.cli.logs import say_diagnosis

    state = ended.state
    for span in state.phases:
        if span.phase.value not in ("ready", "failed", "stopped"):
            say(f"  {span.phase.value:<16} {duration(span.seconds):>12}")
    word = ended.outcome or "started"
    style = {"ready": "green", "failed": "red", "stalled": "yellow"}.get(word, "bold")
    text = f"{name} {word.upper()}"
    if word == "ready" and ended.start_s is not None:
        text += f" {duration(ended.start_s)} after its launch"
    first, _, rest = ended.detail.partition("; ")
    detail = rest if word in ("ready", first) else ended.detail
    say(paint(text, style, "bold") + f" ({around})" + f"  {detail}" * bool(detail))
    if state.note is not None:
        say(paint(f"  {state.note}", "yellow"))
    if state.diagnosis is not None:
        say_diagnosis(state.diagnosis)


def check_asked(asked: Asked) -> None:
    """Refuse options that contradict each other."""
    if asked.rollback and not asked.wait:
        raise UsageError("--rollback without --wait", hint="only a watched start can fail")
