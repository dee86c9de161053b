"""One server over several hosts: the plans of its nodes made side by side and joined into one.

Every node has a host, a plan and a run record of its own; the run has one id. The joined plan
belongs to node 0's host, whose journal holds it whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from console.actions.journal import PlanRecord, new_plan_id
from console.errors import HostError, UsageError
from console.model import Finding, Plan, Run, Server, Severity, Step, StepKind
from console.planning.meeting import meeting_findings
from console.planning.undoing import plan_undo_serving
from console.remote import Remote
from console.runners.prepare import Node, new_run_id
from console.runners.settings import Choice, Settings, canonical

if TYPE_CHECKING:
    from console.planning.planner import Options, Planner

MEET_PORT = 20000
"""Where the nodes meet unless ``dist-init-addr`` says it: the port of SGLang's own examples."""
OWN = ("node-rank", "nnodes")
"""Flags that follow from ``hosts:``."""
A = TypeVar("A")


async def every(asked: Sequence[Awaitable[A]]) -> list[A]:
    """All answers; the first error of them once all have ended."""
    done = await asyncio.gather(*asked, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException):
            raise one
    return [one for one in done if not isinstance(one, BaseException)]


def remotes_of(
    server: Server, remotes: Mapping[str, Remote], *, some: bool = False
) -> list[Remote]:
    """The connections to its nodes, by rank; ``some``: to those that there is one to.

    Raises:
        HostError: there is none to one of them.
        UsageError: two of its hosts are the same machine.
    """
    for rank, name in enumerate(server.nodes):
        if name not in remotes and not some:
            raise HostError(f"rank {rank} of {server.name} runs there", place=name,
                            hint="not connected")  # fmt: skip
    found = [remotes[name] for name in server.nodes if name in remotes]
    seen: dict[tuple[str, str, str], str] = {}
    for remote in found:
        hello = remote.hello
        same = (hello.boot_id, hello.pid_namespace, hello.state_dir)
        if same in seen:
            raise UsageError(
                f"{seen[same]} and {remote.host.name} are the same machine", place=server.name,
                hint="each node of a server needs a host of its own",
            )  # fmt: skip
        seen[same] = remote.host.name
    return found


def over_several(server: Server) -> UsageError:
    """What cannot be done as one: a container has its flags and its network from elsewhere."""
    hint = "an entry for each node, with nnodes, node-rank and dist-init-addr in its args"
    return UsageError(
        f"runs over {len(server.nodes)} hosts, which docker does not launch as one",
        place=server.name, hint=hint,
    )  # fmt: skip


def meeting_place(settings: Settings, first: Remote) -> str:
    """``dist-init-addr``: as configured, else node 0's address as we reach it."""
    given = settings.flags.get("dist-init-addr")
    if given is not None:
        return str(given)
    address = first.host.address or first.hello.hostname
    return f"[{address}]:{MEET_PORT}" if ":" in address else f"{address}:{MEET_PORT}"


class Several:
    """Makes plans for a server over several hosts from one planner for each."""

    def __init__(self, planners: Sequence[Planner], server: Server) -> None:
        self.planners = tuple(planners)
        self.server = server
        for name in map(canonical, server.args):
            if name in OWN:
                raise UsageError(f"--{name} follows from hosts:", place=server.name,
                                 hint=f"take {name} out of its args")  # fmt: skip

    def _nodes(self, settings: Settings | None = None) -> None:
        """Tell every planner which node it plans."""
        run_id, first = new_run_id(), self.planners[0].remote
        address = meeting_place(settings or Settings(), first)
        for rank, planner in enumerate(self.planners):
            planner.node = Node(self.server.nodes, rank, run_id, address)

    async def launch(self, settings: Settings, choice: Choice | None, options: Options) -> Plan:
        """Preflight everywhere → launch, node 0 first → watch all as one."""
        making = [p.launch_node(self.server, choice, options) for p in self.planners]
        return await self._start(settings, options, making)

    async def relaunch(self, settings: Settings, choice: Choice | None, options: Options) -> Plan:
        """Preflight everywhere → stop all → launch all → watch all as one."""
        making = [p.relaunch_node(self.server, choice, options) for p in self.planners]
        return await self._start(settings, options, making)

    async def _start(
        self, settings: Settings, options: Options, making: Sequence[Awaitable[Plan]]
    ) -> Plan:
        self._nodes(settings)
        plans = await every(making)
        met: tuple[Finding, ...] = ()
        if options.preflight and self.planners[0].node is not None:
            remotes = [planner.remote for planner in self.planners]
            address = meets_at(plans[0]) or self.planners[0].node.address
            met = await meeting_findings(remotes, address, self.versions)
        return join(plans, met)

    @property
    def versions(self) -> dict[str, str | None]:
        """SGLang's version on each host, as the plans have found it."""
        return {planner.remote.host.name: planner.version for planner in self.planners}

    async def stop(self, options: Options) -> Plan:
        """Drain node 0 → end all → clean → verify; without steps where nothing of it runs.

        A node whose host is not reached is left as it is, and said so.
        """
        joined = join(await every([p.stop_node(self.server, options) for p in self.planners]))
        reached = {planner.remote.host.name for planner in self.planners}
        left = tuple(
            f"rank {rank} on {name} is left as it is: the host is not reached"
            for rank, name in enumerate(self.server.nodes)
            if name not in reached
        )
        return replace(joined, summary=(*joined.summary, *left))

    async def roll_back(self, run: Run) -> Plan:
        """Stop what there is and start an earlier run again on every host, exactly as it was.

        Raises:
            UsageError: a host does not remember that run.
        """
        self._nodes()

        async def one(planner: Planner) -> Plan:
            known = await planner.remote.runs()
            mine = next((r for r in known if r.run_id == run.run_id), None)
            if mine is None:
                raise UsageError(f"run {run.run_id} is not known there",
                                 place=planner.remote.host.name)  # fmt: skip
            return await planner.roll_back_node(self.server, mine)

        return join(await every([one(planner) for planner in self.planners]))

    async def undo(self, record: PlanRecord) -> Plan:
        """Take back on each host what was begun there.

        Raises:
            UsageError: it was taken back already.
            Refused: on one of them a later run is there in place of its own.
        """
        run_id = new_run_id()
        plans = [
            await plan_undo_serving(
                planner.remote, self.server, part_of(record, planner.remote.host.name), run_id
            )
            for planner in self.planners
        ]
        joined = join(plans)
        return replace(joined, host=record.plan.host, undoes=record.plan.id)


