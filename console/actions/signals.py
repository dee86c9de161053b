"""Steps that end processes: signal exact ones, wait until they are gone.

Between the operator's yes and the signal the host is looked at once more. A process that was there
before and was not shown is a reason to stop; a child forked since then belongs to its parent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from console.actions.codec import decode, encode
from console.actions.steps import Context, Outcome
from console.errors import Refused
from console.model import Process, ProcessId, Step, Target
from console.remote import Remote, SignalResult
from console.zombies.family import Scope, Table, dead, still_bound, strangers
from console.zombies.vetoes import untouchable

ROUNDS = 50
"""Looks at the process list before a kill gives up on a tree that keeps forking."""


def target_of(process: Process) -> Target:
    """A process as a target: its identity and what the operator is shown."""
    return Target(process.id, process.uid, process.user, process.title, process.run_id)


@dataclass(slots=True)
class Tally:
    """What became of the targets of one step."""

    signalled: dict[ProcessId, Target] = field(default_factory=dict)
    gone: set[ProcessId] = field(default_factory=set)
    changed: set[ProcessId] = field(default_factory=set)
    denied: dict[ProcessId, str] = field(default_factory=dict)

    def add(self, targets: Iterable[Target], results: Iterable[SignalResult]) -> None:
        """Count the results of one call."""
        by_id = {target.process: target for target in targets}
        for result in results:
            if result.outcome == "signalled":
                self.signalled[result.process] = by_id[result.process]
            elif result.outcome == "gone":
                self.gone.add(result.process)
            elif result.outcome == "changed":
                self.changed.add(result.process)
            else:
                self.denied[result.process] = result.detail or "denied by the host"

    def outcome(self, signal: str) -> Outcome:
        """The step's outcome: failed where the host refused a signal."""
        parts = [f"SIG{signal} to {len(self.signalled)}"]
        parts += [f"{len(self.gone)} gone already"] * bool(self.gone)
        parts += [f"{len(self.changed)} pids are somebody else now, left alone"] * bool(
            self.changed
        )
        parts += [f"{pid.pid} denied: {why}" for pid, why in self.denied.items()]
        data = {
            "signalled": encode(list(self.signalled.values())),
            "gone": [process.pid for process in self.gone],
            "changed": [process.pid for process in self.changed],
            "denied": {str(process.pid): why for process, why in self.denied.items()},
        }
        return Outcome("failed" if self.denied else "ok", ", ".join(parts), data)


async def signal_step(step: Step, context: Context) -> Outcome:
    """SIGNAL: the targets and, within ``params["scopes"]``, what they have forked since.

    ``params``: ``scopes`` (each a :class:`Scope`), ``left_out`` (identities never to be taken in),
    ``newest`` (start of the newest process of the look that was confirmed, ticks since the boot),
    ``repeat``: keep looking and signalling until no new member is found, and
    ``exact``: the targets alone, for a launcher that ends its own children in good order.

    Raises:
        Refused: the set holds processes that were there and were not confirmed.
    """
    signal = step.signal or "TERM"
    scopes = [decode(Scope, item, place="scope") for item in step.params.get("scopes", ())]
    left_out = {decode(ProcessId, one) for one in step.params.get("left_out", ())}
    newest = step.params.get("newest")
    targets = {target.process: target for target in (*step.targets, *_signalled(context))}
    tally = Tally()
    rounds = ROUNDS if step.params.get("repeat") else 1
    deadline = time.monotonic() + step.timeout_s
    for _ in range(rounds):
        snapshot = await context.remote.snapshot(full=True)
        table = Table(snapshot)
        scopes = [still_bound(table, scope, targets) for scope in scopes]
        if step.params.get("exact"):
            living = (table.get(one) for one in targets)
            found = tuple(p for p in living if p is not None and not dead(p))
        else:
            found = _family(table, scopes, targets, left_out)
        if grown := strangers(targets, found, newest):
            raise Refused(
                f"the set grew beyond what was confirmed by {len(grown)}: {', '.join(grown[:3])}",
                place=step.host,
                hint="look again and confirm anew",
            )
        if not tally.signalled:
            tally.gone |= {one for one in targets if _is_gone(table.get(one))}
        new = [target_of(p) for p in found if p.id not in tally.signalled | tally.denied]
        if not new or time.monotonic() > deadline:
            break
        targets |= {target.process: target for target in new}
        tally.add(new, await context.remote.signal(new, signal))
        context.say(f"SIG{signal} to {len(tally.signalled)} processes")
    return tally.outcome(signal)


