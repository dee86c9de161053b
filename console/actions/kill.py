"""From verdicts to a plan: who is signalled, in which order, and what is checked after it.

A unit is stopped by systemd and a container by docker, never by signals to their processes, which
would only be started anew. Everything else: SIGTERM, a bounded wait, SIGKILL for the survivors and
what they forked, then leftovers, device memory, ports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from console.actions.clean import plan_clean
from console.actions.codec import decode, encode
from console.actions.dump import plan_dump
from console.actions.journal import new_plan_id
from console.actions.signals import target_of
from console.actions.verify import plan_verify
from console.model import (
    Host,
    Plan,
    Process,
    ProcessId,
    Run,
    Server,
    Snapshot,
    Step,
    StepKind,
    Zombie,
    ZombieKind,
)
from console.zombies.family import Scope, Table, dead, newest
from console.zombies.policy import Policy
from console.zombies.vetoes import owned, untouchable, veto

SETTLE_S = 60.0
"""How long a killed process may take to be taken apart: the driver unpins its memory first."""


@dataclass(frozen=True, slots=True)
class KillOptions:
    """How to kill. ``drain_s`` bounds the wait after SIGTERM, in seconds.

    ``named`` are zombie ids or pids the operator typed, which alone lets a ``foreign`` one be
    killed.
    """

    drain_s: float = 10.0
    named: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Chosen:
    """What of the verdicts a kill takes on, and why it leaves the rest."""

    zombies: tuple[Zombie, ...]
    skipped: tuple[tuple[Zombie, str], ...]


def choose(
    zombies: Iterable[Zombie],
    *,
    kinds: Collection[ZombieKind] = (),
    named: Collection[str] = (),
    snapshot: Snapshot | None = None,
) -> Chosen:
    """Those a kill takes on: the killable, of the given kinds if any, and foreign ones if named.

    With the ``snapshot`` of the verdicts a named one that naming does not lift is left out too.
    """
    chosen: list[Zombie] = []
    skipped: list[tuple[Zombie, str]] = []
    table = Table(snapshot) if snapshot is not None else None
    for zombie in zombies:
        is_named = zombie.id in named or str(zombie.pid) in named
        if named and not is_named:
            skipped.append((zombie, "not named"))
        elif kinds and zombie.kind not in kinds:
            skipped.append((zombie, f"not of kind {', '.join(kinds)}"))
        elif is_named and (why := _stays(zombie, table)):
            skipped.append((zombie, why))
        elif zombie.killable or (is_named and may_be_named(zombie)):
            chosen.append(zombie)
        else:
            skipped.append((zombie, zombie.why_not or "not killable"))
    return Chosen(tuple(chosen), tuple(skipped))


def _stays(zombie: Zombie, table: Table | None) -> str | None:
    """Why no name makes it a target, where its process is there to be looked at."""
    head = table.get(zombie.process) if table and zombie.process else None
    return untouchable(head, table.snapshot) if table and head else None


def may_be_named(zombie: Zombie) -> bool:
    """Whether naming it (with a typed confirmation) lifts that it is not killable unasked."""
    return zombie.process is not None and zombie.kind not in (
        ZombieKind.DEFUNCT,
        ZombieKind.STUCK_IO,
    )


@dataclass(slots=True)
class _Group:
    """The processes to signal, the units and containers to stop, and those that hang."""

    targets: dict[int, Process] = field(default_factory=dict)
    units: dict[str, list[Process]] = field(default_factory=dict)
    containers: dict[str, list[Process]] = field(default_factory=dict)
    left_out: dict[ProcessId, str] = field(default_factory=dict)
    hung: list[tuple[Process, ...]] = field(default_factory=list)

    @property
    def everything(self) -> list[Process]:
        stopped = [*self.units.values(), *self.containers.values()]
        return [*self.targets.values(), *(p for group in stopped for p in group)]


def plan_kill(
    zombies: Sequence[Zombie],
    snapshot: Snapshot,
    runs: Sequence[Run] = (),
    *,
    host: Host,
    servers: Mapping[str, Server] | None = None,
    policy: Policy | None = None,
    options: KillOptions | None = None,
) -> Plan:
    """A plan for the killable of these zombies on one host; without steps if there are none.

    ``snapshot`` is the one the verdicts came from, with artefacts where leftovers are to go.
    """
    options = options or KillOptions()
    servers = servers or {}
    chosen = choose(zombies, named=options.named, snapshot=snapshot).zombies
    recorded = {run.run_id: run for run in runs}
    group = _Group()
    scopes: list[Scope] = []
    table = Table(snapshot)
    for zombie in chosen:
        scope = _gather(zombie, table, recorded, servers, policy or Policy(), options, group)
        if scope is not None:
            scopes.append(scope)
    sudo = ("sudo", "-n") if host.sudo and snapshot.uid != 0 else ()
    steps = [
        *_stops(group, host, sudo, servers, snapshot.uid),
        *_signals(group, host, _merged(scopes), snapshot, options),
        *plan_clean(host.name, snapshot, chosen, [p.id for p in group.everything]),
    ]
    if group.everything:
        steps[0] = replace(steps[0], params={**steps[0].params, "zombies": _named(chosen)})
        ports = _ports(group.everything, recorded)
        steps.append(plan_verify(host.name, snapshot, group.everything, ports, runs))
    return Plan(
        id=new_plan_id("kill"),
        action="kill-zombies",
        host=host.name,
        steps=tuple(steps),
        created_at=snapshot.time,
        summary=tuple(_summary(chosen, group)),
        offered=tuple(filter(None, (plan_dump(host.name, one, sudo) for one in group.hung))),
    )


def _named(chosen: Iterable[Zombie]) -> list[dict[str, object]]:
    """Which verdicts the plan acts on, for the last look before it does."""
    return [
        {"kind": zombie.kind.value, **encode(zombie.process)}
        for zombie in chosen
        if zombie.process is not None
    ]


def outdated(plan: Plan, fresh: Iterable[Zombie], snapshot: Snapshot) -> str | None:
    """Why a kill plan no longer stands, given verdicts taken just now; ``None`` if it does.

    A process that has ended since is no reason. One that lives and is no zombie any more, or one
    of another kind, is. For ``recheck`` of :class:`console.actions.executor.Executor`.
    """
    kinds = {zombie.process: zombie.kind.value for zombie in fresh}
    table = Table(snapshot)
    for item in (item for step in plan.steps for item in step.params.get("zombies", ())):
        one = decode(ProcessId, item, place="zombies")
        process = table.get(one)
        if process is None or dead(process) or kinds.get(one) == item["kind"]:
            continue
        return f"{one.pid} was {item['kind']} and is {kinds.get(one, 'no zombie')} now"
    return None


def _gather(
    zombie: Zombie,
    table: Table,
    runs: Mapping[str, Run],
    servers: Mapping[str, Server],
    policy: Policy,
    options: KillOptions,
    group: _Group,
) -> Scope | None:
    """Add a zombie's family to the group; ``None`` where systemd or docker stops it, or none is."""
    head = table.get(zombie.process) if zombie.process else None
    if head is None:
        return None
    named = zombie.id in options.named or str(zombie.pid) in options.named

    def why_not(process: Process) -> str | None:
        if named:
            reason = untouchable(process, table.snapshot)
        else:
            reason = veto(process, table.snapshot, runs=runs, servers=servers, policy=policy)
        if reason:
            group.left_out[process.id] = reason
        return reason

    if why_not(head):
        return None
    family = table.members(table.scope_of((head,)), why_not)
    # Its main thread may have ended while others run on: such a head is not among the living.
    family = family if any(p.id == head.id for p in family) else (head, *family)
    if zombie.kind in (ZombieKind.HUNG, ZombieKind.NEVER_READY):
        group.hung.append(family)
    units, containers = owned(servers, runs.values())
    if head.unit in units and head.unit is not None:
        group.units.setdefault(head.unit, []).extend(family)
    elif head.container in containers and head.container is not None:
        group.containers.setdefault(head.container, []).extend(family)
    else:
        group.targets |= {process.id.pid: process for process in family}
        return table.scope_of(family)
    return None


