"""``specops kill-zombies``: kill what should not be, clean up, prove that memory is back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from console.cli.common import (
    Answer,
    Cli,
    ask,
    common,
    confirm,
    confirm_typed,
    connected,
    run_async,
)
from console.cli.output import mib, paint, print_json, say, warn
from console.errors import HostError, Refused, SpecopsError, UsageError, worst

if TYPE_CHECKING:
    from console.actions.audit import AuditLog
    from console.actions.kill import Chosen
    from console.config import Config
    from console.config.presets import Presets
    from console.model import Host, HostView, Plan, StepResult, Zombie, ZombieKind
    from console.remote import Remote

KINDS = (
    "orphan", "half-dead", "headless", "never-ready", "hung", "leftover", "ghost-memory",
    "stuck-io", "defunct", "foreign",
)  # fmt: skip
WATCH_MORE_S = 125.0
"""A start without progress is called never-ready after 120 s of looking at it, a server whose log
and count of tokens stand is called hung after 60 s."""


@dataclass(slots=True)
class Work:
    """What is to be done on one host, and how it went."""

    host: Host
    view: HostView | None = None
    plan: Plan | None = None
    error: SpecopsError | None = None
    results: list[StepResult] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class How:
    """How it is gone about: ``deep`` asks servers to generate, ``dump`` keeps stacks first."""

    deep: bool
    dump: bool
    dry_run: bool
    yes: bool


@click.command(name="kill-zombies")
@click.argument("names", nargs=-1, metavar="[HOST…]")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only these kinds; repeat it."
)
@click.option("--named", multiple=True, metavar="ID|PID", help="Exactly these, foreign ones too.")
@click.option("--quick", is_flag=True, help="Do not ask servers to generate: hung ones stay.")
@click.option("--dump", is_flag=True, help="First keep the stacks of hung servers (py-spy).")
@click.option("--dry-run", is_flag=True, help="Show the plan; exit 1 if it would act.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common()
def kill_zombies(
    cli: Cli,
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    named: tuple[str, ...],
    quick: bool,
    dump: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Kill what is killable, clean what it left, verify that memory is back.

    Exit status 0: all killable ones are gone and clean; 6: one is not. Processes of others are
    left alone unless named.
    """
    from console.model import ZombieKind

    config = cli.config()
    hosts = cli.select(config, names)
    if not dry_run and not yes:
        _need_somebody()
    wanted = tuple(ZombieKind(kind) for kind in kinds)
    return run_async(_run(cli, config, hosts, wanted, named, How(not quick, dump, dry_run, yes)))


def _need_somebody() -> None:
    """Refuse at once, not after half a minute of looking."""
    import sys

    from console.errors import Refused

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        hint = "add --yes, or --dry-run to see what would be done"
        raise Refused("nobody to confirm it", hint=hint)


async def _run(
    cli: Cli,
    config: Config,
    hosts: list[Host],
    kinds: tuple[ZombieKind, ...],
    named: tuple[str, ...],
    how: How,
) -> int:
    from console.actions.audit import AuditLog
    from console.actions.dump import with_dump

    audit, presets = AuditLog(), cli.presets()

    async def question(remote: Remote) -> tuple[Plan, HostView]:
        return await _plan(remote, config, presets, audit, kinds, named, how.deep)

    answers = await ask(config, hosts, question)
    works = [_work(answer) for answer in answers]
    for work in works:
        work.plan = with_dump(work.plan) if work.plan and how.dump else work.plan
    _check_named(works, named)
    todo = [w for w in works if w.plan is not None and w.plan.steps]
    if how.dry_run or not todo:
        return _report(cli, works, kinds, named, dry_run=how.dry_run)
    if not cli.json:
        for work in todo:
            _say_plan(work)
    count = sum(_chosen_count(w, kinds, named) for w in todo)
    places = ", ".join(w.host.name for w in todo)
    words = f"Kill or clean {count} on {places}?"
    word = next((w.plan.confirm for w in todo if w.plan is not None and w.plan.confirm), None)
    if word is not None and not how.yes:
        confirm_typed(words, word)  # with --yes it is the name that was typed after --named
    else:
        confirm(words, yes=how.yes)
    await asyncio.gather(*(_carry_out(cli, config, presets, audit, work) for work in todo))
    return _report(cli, works, kinds, named, dry_run=False)


