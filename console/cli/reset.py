"""``specops reset-gpu``: reset a device whose driver asks for it and that nothing holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from console.cli.common import Cli, common, confirm_typed, connected, run_async
from console.cli.output import print_json, say, warn
from console.errors import UsageError

if TYPE_CHECKING:
    from console.model import Plan, StepResult


@click.command(name="reset-gpu")
@click.argument("host")
@click.argument("index", type=click.IntRange(0))
@click.option("--dry-run", is_flag=True, help="Show the plan; exit 1 if it would act.")
@click.option(
    "--confirm",
    "typed",
    metavar="HOST:INDEX",
    help="The typed confirmation, where nobody is asked.",
)
@click.option("--yes", is_flag=True, help="Not enough here: a reset wants --confirm.")
@common()
def reset_gpu(cli: Cli, host: str, index: int, dry_run: bool, typed: str | None, yes: bool) -> int:
    """Reset GPU INDEX of HOST: only when its driver asks for it and nothing holds it.

    HOST:INDEX is typed to confirm it. Exit status 4: it may not be reset, with the reason.
    """
    word = f"{host}:{index}"
    if typed is not None and typed != word:
        hint = f"this one is --confirm {word}"
        raise UsageError(f"{typed} is not what is to be reset", place="--confirm", hint=hint)
    return run_async(_run(cli, host, index, dry_run=dry_run, typed=typed, yes=yes))


async def _run(
    cli: Cli, name: str, index: int, *, dry_run: bool, typed: str | None, yes: bool
) -> int:
    from console.actions.audit import AuditLog
    from console.actions.executor import Executor
    from console.actions.plan import plan_lines
    from console.planning.resetting import plan_gpu_reset

    config = cli.config()
    host = config.host(name)
    async with connected(config, host, read_only=dry_run) as remote:
        plan = await plan_gpu_reset(remote, index)
        if not cli.json:
            for line in plan_lines(plan):
                say(line)
        if dry_run:
            return _report(cli, plan, index, [], dry_run=True)
        confirm_typed(f"Reset GPU {index} of {name}?", f"{name}:{index}", given=typed, yes=yes)
        tell = (lambda _line: None) if cli.json else (lambda line: warn(f"  {line}"))
        results = [r async for r in Executor(remote, AuditLog(), say=tell).execute(plan)]
        return _report(cli, plan, index, results, dry_run=False)


def _report(cli: Cli, plan: Plan, index: int, results: list[StepResult], *, dry_run: bool) -> int:
    from console.actions.plan import plan_to_json, result_to_json

    last = results[-1] if results else None
    code = (
        1 if dry_run else {"ok": 0, "skipped": 0, "refused": 4}.get(last.outcome if last else "", 6)
    )
    if cli.json:
        print_json(
            {
                "host": plan.host,
                "gpu": index,
                "dry_run": dry_run,
                "outcome": last.outcome if last else None,
                "detail": last.detail if last else None,
                "plan_id": plan.id,
                "plan": plan_to_json(plan)["steps"],
                "results": [result_to_json(result) for result in results],
            }
        )
    elif last is not None:
        say(f"{plan.host}: GPU {index}: {last.outcome}: {last.detail}")
    return code
