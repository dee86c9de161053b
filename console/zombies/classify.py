"""From snapshots to verdicts. Pure: the same input gives the same zombies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from console.model import (
    Process,
    ProcessId,
    Run,
    Server,
    ServerState,
    Snapshot,
    Zombie,
    ZombieKind,
)
from console.zombies import processes, resources, servers
from console.zombies.policy import Policy, Probe
from console.zombies.world import Known, World

_TWICE = frozenset({ZombieKind.ORPHAN, ZombieKind.HALF_DEAD, ZombieKind.HEADLESS})
"""Kinds that must be seen in two samples before anything is done unasked."""
_ORDER = {kind: rank for rank, kind in enumerate(ZombieKind)}


def classify(
    snapshot: Snapshot,
    *,
    previous: Snapshot | None = None,
    runs: Sequence[Run] = (),
    servers: Mapping[str, Server] | None = None,
    states: Sequence[ServerState] = (),
    probes: Mapping[str, Probe] | None = None,
    policy: Policy | None = None,
) -> tuple[Zombie, ...]:
    """The zombies of one host, surest first; foreign holders of its devices and ports last.

    ``previous`` is an earlier snapshot of the same boot; verdicts that need two samples are shown
    but not killable without one at least ``policy.samples_apart_s`` older. ``servers`` are those
    configured for this host, ``states`` and ``probes`` what their logs and ports say.
    """
    known = Known(runs, servers or {}, states, probes or {}, policy or Policy())
    if previous is not None and previous.boot_id != snapshot.boot_id:
        previous = None
    world = World(snapshot, known, previous)
    before = World(previous, known) if previous is not None else None
    gap_s = snapshot.time - previous.time if previous is not None else 0.0
    found = _process_verdicts(world, before, gap_s)
    twice = gap_s >= known.policy.samples_apart_s and before is not None
    seen = _seen_before(before, world, found) if twice and before is not None else frozenset()
    found = [_decided(zombie, seen, world) for zombie in found]
    if twice:
        # What ends just now is dead for a moment in every healthy host.
        found = [z for z in found if z.kind is not ZombieKind.DEFUNCT or z.process in _dead(before)]
    found += resources.ghost_memory(world, before if twice else None)
    found += resources.leftovers(world)
    taken = {zombie.pid for zombie in found if zombie.pid is not None}
    taken |= {p.id.pid for p in _covered(found, world)}
    found += resources.foreign(world, taken)
    return tuple(sorted(found, key=lambda z: (-z.score, _ORDER[z.kind], z.id)))


def _process_verdicts(world: World, before: World | None, gap_s: float) -> list[Zombie]:
    whole = [servers.verdict(i, world, gap_s, before) for i in world.instances]
    found = [zombie for zombie in whole if zombie is not None]
    named = {zombie.pid for zombie in found}
    single = [
        processes.verdict(process, world)
        for process in world.snapshot.processes
        if process.id.pid not in named
    ]
    found += [zombie for zombie in single if zombie is not None]
    return list(processes.orphan_trees(found, world))


def _seen_before(
    before: World, world: World, found: Sequence[Zombie]
) -> frozenset[tuple[ZombieKind, ProcessId | None]]:
    """What of the kinds that need two samples was so in the earlier one already.

    A rank that ended between the samples makes its server headless in the later one only; the
    earlier state of a half-dead or orphaned process is judged by the same rules.
    """
    wanted = {zombie.process for zombie in found if zombie.kind in _TWICE}
    earlier = [
        processes.verdict(process, before)
        for process in before.snapshot.processes
        if process.id in wanted
    ]
    earlier += [servers.verdict(i, before, 0.0, None) for i in before.instances]
    return frozenset((z.kind, z.process) for z in earlier if z is not None)


def _decided(
    zombie: Zombie, seen: frozenset[tuple[ZombieKind, ProcessId | None]], world: World
) -> Zombie:
    """The verdict with its last condition: certain enough, and seen in two samples."""
    if not zombie.killable:
        return zombie
    policy = world.policy
    if zombie.kind in _TWICE and (zombie.kind, zombie.process) not in seen:
        why = f"seen in one sample; a second one, {policy.samples_apart_s:.0f} s later, decides"
        return replace(zombie, killable=False, why_not=why)
    if zombie.score < policy.kill_score:
        why = f"score {zombie.score:.2f} is below {policy.kill_score:.2f}"
        return replace(zombie, killable=False, why_not=why)
    return zombie


def _dead(before: World | None) -> frozenset[ProcessId]:
    if before is None:
        return frozenset()
    return frozenset(p.id for p in before.snapshot.processes if p.state in ("Z", "X"))


def _covered(found: Sequence[Zombie], world: World) -> list[Process]:
    """Processes that a verdict on a server or on the top of a tree stands for."""
    covered: list[Process] = []
    heads = {zombie.process for zombie in found if zombie.process is not None}
    for instance in world.instances:
        if instance.launcher.id in heads:
            covered += instance.members
    tops = [z.process for z in found if z.kind is ZombieKind.ORPHAN and z.process is not None]
    below = world.table.descendants(tops)
    covered += [process for process in world.snapshot.processes if process.id in below]
    return covered