def _merged(scopes: Iterable[Scope]) -> list[Scope]:
    """Scopes of the same users as one; families of different users never share a scope."""
    by_users: dict[frozenset[int], Scope] = {}
    for scope in scopes:
        bare = replace(scope, processes=frozenset())  # the step's targets name them
        by_users[scope.uids] = by_users.get(scope.uids, Scope()) | bare
    return list(by_users.values())


def _stops(
    group: _Group, host: Host, sudo: tuple[str, ...], servers: Mapping[str, Server], uid: int
) -> list[Step]:
    steps = []
    user_units = {s.runner.unit for s in servers.values() if s.runner.user_unit}
    for unit, processes in sorted(group.units.items()):
        user = unit in user_units or unit.removesuffix(".service") in user_units
        user = user or (uid != 0 and unit.startswith("specops-"))  # as the launch made it
        systemctl = ("systemctl", "--user") if user else (*sudo, "systemctl")
        steps.append(
            Step(
                StepKind.STOP_UNIT,
                host.name,
                f"stop unit {unit} ({len(processes)} processes)",
                argv=(*systemctl, "stop", unit),
                targets=tuple(map(target_of, processes)),
                dangerous=True,
                verify="the unit is inactive and has no main process",
                timeout_s=120.0,
                params={"unit": unit, "systemctl": list(systemctl)},
            )
        )
    for name, processes in sorted(group.containers.items()):
        steps.append(
            Step(
                StepKind.RUN,
                host.name,
                f"stop container {name} ({len(processes)} processes)",
                argv=(*sudo, "docker", "stop", "-t", "60", name),
                targets=tuple(map(target_of, processes)),
                dangerous=True,
                verify="docker says it is stopped",
                timeout_s=90.0,
            )
        )
    return steps


