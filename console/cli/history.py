"""``runs``, ``resume``, ``undo`` and ``report``: what the hosts remember of launches and plans."""

from __future__ import annotations

import re
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from console.cli.common import Cli, ask, common, confirm, connected, connected_all, run_async
from console.cli.memory import Memory, latest_of, listed, own, remember
from console.cli.output import duration, paint, print_json, say, table, warn
from console.cli.report import report
from console.errors import HostError, Refused, UsageError, worst

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.actions.journal import PlanRecord
    from console.config import Config
    from console.model import Host, Plan, Run, StepResult
    from console.remote import Remote

__all__ = ["report", "resume", "runs", "undo"]

SHOWN = 20
DIED_OF = re.compile(r"(?:killed by|exited with) (SIG[A-Z0-9]+|code [0-9]+)")


@click.command()
@click.argument("names", nargs=-1, metavar="[HOST…]")
@click.option("-n", "last", type=click.IntRange(1), default=SHOWN, help=f"Newest N ({SHOWN}).")
@common()
def runs(cli: Cli, names: tuple[str, ...], last: int) -> int:
    """Launches that the hosts remember, and plans that were not finished."""
    config = cli.config()
    answers = run_async(ask(config, cli.select(config, names), remember))
    hosts: list[dict[str, Any]] = []
    latest = latest_of(answers)
    for answer in answers:
        memory = answer.value and own(answer.host.name, answer.value, latest)
        hosts.append(
            {
                "name": answer.host.name,
                "state": answer.state.value,
                "error": str(answer.error) if answer.error else None,
                "runs": [_run_to_json(r, memory) for r in memory.runs[:last]] if memory else [],
                "plans": [_plan_to_json(p, memory) for p in listed(memory, last)] if memory else [],
            }
        )
        if not cli.json:
            _say_host(answer.host.name, memory, answer.error, last)
    if cli.json:
        print_json({"hosts": hosts})
    return worst([3 for answer in answers if answer.error])


def _presets(run: Run) -> str:
    return "+".join(n for n in (run.speculative, run.nccl) if n and n != "default") or "-"


def _outcome(run: Run, memory: Memory) -> str:
    if run.run_id in memory.alive:
        return "running"
    known = run.outcome or "ended"
    known = "ended" if known in ("ready", "launched") else known
    if run.run_id in memory.remains:
        return f"{known}, remains"
    if run.cleared:
        return f"{known}{_cause(run)}, rest {run.cleared}"
    return f"{known}, seen" if run.acknowledged else known


def _cause(run: Run) -> str:
    """The signal or code that it died of: `` (SIGKILL)``; an exception is for ``report``."""
    found = DIED_OF.search(run.failure)
    return f" ({found[1]})" if found else ""


def _run_to_json(run: Run, memory: Memory | None) -> dict[str, Any]:
    from console.text import clean, mask, mask_argv, mask_env

    return {
        "run_id": run.run_id,
        "server": clean(run.server),
        "engine": run.engine,
        "running": memory is not None and run.run_id in memory.alive,
        "remains": memory is not None and run.run_id in memory.remains,
        "outcome": run.outcome,
        "failure": mask(clean(run.failure)) or None,
        "cleared": run.cleared or None,
        "acknowledged": run.acknowledged,
        "launched_at": run.launched_at,
        "launched_by": clean(run.launched_by),
        "ended_at": run.ended_at,
        "adopted": run.adopted,
        "speculative": run.speculative,
        "nccl": run.nccl,
        "port": run.port,
        "model": clean(run.model),
        "log": clean(run.log),
        "unit": run.unit,
        "pid": run.launcher.pid if run.launcher else None,
        "argv": [clean(word) for word in mask_argv(run.argv)],
        "env": {clean(k): clean(v) for k, v in mask_env(run.env).items()},
        "phases": [{"name": clean(name), "seconds": seconds} for name, seconds in run.phases],
        "start_s": _start_s(run),
    }


def _plan_to_json(record: PlanRecord, memory: Memory) -> dict[str, Any]:
    from console.text import clean

    left = next((p for p in memory.pending if p.record.plan.id == record.plan.id), None)
    under_way = left is not None and memory.owner is not None and record.plan.id in memory.owner
    return {
        "plan_id": record.plan.id,
        "action": record.plan.action,
        "server": record.plan.server,
        "started_at": record.started_at,
        "by": clean(record.by),
        "outcome": record.outcome,
        "steps": len(record.plan.steps),
        "done": sorted(record.done),
        "in_doubt": record.in_doubt,
        "under_way": under_way,
        "ways": list(left.ways) if left is not None and not under_way else [],
    }


