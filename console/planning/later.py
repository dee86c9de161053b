"""What came after a plan: an old plan is neither finished nor taken back over a later run.

A plan names its runs: those that it starts and the one that it ends. Whatever else runs under the
server's name, or was launched since, is somebody's later wish, and none of the plan's business.
"""

from __future__ import annotations

from collections.abc import Sequence

from console.actions.journal import STARTING, PlanRecord, plan_records
from console.actions.pending import began, own_runs, run_ids
from console.errors import Refused
from console.model import Plan, Run, Server
from console.planning.looking import Looked
from console.remote import Remote
from console.text import clean
from console.watch.attribution import Found


async def refuse_later(remote: Remote, server: Server, record: PlanRecord, looked: Looked) -> None:
    """See that the server is where the plan has left it.

    Raises:
        Refused: a later run, or a process that is no run of the plan, has taken its place.
        HostError: the link is lost.
    """
    records = await plan_records(remote)
    mine = own_runs(record.plan, (other.plan for other in records))
    run = _later_run(record.plan, server, mine, looked)
    if run is not None:
        said = f"run {run.run_id} of {server.name} was launched after it by {run.launched_by}"
        hint = _way_on(run, server, records, alive=looked.found.run == run and looked.found.alive)
    elif not _is_of(record, looked.found, mine):
        main = looked.found.main
        said = f"pid {main.id.pid if main else '?'} serves as {server.name} and is no run of it"
        hint = f"specops stop {server.name} ends that one"
    else:
        return
    raise Refused(
        clean(f"plan {record.plan.id} is superseded: {said}"), place=remote.host.name,
        hint=f"nothing was changed; {hint}",
    )  # fmt: skip


def _later_run(plan: Plan, server: Server, mine: frozenset[str], looked: Looked) -> Run | None:
    """The run that lives in place of the plan's, else the newest one launched since."""
    found = looked.found
    if found.alive and found.run is not None and found.run.run_id not in mine:
        return found.run
    of = [run for run in looked.runs if run.server == server.name]
    begun = began(plan, of)
    since = [run for run in of if run.run_id not in mine and run.launched_at > begun]
    return max(since, key=lambda run: run.launched_at, default=None)


def _is_of(record: PlanRecord, found: Found, mine: frozenset[str]) -> bool:
    """Whether what lives, without a record of its run, is what the plan has started or was to end.

    A container that was made before carries no run's id: docker knows it by its name.
    """
    if not found.alive or found.run is not None:
        return True
    if found.how == "container" and any(step.kind in STARTING for step in record.begun):
        return True
    named = {target.process for step in record.plan.steps for target in step.targets}
    return any(p.id in named or p.run_id in mine for p in found.processes)


def _way_on(run: Run, server: Server, records: Sequence[PlanRecord], *, alive: bool) -> str:
    """What an operator who means the later run can do."""
    if not alive:
        return f"specops launch {server.name} starts it"
    by = next((r.plan.id for r in records if run.run_id in run_ids(r.plan)), None)
    back = f"specops undo {by} takes that launch back, " if by is not None else ""
    return f"{back}specops stop {server.name} ends it"