def _signals(
    group: _Group, host: Host, scopes: Sequence[Scope], snapshot: Snapshot, options: KillOptions
) -> list[Step]:
    targets = tuple(map(target_of, group.targets.values()))
    if not targets:
        return []
    params: dict[str, Any] = {"scopes": encode(scopes), "newest": newest(snapshot)}
    params["left_out"] = encode(list(group.left_out))
    count = f"{len(targets)} process" + ("es" if len(targets) > 1 else "")
    return [
        Step(
            StepKind.SIGNAL,
            host.name,
            f"ask {count} to end",
            signal="TERM",
            targets=targets,
            dangerous=True,
            verify="pid, start time and boot id are compared in the same call as the signal",
            params=params,
        ),
        Step(
            StepKind.WAIT_GONE,
            host.name,
            f"wait up to {options.drain_s:.0f} s",
            targets=targets,
            timeout_s=options.drain_s,
            params={"then": "kill"},
        ),
        Step(
            StepKind.SIGNAL,
            host.name,
            "kill survivors and what they forked",
            signal="KILL",
            targets=targets,
            dangerous=True,
            verify="looked at again until nothing of them is left to signal",
            params={**params, "repeat": True},
        ),
        Step(
            StepKind.WAIT_GONE,
            host.name,
            "wait until all are gone, every thread of them",
            targets=targets,
            timeout_s=SETTLE_S,
            verify="no process is left",
        ),
    ]


def _ports(processes: Iterable[Process], runs: Mapping[str, Run]) -> set[int]:
    every = tuple(processes)
    listening = {port for process in every for port in process.listening}
    return listening | {runs[p.run_id].port for p in every if p.run_id and p.run_id in runs}


def _summary(chosen: Sequence[Zombie], group: _Group) -> list[str]:
    if not chosen:
        return ["nothing to kill or clean"]
    count: dict[str, int] = {}
    for zombie in chosen:
        count[zombie.kind.value] = count.get(zombie.kind.value, 0) + 1
    lines = [", ".join(f"{n} {kind}" for kind, n in sorted(count.items()))]
    gpu = [z.gpu_memory_mib for z in chosen if z.process is not None]
    if gpu and any(value is not None for value in gpu):
        known = sum(value for value in gpu if value is not None)
        lines.append(
            f"frees {known:.0f} MiB of device memory" + (" at least" if None in gpu else "")
        )
    users = sorted({p.user for p in group.everything})
    if len(users) > 1:
        lines.append(f"processes of {len(users)} users: {', '.join(users)}")
    lines += [f"left alone: {one.pid}: {why}" for one, why in group.left_out.items()]
    return lines
