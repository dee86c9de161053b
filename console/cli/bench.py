"""``specops bench``: measure a running server, alone or against another preset."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from console.cli.common import Cli, common, confirm, connected, connected_all, run_async
from console.cli.output import number, print_json, say, table, warn
from console.errors import PreflightFailed, UsageError
from console.planning.measuring import Load, history_path, keep, level_to_json, levels, run_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from console.actions.audit import AuditLog
    from console.bench import Level, Ratio
    from console.config import Config
    from console.model import Plan, Server
    from console.planning.planner import Planner
    from console.runners.settings import Choice

ROUNDS = 3


@click.command()
@click.argument("server")
@click.option("--concurrency", default="1,8,32", metavar="N,…", help="Requests at a time (1,8,32).")
@click.option("--requests", "per_worker", type=click.IntRange(1, 1000), default=4,
              help="Requests for each of them (4).")  # fmt: skip
@click.option("--tokens", type=click.IntRange(2, 100_000), default=128,
              help="Tokens asked for in each request (128).")  # fmt: skip
@click.option("--against", metavar="PRESET", help="Compare with this preset, in alternation.")
@click.option("--sweep", metavar="P,Q,…", help="Measure under each of these presets; or all.")
@click.option("--rounds", type=click.IntRange(2, 50), default=ROUNDS,
              help=f"With --against or --sweep: rounds of each ({ROUNDS}).")  # fmt: skip
@click.option("--fresh", is_flag=True, help="With --sweep: begin anew, do not go on with one.")
@click.option("--yes", is_flag=True, help="With --against or --sweep: relaunch without asking.")
@common()
def bench(cli: Cli, server: str, concurrency: str, per_worker: int, tokens: int, **how: Any) -> int:
    """Measure a running server: tokens/s, time to first token, pace, accept length.

    --against relaunches it with the other preset and back, once a round, and ends with what ran
    before. --sweep does so with several, each round in another order; interrupted, the same command
    goes on with what is missing. Results are kept on this machine with host, model and presets.
    """
    load = Load(levels(concurrency), per_worker, tokens)
    against, sweep, rounds, yes = (how[name] for name in ("against", "sweep", "rounds", "yes"))
    if against is not None and sweep is not None:
        raise UsageError("--against and --sweep together", hint="--sweep compares with its first")
    if sweep is not None:
        from console.cli.sweep import run_sweep

        fresh = bool(how["fresh"])
        return run_async(run_sweep(cli, server, load, sweep, rounds, yes=yes, fresh=fresh))
    if against is None:
        return run_async(_alone(cli, server, load))
    return run_async(_against(cli, server, load, against, rounds, yes=yes))


async def _alone(cli: Cli, name: str, load: Load) -> int:
    config = cli.config()
    server = config.server(name)
    async with connected(config, config.host(server.host), read_only=True) as remote:
        found, ran = await run_levels(remote, server, load, teller(name))
    remember(remote.host.name, ran, found, load)
    if cli.json:
        print_json({**ran, "levels": [level_to_json(x) for x in found]})
    else:
        say_levels(found)
    return 6 if any(level.failed for level in found) else 0


def teller(name: str) -> Callable[[str], None]:
    """Says on stderr how far a measurement is."""
    return lambda line: warn(line, head=name)


def say_levels(found: Sequence[Level]) -> None:
    """A table for people; times in milliseconds."""

    def ms(values: dict[int, float], p: int) -> str:
        return number(values[p] * 1000, 1) if p in values else "?"

    rows = [
        [str(x.concurrency), number(x.tokens_per_s, 1), *(ms(x.ttft_s, p) for p in (50, 90, 99)),
         *(ms(x.itl_s, p) for p in (50, 99)), number(x.accept_length, 2), str(x.failed)]
        for x in found
    ]  # fmt: skip
    heads = ("CONC", "TOK/S", "TTFT50", "TTFT90", "TTFT99", "ITL50", "ITL99", "ACCEPT", "FAILED")
    for line in table(rows, heads, right=range(len(heads))):
        say(line)
    for level in found:
        if level.error:
            warn(f"at {level.concurrency}: {level.error}")


def remember(host: str, ran: dict[str, Any], found: Sequence[Level], load: Load) -> None:
    """Keep it; a history that cannot be written is said, and the figures still stand."""
    try:
        keep(host, ran, found, load)
    except OSError as error:
        warn(f"not kept: {error.strerror}", head=str(history_path(host)))


# ---- two presets


async def _against(cli: Cli, name: str, load: Load, other: str, rounds: int, *, yes: bool) -> int:
    from console.actions.audit import AuditLog
    from console.bench import compare
    from console.cli.putback import putting_back
    from console.planning.planner import Planner
    from console.runners.settings import Choice, choose
    from console.watch.attribution import find

    config, presets, audit = cli.config(), cli.presets(), AuditLog()
    server = config.server(name)
    second = choose(presets, other, None)
    async with connected_all(config, server.nodes) as remotes:
        remote = remotes[server.host]
        run = find(server, await remote.runs(), await remote.snapshot()).run
        if run is None:
            hint = f"specops launch {name}, or specops adopt {server.host} PID"
            raise UsageError(f"no run of {name} is recorded to compare with", hint=hint)
        first = Choice(speculative=run.speculative, nccl=run.nccl, preset=run.preset)
        if label(first) == label(second):
            raise UsageError(f"{name} runs with {other} already", hint="name another preset")
        confirm(f"Relaunch {name} {2 * rounds} times on {server.host}?", yes=yes)
        planner = Planner(remote, config, presets, audit.user, remotes)
        for choice in (first, second):  # before anything is stopped
            await checked(planner, server, choice)
        measured: list[tuple[list[Level], list[Level]]] = []
        async with putting_back(config, planner, audit, server, first, quiet=cli.json):
            for turn in range(rounds):
                pair = []
                for choice in (first, second):
                    warn(f"round {turn + 1} of {rounds}: {label(choice)}", head=name)
                    await relaunch(config, planner, audit, server, choice, quiet=cli.json)
                    found, ran = await run_levels(remote, server, load, teller(name))
                    remember(server.host, ran, found, load)
                    pair.append(found)
                measured.append((pair[0], pair[1]))
    ratios = {
        count: compare([(a[i].tokens_per_s, b[i].tokens_per_s) for a, b in measured])
        for i, count in enumerate(load.concurrency)
    }
    _report(cli, name, label(first), other, measured, ratios)
    return 6 if any(x.failed for pair in measured for part in pair for x in part) else 0


async def relaunch(
    config: Config, planner: Planner, audit: AuditLog, server: Server, choice: Choice, *,
    quiet: bool,
) -> None:  # fmt: skip
    """Relaunch with a choice of presets and wait until it serves.

    Raises:
        ActionFailed: a step failed.
        PreflightFailed: it would fail; nothing was touched.
    """
    from console.actions.executor import raise_for
    from console.cli.serving_run import execute

    plan = await checked(planner, server, choice)
    raise_for(plan, await execute(planner.remotes, config, audit, plan, quiet=quiet))


async def checked(planner: Planner, server: Server, choice: Choice) -> Plan:
    """The plan of a relaunch; ``PreflightFailed`` where the rules say that it would fail."""
    from console.planning.planner import Options

    plan = await planner.relaunch(server, choice, Options())
    errors = [f.message for f in plan.findings if f.severity.value == "error"]
    if errors:
        raise PreflightFailed(f"{label(choice)}: {'; '.join(errors)}", place=server.name)
    return plan


def label(choice: Choice) -> str:
    """The presets of a choice, in one word."""
    names = (choice.preset, choice.speculative, choice.nccl)
    return "+".join(n for n in names if n) or "default"


def _report(
    cli: Cli, name: str, first: str, second: str,
    measured: Sequence[tuple[list[Level], list[Level]]], ratios: dict[int, Ratio | None],
) -> None:  # fmt: skip
    if cli.json:
        rounds = [
            {first: [level_to_json(x) for x in a], second: [level_to_json(x) for x in b]}
            for a, b in measured
        ]
        rows = [
            {"concurrency": n, **(asdict(r) if r else {}), "decided": bool(r and r.decided)}
            for n, r in ratios.items()
        ]
        print_json({"server": name, "first": first, "second": second, "rounds": rounds,
                    "ratios": rows})  # fmt: skip
        return
    for count, ratio in ratios.items():
        if ratio is None:
            say(f"at {count}: not comparable")
            continue
        verdict = "" if ratio.decided else "  (not more than noise)"
        span = f"{ratio.low:.2f} to {ratio.high:.2f}"
        say(f"at {count}: {second} is {ratio.mean:.2f} x {first} (95 %: {span}){verdict}")
