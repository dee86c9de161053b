"""Which processes go together: the set a kill must end, found by what children cannot shed.

A run id in the environment and an own cgroup are inherited by every child; a session by all that
do not leave it; the parent only while it lives. A family is the fixpoint over these, and never
takes in a process that carries another run id, another user's, one with a veto, or a launcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from console.model import Process, ProcessId, Snapshot
from console.zombies.vetoes import is_launcher

Veto = Callable[[Process], str | None]


@dataclass(frozen=True, slots=True)
class Scope:
    """What binds a family. ``sessions`` and ``cgroups`` are only those that are the family's own.

    ``uids`` are the users its members may have.
    """

    processes: frozenset[ProcessId] = frozenset()
    run_ids: frozenset[str] = frozenset()
    sessions: frozenset[int] = frozenset()
    cgroups: frozenset[str] = frozenset()
    uids: frozenset[int] = frozenset()


def dead(process: Process) -> bool:
    """Whether nothing of it runs any more: state Z (or X) and no thread that is not."""
    if process.state not in ("Z", "X"):
        return False
    states = process.task_states
    if states:
        return all(state in ("Z", "X") for state in states.values())
    return process.threads <= 1


def scope_of(seeds: Iterable[Process], snapshot: Snapshot) -> Scope:
    """The scope of some processes: their run ids, and the sessions and cgroups they own.

    A session is owned when its leader is among the seeds, or is gone and every living member is a
    seed's descendant or a seed; a shell's session is never owned, because the operator sits in it.
    """
    members = tuple(seeds)
    ids = frozenset(member.id for member in members)
    leaders = {process.id.pid: process for process in snapshot.processes}
    sessions = {
        member.sid
        for member in members
        if member.sid > 1 and (lead := leaders.get(member.sid)) is not None and lead.id in ids
    }
    for sid in {m.sid for m in members if m.sid > 1 and m.sid not in leaders}:
        inside = [p for p in snapshot.processes if p.sid == sid and not dead(p)]
        tree = descendants(snapshot, ids)
        if all(p.id in ids or p.id in tree for p in inside):
            sessions.add(sid)
    return Scope(
        ids,
        frozenset(m.run_id for m in members if m.run_id),
        frozenset(sessions),
        frozenset(m.cgroup for m in members if own_cgroup(m)),
        frozenset(m.uid for m in members),
    )


def own_cgroup(process: Process) -> bool:
    """Whether its cgroup was made for its run alone: a unit named ``specops-…``."""
    leaf = process.cgroup.rstrip("/").rsplit("/", 1)[-1]
    return leaf.startswith("specops-") and leaf.endswith((".service", ".scope"))


def descendants(snapshot: Snapshot, roots: Iterable[ProcessId]) -> set[ProcessId]:
    """All below the given processes in the tree of parents, without the roots."""
    children: dict[int, list[Process]] = {}
    for process in snapshot.processes:
        children.setdefault(process.ppid, []).append(process)
    alive = {process.id for process in snapshot.processes}
    stack = [root.pid for root in roots if root in alive]
    found: set[ProcessId] = set()
    while stack:
        for child in children.get(stack.pop(), ()):
            if child.id not in found:
                found.add(child.id)
                stack.append(child.id.pid)
    return found


def members(snapshot: Snapshot, scope: Scope, veto: Veto) -> tuple[Process, ...]:
    """The living processes of a scope: the fixpoint over run id, session, cgroup and descent."""
    known = set(scope.processes)
    lines = {process.argv for process in snapshot.processes if process.id in known}
    while True:
        tree = descendants(snapshot, known)
        found = {
            process.id
            for process in snapshot.processes
            if process.id not in known
            and (process.id in tree or _bound(process, scope))
            and _may_join(process, scope, lines, veto)
        }
        if not found:
            break
        known |= found
    return tuple(p for p in snapshot.processes if p.id in known and not dead(p))


def _bound(process: Process, scope: Scope) -> bool:
    return (
        (process.run_id is not None and process.run_id in scope.run_ids)
        or process.sid in scope.sessions
        or process.cgroup in scope.cgroups
    )


def _may_join(process: Process, scope: Scope, lines: set[tuple[str, ...]], veto: Veto) -> bool:
    if process.uid not in scope.uids:
        return False
    if process.run_id and process.run_id not in scope.run_ids:
        return False
    if (
        is_launcher(process)
        and process.run_id not in scope.run_ids
        and process.argv not in lines  # a forked child keeps its parent's line until it is renamed
    ):
        return False  # another server, however it came below this one
    return dead(process) or veto(process) is None


def still_bound(snapshot: Snapshot, scope: Scope, known: Iterable[ProcessId]) -> Scope:
    """The scope without sessions that hold no known process any more.

    The kernel keeps a session's number until its last member ends; after that a stranger may get
    it, so a session without a known member binds nobody.
    """
    alive = set(known)
    sids = {process.sid for process in snapshot.processes if process.id in alive}
    return replace(scope, sessions=scope.sessions & sids)


def strangers(
    confirmed: Mapping[ProcessId, object],
    found: Iterable[Process],
    snapshot: Snapshot,
    since: float,
) -> list[str]:
    """Why the set is not the one that was confirmed: its members older than the confirmation.

    Children forked since then belong to what was confirmed; a process that was there already and
    was not shown to the operator does not.
    """
    return [
        f"{process.id.pid} ({process.user}, {process.title[:40]})"
        for process in found
        if process.id not in confirmed and snapshot.time - process.age_s < since - 1.0
    ]
