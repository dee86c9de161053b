"""How presets have done: launches that the hosts remember, measurements of this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from console.cli.common import Cli, ask, run_async
from console.cli.output import duration, number, paint, print_json, say, table, warn
from console.errors import worst
from console.planning.past import measurements
from console.planning.ranking import Standing, rank_presets, standing, uses
from console.text import clean

if TYPE_CHECKING:
    from console.model import Host, Preset, Run
    from console.remote import Remote


@dataclass(frozen=True, slots=True)
class History:
    """One preset's standing for each host and model; ``lost`` are hosts that did not answer."""

    places: Mapping[tuple[str, str], Standing]
    lost: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The keys that ``presets show --json`` adds."""
        return {
            "history": [
                {"host": host, "model": clean(model), **standing_to_json(one)}
                for (host, model), one in self.places.items()
            ],
            "not_asked": [{"host": name, "error": why} for name, why in self.lost.items()],
        }


def history(cli: Cli, preset: Preset, *, offline: bool) -> History:
    """What is known of a preset.

    Raises:
        ConfigError: hosts.yaml cannot be used.
    """
    config = cli.config()
    runs, lost = remembered(cli, () if offline else tuple(config.hosts.values()))
    mine = [run for run in runs if uses(run, preset)]
    measured = [row for row in measurements() if uses(row, preset)]
    places = sorted({(r.host, r.model) for r in mine} | {(m.host, m.model) for m in measured})
    return History(
        {
            place: standing(
                preset,
                [r for r in mine if (r.host, r.model) == place],
                [m for m in measured if (m.host, m.model) == place],
            )
            for place in places
        },
        lost,
    )


def remembered(cli: Cli, hosts: Sequence[Host]) -> tuple[list[Run], dict[str, str]]:
    """The run records of these hosts, and why some did not answer."""
    if not hosts:
        return [], {}

    async def known(remote: Remote) -> tuple[Run, ...]:
        return tuple(await remote.runs())

    answers = run_async(ask(cli.config(), hosts, known))
    runs = [run for answer in answers for run in answer.value or ()]
    return runs, {a.host.name: str(a.error) for a in answers if a.error is not None}


def standing_to_json(one: Standing) -> dict[str, Any]:
    """A standing without the preset's name; unknown is ``null``."""
    return {
        "verdict": one.verdict,
        "launches": one.launches,
        "served": one.served,
        "failed": one.failed,
        "broke": one.broke,
        "start_s": one.start_s,
        "phases": [{"name": clean(name), "seconds": took} for name, took in one.phases],
        "tokens_per_s": loads_to_json(one.tokens_per_s),
        "accept_length": one.accept_length,
        "last_at": one.last_at,
        "last_failure": clean(one.last_failure) or None,
    }


def loads_to_json(tokens_per_s: Mapping[tuple[int, int], float]) -> list[dict[str, Any]]:
    """Throughput by load."""
    return [
        {"concurrency": count, "tokens": tokens, "tokens_per_s": round(value, 3)}
        for (count, tokens), value in tokens_per_s.items()
    ]


def say_history(past: History) -> None:
    """For people: a row for each host and model, then its phases and its last failure."""
    say("")
    say(paint("  How it did", "bold") if past.places else "  no launch or measurement is known")
    for (host, model), one in past.places.items():
        say(f"  {host}  {clean(model, limit=60) or '(model not known)'}")
        say(f"    {clean(one.why)}; last {_when(one.last_at)}")
        if one.phases:
            took = ", ".join(f"{clean(n)} {duration(s)}" for n, s in one.phases)
            say(paint(f"    {took}", "dim"))
        for (count, tokens), value in one.tokens_per_s.items():
            accept = f", accept length {number(one.accept_length, 2)}" if one.accept_length else ""
            say(f"    {number(value, 1)} tok/s at {count} x {tokens} tokens{accept}")
    for name, why in past.lost.items():
        warn(f"not asked: {why}", head=name)


def say_ranked(cli: Cli, presets: Sequence[Preset], name: str) -> int:
    """The presets, what worked for a server first; returns the exit code.

    Raises:
        UsageError: no such server.
    """
    config = cli.config()
    server = config.server(name)
    runs, lost = remembered(cli, [config.host(server.host)])
    model = _model(name, server.model, runs)
    ranked = rank_presets(presets, runs, measurements(), host=server.host, model=model)
    if cli.json:
        rows = [
            {"name": s.preset, "kind": s.kind, "speed": s.speed, **standing_to_json(s)}
            for s in ranked
        ]
        print_json({"server": name, "host": server.host, "model": clean(model or ""),
                    "presets": rows})  # fmt: skip
    else:
        cells = [(s.kind, s.preset, s.verdict, clean(s.why, limit=100)) for s in ranked]
        for line in table(cells, ("KIND", "NAME", "VERDICT", "WHY")):
            say(line)
    for host, why in lost.items():
        warn(f"not asked: {why}", head=host)
    return worst([3 for _ in lost])


def _model(name: str, configured: str, runs: Sequence[Run]) -> str | None:
    """The server's model; where its entry names none, that of its newest launch."""
    if configured:
        return configured
    mine = [run for run in runs if run.server == name]
    return max(mine, key=lambda run: run.launched_at).model if mine else None


def _when(at: float | None) -> str:
    return "?" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
