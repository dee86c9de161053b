"""Where a hung server hangs: the stacks of its processes, taken with py-spy before it is ended.

Offered, never taken unasked: py-spy stops a process for a moment to read it. Nothing about it can
stop what follows: no py-spy, one that fails or hangs, a full disk are said in the step's line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from console.actions.signals import target_of
from console.actions.steps import Context, Outcome
from console.config.paths import state_dir
from console.config.whole import as_name, write_private
from console.errors import ActionFailed
from console.model import Plan, Process, Step, StepKind, Target
from console.remote import HostFileError
from console.text import clean, lines, mask
from console.zombies.family import Table, dead
from console.zombies.roles import Part, role

PROGRAM = "py-spy"
MOST = 8
"""Processes of a server whose stacks are taken: its launcher and a node's ranks."""
EACH_S = 10.0
KEPT = 256 * 1024
"""Bytes kept of each process's stacks."""


def plan_dump(host: str, processes: Iterable[Process], sudo: Sequence[str] = ()) -> Step | None:
    """The step for a server's processes, launchers first; ``None`` where none is a server's."""
    order = {Part.LAUNCHER: 0, Part.RANK: 1, Part.WORKER: 2}
    known = [(found, process) for process in processes if (found := role(process)) is not None]
    parts = sorted(
        (
            (order[found.part], process.id.pid, process)
            for found, process in known
            if found.part in order
        ),
    )[:MOST]
    chosen = [process for _, _, process in parts]
    if not chosen:
        return None
    words = (PurePosixPath(p.argv[0]) for p in chosen if p.argv)
    beside = {str(word.parent / PROGRAM) for word in words if word.is_absolute()}
    return Step(
        StepKind.DUMP,
        host,
        f"take the stacks of {len(chosen)} processes, to see where it hangs",
        argv=(*sudo, PROGRAM, "dump", "--pid", str(chosen[0].id.pid)),
        targets=tuple(map(target_of, chosen)),
        verify="kept on this machine; without py-spy the plan goes on",
        timeout_s=EACH_S * 2 + 10.0,
        params={"beside": sorted(beside)},
    )


def with_dump(plan: Plan) -> Plan:
    """The plan with its offered steps, right before the first that ends anything."""
    at = next((i for i, s in enumerate(plan.steps) if s.kind is not StepKind.PREFLIGHT), 0)
    return replace(plan, steps=(*plan.steps[:at], *plan.offered, *plan.steps[at:]), offered=())


async def dump_step(step: Step, context: Context) -> Outcome:
    """DUMP: the stacks of the targets that are still who they were, in one file of this machine.

    ``params["beside"]``: where py-spy may lie beside the server's interpreter.
    """
    table = Table(await context.remote.snapshot(full=True))
    now = [(target, table.get(target.process)) for target in step.targets]
    living = [target for target, process in now if process is not None and not dead(process)]
    if not living:
        return Outcome("skipped", "none of its processes runs any more")
    sudo = step.argv[: step.argv.index(PROGRAM)]
    program = await _program(context, sudo, [PROGRAM, *step.params.get("beside", ())])
    if program is None:
        return Outcome(
            "skipped", f"no stacks: {PROGRAM} is not on {step.host} (pip install it there)"
        )
    found = await asyncio.gather(*(_stacks(context, (*sudo, program), t) for t in living))
    good = [(target, text) for target, text, why in found if not why]
    said = [f"{target.process.pid}: {why}" for target, _, why in found if why]
    if not good:
        return Outcome("skipped", f"no stacks: {'; '.join(said)}")
    path = state_dir() / "dumps" / _name(context)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, _document(step.host, context.plan.id, good).encode())
    except OSError as error:
        return Outcome("skipped", f"no stacks: {path}: {error.strerror or error}")
    detail = "; ".join([f"stacks of {len(good)} of {len(living)} processes: {path}", *said])
    return Outcome("ok", detail, {"path": str(path), "processes": len(good)})


def _name(context: Context) -> str:
    """One file for each server whose stacks a plan takes."""
    return f"{as_name(context.plan.id)}.{context.index + 1}.txt"


async def _program(context: Context, sudo: Sequence[str], names: Sequence[str]) -> str | None:
    """The first of these that can be run there."""
    for name in names:
        try:
            done = await context.remote.run((*sudo, name, "--version"), timeout_s=EACH_S)
        except HostFileError:
            continue
        if done.code == 0 or (done.code is None and not sudo):  # a slow one is tried all the same
            return name
    return None


async def _stacks(
    context: Context, program: Sequence[str], target: Target
) -> tuple[Target, str, str]:
    """The stacks of one process, or why there are none."""
    argv = (*program, "dump", "--pid", str(target.process.pid))
    try:
        done = await context.remote.run(argv, timeout_s=EACH_S)
    except ActionFailed as error:
        return target, "", error.message
    text = "\n".join(lines(done.stdout[:KEPT]))
    if done.code is None:
        return target, "", f"no answer in {EACH_S:.0f} s"
    if done.code != 0 or not text.strip():
        last = (done.stderr or done.stdout).strip().rsplit(b"\n", 1)[-1]
        return target, "", clean(mask(last.decode("utf-8", "replace")), limit=200) or "no output"
    cut = "\n(cut here)" if len(done.stdout) > KEPT else ""
    return target, mask(text) + cut, ""


def _document(host: str, plan_id: str, found: Sequence[tuple[Target, str]]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S %z")
    out = [f"{host}, plan {clean(plan_id)}, {when}"]
    for target, text in found:
        title = clean(mask(target.title), limit=200)
        out += ["", f"== pid {target.process.pid} ({clean(target.user)}) {title}", text]
    return "\n".join(out) + "\n"