def _family(
    table: Table,
    scopes: Sequence[Scope],
    targets: Mapping[ProcessId, Target],
    left_out: Collection[ProcessId],
) -> tuple[Process, ...]:
    """The living of all scopes, each grown by the targets found so far that have its users."""
    found: dict[ProcessId, Process] = {}

    def veto(process: Process) -> str | None:
        if process.id in left_out:
            return "left out when the plan was made"
        return untouchable(process, table.snapshot)

    for scope in scopes or [Scope(uids=frozenset(t.uid for t in targets.values()))]:
        mine = frozenset(one for one, target in targets.items() if target.uid in scope.uids)
        grown = replace(scope, processes=scope.processes | mine)
        for process in table.members(grown, veto):
            found[process.id] = process
    return tuple(found.values())


def _is_gone(process: Process | None) -> bool:
    return process is None or dead(process)


def _signalled(context: Context) -> list[Target]:
    """Everything that earlier steps of the plan signalled on this step's host."""
    steps = context.plan.steps
    here = steps[context.index].host
    return [
        decode(Target, item, place="signalled")
        for result in context.results.values()
        if steps[result.step].host == here
        for item in result.data.get("signalled", ())
    ]


async def wait_gone_step(step: Step, context: Context) -> Outcome:
    """WAIT_GONE: until all targets and all that were signalled are gone, at most ``timeout_s``.

    ``params["then"] = "kill"``: survivors are no failure, the next step is for them. A process
    that is dead and only waits to be reaped counts as gone and is named.
    """
    ids = {target.process: target for target in (*step.targets, *_signalled(context))}
    left, unreaped = await _wait(context.remote, list(ids), step.timeout_s, context.say)
    parts = [f"{len(ids) - len(left)} of {len(ids)} gone"]
    if unreaped:
        shown = ", ".join(f"{p.id.pid} (parent {p.ppid})" for p in unreaped[:3])
        parts.append(f"{len(unreaped)} dead but not reaped by their parent: {shown}")
    data: dict[str, Any] = {
        "survivors": [process.id.pid for process in left],
        "unreaped": [process.id.pid for process in unreaped],
    }
    if not left:
        return Outcome("ok", "; ".join(parts), data)
    parts.append("; ".join(_why_alive(process) for process in left[:5]))
    to_kill = step.params.get("then") == "kill"
    return Outcome("ok" if to_kill else "failed", "; ".join(parts), data)


async def _wait(
    remote: Remote, ids: Sequence[ProcessId], timeout_s: float, say: Callable[[str], None]
) -> tuple[list[Process], list[Process]]:
    """The processes still running after the bound, and the dead ones nobody has reaped."""
    deadline = time.monotonic() + timeout_s
    slice_s = 0.5
    pending = list(ids)
    while True:
        left = max(0.0, deadline - time.monotonic())
        pending = await remote.wait_gone(pending, min(slice_s, left))
        if not pending:
            return [], []
        snapshot = await remote.snapshot(full=True)
        still = [p for p in snapshot.processes if p.id in set(pending)]
        alive = [process for process in still if not dead(process)]
        if not alive or time.monotonic() >= deadline:
            return alive, [process for process in still if dead(process)]
        say(f"waiting for {len(alive)} processes, {left:.0f} s left")
        slice_s = min(slice_s * 1.5, 5.0)  # a look costs the host more than waiting does


def _why_alive(process: Process) -> str:
    states = {process.state, *process.task_states.values()}
    if "D" in states:
        where = f" in {process.wchan}" if process.wchan else ""
        return f"{process.id.pid} sleeps in the kernel (D){where}, where no signal reaches it"
    if process.state in ("T", "t"):
        return f"{process.id.pid} is stopped ({process.state})"
    return f"{process.id.pid} still runs (state {process.state})"