def _when(seconds: float) -> str:
    return time.strftime("%m-%d %H:%M", time.localtime(seconds))


def _start_s(run: Run) -> float | None:
    """How long its start took: to ready, or to its failure; unknown where nobody saw it ready."""
    from console.watch.watching import start_s

    return start_s(run) if run.served else sum(s for _, s in run.phases) or None


def _say_host(name: str, memory: Memory | None, error: object, last: int) -> None:
    from console.text import clean

    say(paint(name, "bold"))
    if memory is None:
        warn(str(error))
        return
    if not memory.runs:
        say("  no run is recorded")
    rows = [
        [f"  {r.run_id}", clean(r.server, limit=24), _when(r.launched_at), _outcome(r, memory),
         duration(_start_s(r)), _presets(r), clean(r.launched_by, limit=30)]
        for r in memory.runs[:last]
    ]  # fmt: skip
    for line in table(rows, ["  RUN", "SERVER", "LAUNCHED", "STATE", "START", "PRESETS", "BY"]):
        say(line)
    for one in memory.pending:
        record = one.record
        under_way = memory.owner is not None and record.plan.id in memory.owner
        how = "under way" if under_way else record.outcome
        what = f"plan {record.plan.id} {how} after {len(record.done)} of "
        what += f"{len(record.plan.steps)} steps, {_when(record.started_at)}, {record.by}"
        say(paint(f"  {clean(what)}", "yellow"))
        if not under_way:
            say(f"      {one.commands}")


# ---- resume and undo


