"""``specops status`` and ``specops zombies``: what is there, and what should not be."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from console.cli.common import Answer, Cli, ask, common, run_async
from console.cli.output import (
    fit,
    mib,
    number,
    pad,
    paint,
    print_json,
    say,
    table,
    warn,
    width,
)
from console.errors import worst

if TYPE_CHECKING:
    from console.config import Config
    from console.model import Host, HostView, ServerState, Zombie
    from console.remote import Remote
    from console.watch.observe import Depth

BAR = 20


@click.command()
@click.argument("names", nargs=-1, metavar="[HOST…]")
@common()
def status(cli: Cli, names: tuple[str, ...]) -> int:
    """GPUs, servers, unfinished plans and zombies of each host.

    Exit status 1 when a server has failed, a plan was cut off, there are zombies, or a device's
    driver asks for something; 3 when a host is lost.
    """
    from console.cli.documents import any_zombie, asks, lost_host, status_host
    from console.watch.observe import Depth

    config = cli.config()
    answers = run_async(look(config, cli.select(config, names), Depth.QUICK, twice=False))
    answers = together(config, answers)
    now = time.time()
    hosts: list[dict[str, Any]] = []
    for answer in answers:
        if answer.value is not None:
            hosts.append(status_host(answer.value, now))
        else:
            hosts.append(lost_host(answer.host.name, answer.state, str(answer.error)))
    if cli.json:
        print_json({"hosts_file": str(config.path), "hosts": hosts})
    else:
        for answer in answers:
            _say_host(answer)
    views = [a.value for a in answers if a.value is not None]
    bad = any(s.phase.value == "failed" or s.lacking for v in views for s in v.servers)
    bad = bad or any(not plan.under_way for view in views for plan in view.unfinished)
    found = any_zombie(views) or bad or any(asks(view) for view in views)
    return worst([3 for a in answers if _is_lost(a)] + [int(found)])


@click.command()
@click.argument("names", nargs=-1, metavar="[HOST…]")
@click.option("--quick", is_flag=True, help="At most 5 s: do not ask servers to generate.")
@common()
def zombies(cli: Cli, names: tuple[str, ...], quick: bool) -> int:
    """Zombies with their evidence: two looks, and a token asked of every server.

    Exit status 1 when there are any (processes of others do not count).
    """
    from console.cli.documents import any_zombie, zombies_host
    from console.watch.observe import Depth

    config = cli.config()
    depth = Depth.QUICK if quick else Depth.DEEP
    answers = run_async(look(config, cli.select(config, names), depth, twice=True))
    if cli.json:
        hosts: list[dict[str, Any]] = []
        for a in answers:
            if a.value is not None:
                hosts.append(zombies_host(a.value))
            else:
                error = str(a.error)
                hosts.append(
                    {"name": a.host.name, "state": a.state.value, "error": error, "zombies": []}
                )
        print_json({"hosts": hosts})
    else:
        for answer in answers:
            if answer.value is None:
                _say_lost(answer)
            else:
                say(paint(answer.host.name, "bold"))
                _say_way(answer.value)
                if answer.value.error:
                    warn(f"{answer.host.name}: {answer.value.error}; zombies are not known")
                else:
                    _say_asks(answer.value)
                    _say_zombies(answer.value.zombies, evidence=True)
    views = [a.value for a in answers if a.value is not None]
    return worst([3 for a in answers if _is_lost(a)] + [int(any_zombie(views))])


def _is_lost(answer: Answer[HostView]) -> bool:
    """Whether a host gave nothing, or only what it says without an agent."""
    return answer.value is None or bool(answer.value.error)


async def look(
    config: Config, hosts: list[Host], depth: Depth, *, twice: bool
) -> list[Answer[HostView]]:
    """Look at hosts, all at once."""
    from console.watch.observe import Observer

    async def question(remote: Remote) -> HostView:
        observer = Observer(remote, config.servers_on(remote.host.name))
        try:
            return await (observer.twice(depth) if twice else observer.observe(depth))
        finally:
            await observer.close()

    return await ask(config, hosts, question)


def together(config: Config, answers: list[Answer[HostView]]) -> list[Answer[HostView]]:
    """The answers, with the nodes of a server over several hosts told of each other."""
    from console.model import HostView
    from console.watch.nodes import joined

    views = {a.host.name: a.value or HostView(a.host, a.state) for a in answers}
    whole = joined(views, config.servers.values())
    return [replace(a, value=whole[a.host.name]) if a.value is not None else a for a in answers]


# ---- for people


def _say_lost(answer: Answer[HostView]) -> None:
    warn(str(answer.error))
    say(f"{paint(answer.host.name, 'bold')}  {paint(answer.state.value, 'red')}")


def _say_host(answer: Answer[HostView]) -> None:
    view = answer.value
    if view is None or view.snapshot is None or view.hello is None:
        _say_lost(answer)
        return
    hello, snapshot = view.hello, view.snapshot
    say(f"{paint(view.host.name, 'bold')}  {hello.user}@{hello.hostname}  {hello.kernel}")
    _say_way(view)
    if view.error:
        warn(f"{view.host.name}: {view.error}")
    for gpu in snapshot.gpus:
        bar = _bar(gpu.memory_used_mib, gpu.memory_total_mib)
        memory = f"{mib(gpu.memory_used_mib):>7} / {mib(gpu.memory_total_mib)} MiB"
        rest = f"{number(gpu.utilization_pct):>3} %  {number(gpu.temperature_c)} C"
        say(fit(f"  GPU {gpu.index}  {bar} {memory}  {rest}  {gpu.error or gpu.name}", width()))
        users = [f"{p.pid}({mib(p.memory_mib)} MiB)" for p in gpu.processes]
        if users:
            say(fit(f"         {' '.join(users)}", width()))
    _say_asks(view)
    if snapshot.gpu_error:
        say(paint(fit(f"  GPUs unknown: {snapshot.gpu_error}", width()), "yellow"))
    if not snapshot.gpus and snapshot.cpu is not None:
        cpu = snapshot.cpu
        bar = _bar(cpu.memory_used_mib, cpu.memory_total_mib)
        memory = f"{mib(cpu.memory_used_mib)} / {mib(cpu.memory_total_mib)} MiB"
        say(f"  CPU    {bar} {memory}  {cpu.cores} cores")
    if not view.error:
        _say_servers(view.servers)
        _say_unfinished(view)
        _say_unlisted(view)
        _say_zombies(view.zombies, evidence=False)


def _say_way(view: HostView) -> None:
    from console.cli.documents import through

    if way := through(view):
        say(paint(f"  it does not answer itself; seen through {way}", "yellow"))


def _say_asks(view: HostView) -> None:
    from console.cli.documents import asks

    for one in asks(view):
        say(paint(f"  {one['detail']}", "red"))  # whole: it ends with what to do


def _bar(used: float | None, total: float | None) -> str:
    if used is None or not total:
        return f"[{'?' * BAR}]"
    full = round(BAR * min(1.0, used / total))
    return f"[{'#' * full}{'.' * (BAR - full)}]"


def _say_servers(states: tuple[ServerState, ...]) -> None:
    if not states:
        return
    rows = [
        [
            f"  {s.name}" if s.rank is None else f"  {s.name} rank {s.rank} of {len(s.nodes)}",
            s.phase.value,
            s.health.value,
            f":{s.port}" if s.port else "",
            f"pid {s.pid}" if s.pid else "",
            f"accept {number(s.accept_length, 2)}" if s.accept_length is not None else "",
            f"{number(s.throughput_tok_s)} tok/s" if s.throughput_tok_s is not None else "",
            s.preset or "",
        ]
        for s in states
    ]
    heads = ["  SERVER", "PHASE", "HEALTH", "PORT", "", "", "", "PRESET"]
    for line in table(rows, heads):
        say(line)
    for state in states:
        if state.lacking:
            lacks = "; ".join(node.words for node in state.lacking)
            say(paint(fit(f"  {state.name}: {lacks}", width()), "red"))
        told = state.diagnosis.summary if state.diagnosis is not None else ""
        if state.note is not None and state.note not in told:
            say(paint(fit(f"  {state.name}: {state.note}", width()), "yellow"))
        if state.diagnosis is not None:
            say(paint(fit(f"  {state.name}: {state.diagnosis.summary}", width()), "red"))


def _say_unfinished(view: HostView) -> None:
    from console.text import clean

    for plan in view.unfinished:  # whole: it ends with what to do
        about = f"{plan.server}: " if plan.server else ""
        say(paint(f"  {clean(about + plan.detail)}", "yellow" if plan.under_way else "red"))


def _say_unlisted(view: HostView) -> None:
    from console.cli.documents import port_of
    from console.text import clean
    from console.watch.attribution import unlisted

    for process in unlisted(view):
        pid, where = process.id.pid, port_of(process)
        place = f", port {where}" if where else ""
        text = f"  also running here, not in hosts.yaml: pid {pid} of {clean(process.user)}{place}"
        adopt = f"specops adopt {view.host.name} {pid}"
        what = adopt if process.run_id is None else f"run {clean(process.run_id)}"
        say(paint(f"{text} ({what})", "yellow"))  # whole: it ends with what to do


def _say_zombies(zombies: tuple[Zombie, ...], *, evidence: bool) -> None:
    shown = zombies if evidence else tuple(z for z in zombies if z.kind.value != "foreign")
    if not shown:
        say("  no zombies")
        return
    for zombie in shown:
        memory = zombie.gpu_memory_mib if zombie.device == "cuda" else zombie.memory_mib
        what = zombie.title or (zombie.resource.path if zombie.resource else "") or ""
        state = "killable" if zombie.killable else f"not killed: {zombie.why_not}"
        head = f"  {pad(zombie.id, 8)} {pad(zombie.kind.value, 12)} "
        head += f"{mib(memory):>8} MiB  score {zombie.score:.2f}  {state}"
        say(paint(fit(head, width()), "yellow" if zombie.killable else "dim"))
        if evidence:
            if what:
                say(fit(f"           {what}", width()))
            for line in zombie.evidence:
                say(f"           - {line}")