async def _plan(
    remote: Remote,
    config: Config,
    presets: Presets,
    audit: AuditLog,
    kinds: tuple[ZombieKind, ...],
    named: tuple[str, ...],
    deep: bool,
) -> tuple[Plan, HostView]:
    """A plan for one host; a start that only lacks being watched is watched long enough."""
    from console.actions.kill import choose
    from console.planning.planner import Planner
    from console.watch.observe import Depth, Observer
    from console.zombies import lacks_watching

    def wanted(view: HostView) -> bool:
        mine = choose(view.zombies, kinds=kinds, named=named).skipped
        return any(lacks_watching(zombie) for zombie, why in mine if why == zombie.why_not)

    planner = Planner(remote, config, presets, audit.user)
    observer = Observer(remote, config.servers_on(remote.host.name))
    try:
        view = await observer.twice(Depth.DEEP if deep else Depth.QUICK)
        if deep and wanted(view):
            warn("a server that does nothing: watching it for up to two minutes", head="specops")
            loop = asyncio.get_running_loop()
            until = loop.time() + WATCH_MORE_S
            while wanted(view) and loop.time() < until:
                await asyncio.sleep(2.0)
                view = await observer.observe(Depth.QUICK)
            observer.keep()
    finally:
        await observer.close()
    return planner.kill_plan(view, kinds, named), view


def _check_named(works: list[Work], named: tuple[str, ...]) -> None:
    """A name that fits nothing is a slip, unless a host that is lost may have it."""
    if any(w.view is None for w in works):
        return
    zombies = [z for w in works if w.view is not None for z in w.view.zombies]
    known = {z.id for z in zombies} | {str(z.pid) for z in zombies if z.pid is not None}
    for name in named:
        if name not in known:
            places = ", ".join(w.host.name for w in works)
            hint = f"known: {', '.join(sorted(z.id for z in zombies)) or 'none'}"
            raise UsageError(f"no zombie '{name}' on {places}", place="--named", hint=hint)


def _work(answer: Answer[tuple[Plan, HostView]]) -> Work:
    plan, view = answer.value or (None, None)
    return Work(answer.host, view, plan, answer.error)


async def _carry_out(
    cli: Cli, config: Config, presets: Presets, audit: AuditLog, work: Work
) -> None:
    """Run one host's plan; a lost link is that host's failure and nobody else's."""
    from console.actions.executor import Executor
    from console.planning.planner import Planner

    assert work.plan is not None
    try:
        async with connected(config, work.host) as remote:
            planner = Planner(remote, config, presets, audit.user)
            executor = Executor(remote, audit, recheck=planner.still_due)
            async for result in executor.execute(work.plan):
                work.results.append(result)
                if not cli.json:
                    step = work.plan.steps[result.step]
                    text = f"{work.host.name}: {step.kind.value} {result.outcome}"
                    warn(f"{text}  {result.detail}")
            await planner.note_killed(work.plan, work.results)
    except SpecopsError as error:
        work.error = error


# ---- what came of it


def _chosen_count(work: Work, kinds: tuple[ZombieKind, ...], named: tuple[str, ...]) -> int:
    return len(_chosen(work.view, kinds, named).zombies) if work.view is not None else 0


def _chosen(view: HostView, kinds: tuple[ZombieKind, ...], named: tuple[str, ...]) -> Chosen:
    """What of a host's verdicts the kill takes on, as the plan did."""
    from console.actions.kill import choose

    return choose(view.zombies, kinds=kinds, named=named, snapshot=view.snapshot)


def _refused(work: Work, kinds: tuple[ZombieKind, ...], named: tuple[str, ...]) -> bool:
    """Whether something that was named stays: that is an answer of its own, not a success."""
    skipped = _chosen(work.view, kinds, named).skipped if work.view is not None else ()
    return any({z.id, str(z.pid)} & set(named) for z, _ in skipped)


