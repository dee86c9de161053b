"""``specops bench SERVER --sweep``: several presets, unattended; interrupted, it goes on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from console.cli.bench import checked, relaunch, remember, teller
from console.cli.common import Cli, confirm, connected_all
from console.cli.output import number, print_json, say, table, warn
from console.cli.putback import putting_back
from console.errors import ActionFailed, PreflightFailed, Refused, UsageError
from console.planning import sweep as sweeps
from console.planning.measuring import Load, level_to_json, run_levels
from console.planning.sweep import Asked, Row, Sweep
from console.runners.settings import Choice, choose
from console.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.actions.audit import AuditLog
    from console.config import Config
    from console.config.presets import Presets
    from console.model import Server
    from console.planning.planner import Planner
    from console.remote import Remote


def names_of(presets: Presets, text: str) -> tuple[str, ...]:
    """The presets of ``--sweep A,B,C``; ``all`` are the speculative ones.

    Raises:
        UsageError: one does not exist, or there are fewer than two.
    """
    if text == "all":
        return tuple(preset.name for preset in presets if preset.kind == "speculative")
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if len(names) < 2:
        raise UsageError(f"'{text}': a sweep takes two presets or more", place="--sweep")
    for name in names:
        presets.find(name)
    return names


async def run_sweep(
    cli: Cli, name: str, load: Load, text: str, rounds: int, *, yes: bool, fresh: bool
) -> int:
    """Measure what is missing of a sweep, print the table; returns the exit code.

    Raises:
        UsageError: a preset does not exist.
        HostError: the link is lost; the same command goes on.
    """
    from console.actions.audit import AuditLog
    from console.planning.planner import Planner

    config, presets, audit = cli.config(), cli.presets(), AuditLog()
    server = config.server(name)
    asked = Asked(server.host, name, names_of(presets, text), rounds, load.concurrency,
                  load.per_worker, load.tokens)  # fmt: skip
    async with connected_all(config, server.nodes) as remotes:
        remote = remotes[server.host]
        sweep = None if fresh else sweeps.unfinished(asked)
        left = len(sweep.remaining()) if sweep else rounds * len(asked.presets)
        if sweep is not None:
            warn(f"going on with {sweep.path.stem}: {left} measurements left", head="sweep")
        confirm(f"Relaunch {name} {left + 1} times on {server.host}?", yes=yes)
        if sweep is None:
            sweep = sweeps.begin(asked, await _before(remote, server))
        planner = Planner(remote, config, presets, audit.user, remotes)
        before = sweep.before
        first = Choice(before["speculative"], before["nccl"], before["preset"])
        async with putting_back(config, planner, audit, server, first, quiet=cli.json):
            await _measure(cli, config, planner, audit, server, sweep, load)
            sweeps.note(sweep, {"end": True})
    done = sweeps.load(sweep.path)
    assert done is not None
    _report(cli, done)
    return 6 if done.failed else 0


async def _before(remote: Remote, server: Server) -> dict[str, str | None]:
    """The presets that run now, which is what the sweep ends with."""
    from console.watch.attribution import find

    run = find(server, await remote.runs(), await remote.snapshot()).run
    if run is None:
        return {"speculative": server.speculative, "nccl": server.nccl, "preset": None}
    return {"speculative": run.speculative, "nccl": run.nccl, "preset": run.preset}


async def _measure(
    cli: Cli,
    config: Config,
    planner: Planner,
    audit: AuditLog,
    server: Server,
    sweep: Sweep,
    load: Load,
) -> None:
    """One measurement after the other; a preset that cannot be served is noted and passed over."""
    failed: set[str] = set()
    todo = sweep.remaining()
    for at, (turn, preset) in enumerate(todo, 1):
        if preset in failed:
            continue
        warn(f"{at} of {len(todo)}: round {turn + 1}, {preset}", head="sweep")
        choice = choose(planner.presets, preset, None)
        try:
            await checked(planner, server, choice)
            await relaunch(config, planner, audit, server, choice, quiet=cli.json)
            found, ran = await run_levels(planner.remote, server, load, teller(server.name))
        except (ActionFailed, PreflightFailed, Refused) as error:
            failed.add(preset)
            sweeps.note(sweep, {"preset": preset, "error": clean(str(error), limit=300)})
            warn(f"{preset}: {error}", head="sweep")
            continue
        remember(server.host, {**ran, "sweep": sweep.path.stem, "round": turn}, found, load)
        good = {str(x.concurrency): x.tokens_per_s for x in found if not x.failed}
        line = {"round": turn, "preset": preset, "tokens_per_s": good,
                "levels": [level_to_json(x) for x in found]}  # fmt: skip
        sweeps.note(sweep, line)


def _report(cli: Cli, sweep: Sweep) -> None:
    found = sweeps.rows(sweep)
    if cli.json:
        failed = [{"preset": p, "error": e} for p, e in sweep.failed.items()]
        print_json({"server": sweep.asked.server, "sweep": sweep.path.stem, "failed": failed,
                    "file": str(sweep.path), "rows": [_row_to_json(x) for x in found]})  # fmt: skip
        return
    for line in table(_cells(sweep, found), HEADS, right=(0, 2, 3, 4)):
        say(line)
    for preset, error in sweep.failed.items():
        warn(f"{preset}: {error}", head="not served")
    say(f"Against {sweep.asked.presets[0]}; all intervals together hold at 95 %.")


HEADS = ("CONC", "PRESET", "TOK/S", "LOW", "HIGH", "AGAINST", "95 %", "")


def _cells(sweep: Sweep, found: Sequence[Row]) -> list[tuple[str, ...]]:
    out = []
    for row in found:
        ratio, spread = row.ratio, ""
        if ratio is not None:
            spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
        verdict = "" if ratio is None or ratio.decided else "no more than noise"
        against = "-" if row.preset == sweep.asked.presets[0] else "?"
        out.append(
            (str(row.concurrency), row.preset, *(number(v, 1) for v in
             (row.tokens_per_s, row.lowest, row.highest)),
             f"{ratio.mean:.2f} x" if ratio else against, spread, verdict)
        )  # fmt: skip
    return out


def _row_to_json(row: Row) -> dict[str, Any]:
    body = asdict(row)
    ratio = row.ratio
    body["ratio"] = {**asdict(ratio), "decided": ratio.decided} if ratio else None
    return body