@click.command()
@click.argument("plan", metavar="PLAN")
@click.option("--host", "name", metavar="HOST", help="Where it is; else every host is asked.")
@click.option("--dry-run", is_flag=True, help="Show what is left; exit 1 if it would act.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common()
def resume(cli: Cli, plan: str, name: str | None, dry_run: bool, yes: bool) -> int:
    """Finish an interrupted plan from where its journal ends, from any console."""
    return run_async(_again(cli, plan, name, dry_run=dry_run, yes=yes, undo=False))


@click.command()
@click.argument("plan", metavar="PLAN")
@click.option("--host", "name", metavar="HOST", help="Where it is; else every host is asked.")
@click.option("--dry-run", is_flag=True, help="Show what it would do; exit 1 if it would act.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common()
def undo(cli: Cli, plan: str, name: str | None, dry_run: bool, yes: bool) -> int:
    """Undo what a plan did, last step first. A process that was ended stays ended."""
    return run_async(_again(cli, plan, name, dry_run=dry_run, yes=yes, undo=True))


async def holder(cli: Cli, config: Config, plan_id: str, name: str | None) -> Host:
    """The host whose journal holds the plan, the fullest of them where its nodes have copies.

    Raises:
        UsageError: no host knows it.
        HostError: no host that answers knows it, and one did not answer.
    """
    if name is not None:
        return config.host(name)

    from console.actions.journal import plan_records

    async def known(remote: Remote) -> tuple[bool, int, bool]:
        mine = [rows for name, rows in (await remote.journals()).items() if name == plan_id]
        records = [r for r in await plan_records(remote) if r.plan.id == plan_id]
        own = any(record.plan.host == remote.host.name for record in records)
        return bool(mine), sum(map(len, mine)), own

    answers = await ask(config, cli.select(config, ()), known)
    having = [answer for answer in answers if answer.value is not None and answer.value[0]]
    if having:  # the latest of its copies; of equal ones the plan's own host
        return max(having, key=lambda answer: answer.value or (False, 0, False)).host
    lost = [answer for answer in answers if answer.error is not None]
    if lost:
        names = ", ".join(answer.host.name for answer in lost)
        raise HostError(f"no host that answers knows plan {plan_id}", hint=f"not asked: {names}")
    raise UsageError(f"no plan {plan_id}", hint="specops runs lists the unfinished ones")


async def _again(
    cli: Cli, plan_id: str, name: str | None, *, dry_run: bool, yes: bool, undo: bool
) -> int:
    from console.actions.audit import AuditLog
    from console.actions.journal import PlanRecord, find
    from console.planning.planner import Planner

    config = cli.config()
    host = await holder(cli, config, plan_id, name)
    async with AsyncExitStack() as stack:
        remote = await stack.enter_async_context(connected(config, host, read_only=dry_run))
        record = await find(remote, plan_id)
        server = config.servers.get(record.plan.server or "")
        every = (*(step.host for step in record.plan.steps), *(server.nodes if server else ()))
        names = [name for name in every if name != host.name]
        try:
            others = await stack.enter_async_context(
                connected_all(config, names, read_only=dry_run)
            )
        except HostError as error:
            error.hint = _needs(error, record, host)
            raise
        planner = Planner(remote, config, cli.presets(), AuditLog().user, others)
        if undo:
            back = await planner.undo(plan_id)
            record = PlanRecord(back, record.by, record.started_at, "interrupted")
        else:
            record = await planner.resume(plan_id)
        _only_here(record.plan, host, config)
        if not cli.json:
            _say_plan(record)
        if dry_run:
            if cli.json:
                print_json({**_document(record, host.name, []), "dry_run": True})
            return 1 if record.plan.steps else 0
        confirm(f"{'Undo' if undo else 'Resume'} {plan_id} on {host.name}?", yes=yes)
        return await _carry_out(cli, config, remote, others, record)


def _needs(error: HostError, record: PlanRecord, host: Host) -> str:
    """What can be done where another host of the plan is not reached."""
    plan = record.plan
    said = f"plan {plan.id}, of which {host.name} has the journal, needs it: nothing was changed"
    stop = f"specops stop {plan.server} ends what runs on its other hosts" if plan.server else ""
    return "; ".join(filter(None, (error.hint, said, stop)))


def _only_here(plan: Plan, host: Host, config: Config) -> None:
    """A host's journal says what is to be done to it and to its containers, and to nobody else.

    The nodes of one server, as hosts.yaml has them, run each other's code: they are one here.

    Raises:
        Refused: it says more.
    """
    server = config.servers.get(plan.server or "")
    nodes = server.nodes if server is not None and host.name in server.nodes else ()
    for name in dict.fromkeys((plan.host, *(step.host for step in plan.steps))):
        known = config.hosts.get(name)
        inside = known is not None and known.outer is not None and known.outer.host == host.name
        if name != host.name and not inside and name not in nodes:
            hint = "a plan that another host's file made up is not carried out"
            raise Refused(f"its journal on {host.name} is for {name}", place=plan.id, hint=hint)


async def _carry_out(
    cli: Cli, config: Config, remote: Remote, others: Mapping[str, Remote], record: PlanRecord
) -> int:
    from console.actions.audit import AuditLog
    from console.actions.executor import Executor
    from console.actions.serving import Serving
    from console.planning.enginecheck import ask_engine

    tell = (lambda _line: None) if cli.json else (lambda line: warn(f"  {line}"))
    handlers = Serving(config.servers, engine_check=ask_engine).handlers()
    executor = Executor(remote, AuditLog(), handlers=handlers, others=others, say=tell)
    results: list[StepResult] = []
    async for result in executor.execute(record.plan, done=record.done, in_doubt=record.in_doubt):
        results.append(result)
        if not cli.json:
            _say_result(record.plan, result)
    document = _document(record, remote.host.name, results)
    if cli.json:
        print_json(document)
    elif document["exit_code"] == 0:
        say(f"plan {record.plan.id}: done")
    return int(document["exit_code"])


def _document(record: PlanRecord, host: str, results: list[StepResult]) -> dict[str, Any]:
    from console.actions.plan import plan_to_json, result_to_json

    plan = plan_to_json(record.plan)
    bad = [r for r in results if r.outcome in ("failed", "refused")]
    outcome = (
        bad[-1].outcome if bad else "ok" if results or not record.plan.steps else "interrupted"
    )
    code = 0
    if bad:
        code = int(bad[-1].data.get("exit_code", 4 if outcome == "refused" else 6))
    return {
        "plan_id": record.plan.id,
        "action": record.plan.action,
        "host": host,
        "outcome": outcome,
        "exit_code": code,
        "plan": plan["steps"],
        "done_before": sorted(record.done),
        "results": [result_to_json(result) for result in results],
    }


def _say_plan(record: PlanRecord) -> None:
    from console.actions.plan import plan_lines

    for line in plan_lines(record.plan):
        say(line)
    for index in sorted(record.done):
        say(paint(f"step {index + 1} is done", "dim"))
    if record.in_doubt is not None:
        say(paint(f"step {record.in_doubt + 1} was begun; whether it ended is looked at", "yellow"))


def _say_result(plan: Plan, result: StepResult) -> None:
    from console.text import clean

    step = plan.steps[result.step]
    head = f"{result.step + 1} {step.kind.value:<10} {result.outcome:<8}"
    say(f"{head} {duration(result.seconds):>10}  {clean(result.detail)}")