def _is_clean(work: Work) -> bool:
    """Whether every step of the host's plan ended well."""
    if work.error is not None or work.plan is None:
        return False
    last = {r.step: r for r in work.results}
    return all(
        i in last and last[i].outcome in ("ok", "skipped") for i in range(len(work.plan.steps))
    )


def _report(
    cli: Cli,
    works: list[Work],
    kinds: tuple[ZombieKind, ...],
    named: tuple[str, ...],
    *,
    dry_run: bool,
) -> int:
    from console.actions.plan import plan_to_json

    hosts, steps = [], []
    for work in works:
        hosts.append(_host_document(work, kinds, named, dry_run))
        if work.plan is not None:
            steps += plan_to_json(work.plan)["steps"]
    codes = [3 for work in works if isinstance(work.error, HostError) and work.plan is None]
    codes += [Refused.exit_code for work in works if _refused(work, kinds, named)]
    if dry_run:
        codes.append(int(bool(steps)))
    else:
        codes += [_code(work) for work in works if work.plan is not None and work.plan.steps]
    if cli.json:
        print_json({"hosts": hosts, "dry_run": dry_run, "plan": steps})
    else:
        for work, host in zip(works, hosts, strict=True):
            _say_host(work, host, dry_run)
    return worst(codes)


def _code(work: Work) -> int:
    if _is_clean(work):
        return 0
    return work.error.exit_code if work.error is not None and not work.results else 6


def _host_document(
    work: Work, kinds: tuple[ZombieKind, ...], named: tuple[str, ...], dry_run: bool
) -> dict[str, Any]:
    """One host of the contract's document; ``freed_mib`` null is not known."""
    from console.actions.plan import zombie_to_json

    if work.view is None:
        return {
            "name": work.host.name, "killed": [], "skipped": [], "freed_mib": None,
            "clean": False, "error": str(work.error),
        }  # fmt: skip
    chosen = _chosen(work.view, kinds, named)
    clean = not dry_run and (not chosen.zombies or _is_clean(work))
    killed = chosen.zombies if clean else ()
    last = work.results[-1].detail if work.results else ""
    return {
        "name": work.host.name,
        "killed": [zombie_to_json(z) for z in killed],
        "skipped": [{**zombie_to_json(z), "why": why} for z, why in chosen.skipped],
        "planned": [zombie_to_json(z) for z in chosen.zombies] if not clean else [],
        "freed_mib": _freed(killed),
        "clean": clean,
        "dumps": [r.data["path"] for r in work.results if "path" in r.data],
        "plan_id": work.plan.id if work.plan and work.plan.steps else None,
        "error": str(work.error) if work.error else (last if not clean and last else None),
    }


def _freed(killed: tuple[Zombie, ...]) -> float | None:
    """Memory that came back: device memory where there is one, else the machine's."""
    known = [z.gpu_memory_mib if z.device == "cuda" else z.memory_mib for z in killed]
    if any(value is None for value in known):
        return None
    return round(sum(value for value in known if value is not None), 1)


def _say_plan(work: Work) -> None:
    from console.actions.plan import plan_lines
    from console.cli.documents import through

    assert work.plan is not None
    say(paint(work.host.name, "bold"))
    if work.view is not None and (way := through(work.view)):
        say(paint(f"  through {way}", "yellow"))
    for line in plan_lines(work.plan):
        say(f"  {line}")
    for step in work.plan.offered:
        say(paint(f"  --dump would first {step.why}", "dim"))


def _say_host(work: Work, host: dict[str, Any], dry_run: bool) -> None:
    if work.view is None:
        warn(str(work.error))
        return
    if dry_run and work.plan is not None and work.plan.steps:
        _say_plan(work)
    elif host["killed"]:
        freed = mib(host["freed_mib"])
        say(paint(f"{work.host.name}: {len(host['killed'])} gone, {freed} MiB back", "green"))
    elif host["planned"]:
        say(paint(f"{work.host.name}: NOT clean: {host['error']}", "red"))
    else:
        say(f"{work.host.name}: nothing to kill")
    for zombie in host["skipped"]:
        say(f"  left alone: {zombie['id']} {zombie['kind']}: {zombie['why']}")
