"""Which processes go together: the set a kill must end, found by what children cannot shed.

A run id in the environment and an own cgroup are inherited by every child; a session by all that
do not leave it; the parent only while it lives. A family is the fixpoint over these, and never
takes in a process that carries another run id, another user's, one with a veto, or a launcher.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from console.model import Process, ProcessId, Snapshot
from console.zombies.vetoes import is_launcher

Veto = Callable[[Process], str | None]
SLACK_TICKS = 100
"""A second, in which a process may have been forked that the look just missed."""


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

    def __or__(self, other: Scope) -> Scope:
        """Both scopes as one; for families of the same users."""
        return Scope(
            self.processes | other.processes,
            self.run_ids | other.run_ids,
            self.sessions | other.sessions,
            self.cgroups | other.cgroups,
            self.uids | other.uids,
        )


class Table:
    """A snapshot's processes, indexed by what binds them together."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.by_pid: dict[int, Process] = {}
        self.children: dict[int, list[Process]] = {}
        self._run: dict[str, list[Process]] = {}
        self._session: dict[int, list[Process]] = {}
        self._cgroup: dict[str, list[Process]] = {}
        for process in snapshot.processes:
            self.by_pid[process.id.pid] = process
            self.children.setdefault(process.ppid, []).append(process)
            self._session.setdefault(process.sid, []).append(process)
            self._cgroup.setdefault(process.cgroup, []).append(process)
            if process.run_id:
                self._run.setdefault(process.run_id, []).append(process)

    def get(self, wanted: ProcessId) -> Process | None:
        """Exactly this process, or ``None`` when it is gone or its number is somebody else's."""
        found = self.by_pid.get(wanted.pid)
        return found if found is not None and found.id == wanted else None

    def session(self, sid: int) -> list[Process]:
        """All of a session."""
        return self._session.get(sid, [])

    def bound(self, scope: Scope) -> Iterator[Process]:
        """All that carry a run id of the scope, or live in its sessions or cgroups."""
        for run_id in scope.run_ids:
            yield from self._run.get(run_id, ())
        for sid in scope.sessions:
            yield from self._session.get(sid, ())
        for cgroup in scope.cgroups:
            yield from self._cgroup.get(cgroup, ())

    def descendants(self, roots: Iterable[ProcessId]) -> set[ProcessId]:
        """All below the given processes in the tree of parents, without the roots."""
        stack = [root.pid for root in roots if self.get(root) is not None]
        found: set[ProcessId] = set()
        while stack:
            for child in self.children.get(stack.pop(), ()):
                if child.id not in found:
                    found.add(child.id)
                    stack.append(child.id.pid)
        return found

    def scope_of(self, seeds: Iterable[Process]) -> Scope:
        """The scope of some processes: their run ids, and the sessions and cgroups they own.

        A session is owned when its leader is among the seeds, or is gone and every living member
        is a seed or below one; a shell's session is never owned: the operator sits in it.
        """
        family = tuple(seeds)
        ids = frozenset(member.id for member in family)
        sessions: set[int] = set()
        inside: set[ProcessId] | None = None
        for sid in {member.sid for member in family if member.sid > 1}:
            leader = self.by_pid.get(sid)
            if leader is not None:
                owned = leader.id in ids
            else:
                inside = self.descendants(ids) | ids if inside is None else inside
                owned = all(dead(p) or p.id in inside for p in self.session(sid))
            if owned:
                sessions.add(sid)
        return Scope(
            ids,
            frozenset(member.run_id for member in family if member.run_id),
            frozenset(sessions),
            frozenset(member.cgroup for member in family if own_cgroup(member)),
            frozenset(member.uid for member in family),
        )

    def members(self, scope: Scope, veto: Veto) -> tuple[Process, ...]:
        """The living processes of a scope: the fixpoint over run id, session, cgroup, descent."""
        known = set(scope.processes)
        lines = {found.argv for found in map(self.get, known) if found is not None}
        asked = set(known)
        waiting = [*self.bound(scope)]
        waiting += [child for root in known if self.get(root) for child in self._below(root.pid)]
        while waiting:
            process = waiting.pop()
            if process.id in asked:
                continue
            asked.add(process.id)
            if _may_join(process, scope, lines, veto):
                known.add(process.id)
            # Also below one that may not join: a shell between a launcher and its child.
            waiting += self._below(process.id.pid)
        living = (self.get(one) for one in known)
        found = [p for p in living if p is not None and not dead(p)]
        return tuple(sorted(found, key=lambda p: p.id.pid))

    def _below(self, pid: int) -> list[Process]:
        return self.children.get(pid, [])


def dead(process: Process) -> bool:
    """Whether nothing of it runs any more: state Z (or X) and no thread that is not."""
    if process.state not in ("Z", "X"):
        return False
    states = process.task_states
    if states:
        return all(state in ("Z", "X") for state in states.values())
    return process.threads <= 1


def own_cgroup(process: Process) -> bool:
    """Whether its cgroup was made for its run alone: a unit that has the run's id in its name.

    The name alone would do for the unit that a console or an exporter of ours runs in.
    """
    leaf = process.cgroup.rstrip("/").rsplit("/", 1)[-1]
    own = {f"specops-{process.run_id}{kind}" for kind in (".service", ".scope")}
    return process.run_id is not None and leaf in own


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


def still_bound(table: Table, scope: Scope, known: Iterable[ProcessId]) -> Scope:
    """The scope without sessions that hold no known process any more.

    The kernel keeps a session's number until its last member ends; after that a stranger may get
    it, so a session without a known member binds nobody.
    """
    found = (table.get(one) for one in known)
    sids = {process.sid for process in found if process is not None}
    return replace(scope, sessions=scope.sessions & sids)


def newest(snapshot: Snapshot) -> int | None:
    """The latest start among the processes of a look, in ticks since the boot: no clock in it."""
    return max((p.id.start_ticks for p in snapshot.processes), default=None)


def strangers(
    confirmed: Collection[ProcessId], found: Iterable[Process], since: int | None
) -> list[str]:
    """Why a set is not the one that was confirmed: who is new in it.

    ``since`` is the :func:`newest` start of the look that was confirmed, ``None`` where it is not
    known: then nobody may have come.

    Children forked since then belong to what was confirmed. A process that was there already and
    was not shown does not, nor does a launcher that something else has started.
    """
    pids = {one.pid for one in confirmed}
    return [
        f"{process.id.pid} ({process.user}, {process.title[:40]})"
        for process in found
        if process.id not in confirmed
        and (
            since is None
            or process.id.start_ticks < since - SLACK_TICKS
            or (is_launcher(process) and process.ppid not in pids)
        )
    ]