def meets_at(plan: Plan) -> str | None:
    """``--dist-init-addr`` of the command that a plan checks."""
    for step in plan.steps:
        for word, after in pairwise(step.argv if step.kind is StepKind.PREFLIGHT else ()):
            if word == "--dist-init-addr":
                return after
    return None


def part_of(record: PlanRecord, host: str) -> PlanRecord:
    """What a record says of one host; the plan's steps keep their numbers."""
    steps = record.plan.steps
    doubt = record.in_doubt
    return replace(
        record,
        plan=replace(record.plan, host=host),
        done={at: result for at, result in record.done.items() if steps[at].host == host},
        in_doubt=doubt if doubt is not None and steps[doubt].host == host else None,
    )


# ---- one plan of many


def _stage(step: Step) -> int:
    """When a step's turn is: what checks, what waits for requests, what ends, what starts."""
    if step.kind is StepKind.SIGNAL and step.signal == "TERM":
        return 2
    order: Mapping[StepKind, int] = {
        StepKind.PREFLIGHT: 0,
        StepKind.DRAIN: 1,
        StepKind.WRITE_UNIT: 4,
        StepKind.LAUNCH: 5,
        StepKind.START_UNIT: 5,
        StepKind.WATCH: 6,
    }
    return order.get(step.kind, 3)


def join(plans: Sequence[Plan], more: Sequence[Finding] = ()) -> Plan:
    """One plan: every stage on every host before the next, node 0 first; one watch at the end."""
    first = plans[0]
    steps = sorted((step for plan in plans for step in plan.steps), key=_stage)
    watches = [step for step in steps if step.kind is StepKind.WATCH]
    if watches:
        hosts = [step.host for step in watches]
        whole = replace(watches[0], params={**watches[0].params, "nodes": hosts})
        steps = [*(step for step in steps if step.kind is not StepKind.WATCH), whole]
    findings = _together(plans, more)
    errors = sum(found.severity is Severity.ERROR for found in findings)
    return replace(
        first,
        id=new_plan_id(first.action),
        steps=tuple(_counted(step, errors) for step in steps),
        summary=_summary(plans),
        findings=findings,
    )


def _counted(step: Step, errors: int) -> Step:
    if step.kind is not StepKind.PREFLIGHT:
        return step
    return replace(step, params={**step.params, "errors": errors})


def _summary(plans: Sequence[Plan]) -> tuple[str, ...]:
    """What is the same everywhere is said once, the rest with its host."""
    first, *others = plans
    lines = list(first.summary)
    for plan in others:
        lines += [f"{plan.host}: {text}" for text in plan.summary if text not in first.summary]
    return tuple(lines)


def _together(plans: Sequence[Plan], more: Sequence[Finding]) -> tuple[Finding, ...]:
    """All findings, errors first; one that several hosts give is given once."""
    out: dict[tuple[str, str], Finding] = {}
    for found in more:
        out[(found.rule, found.message)] = found
    for at, plan in enumerate(plans):
        for found in plan.findings:
            if (found.rule, found.message) not in out:
                said = found if at == 0 else replace(found, message=f"{plan.host}: {found.message}")
                out[(found.rule, found.message)] = said
    order = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    return tuple(sorted(out.values(), key=lambda found: order.index(found.severity)))


__all__ = ["Several", "every", "join", "meeting_place", "over_several", "part_of", "remotes_of"]
