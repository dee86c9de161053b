"""Steps that are commands: stop a unit through systemd, stop a container, take a stack dump."""

from __future__ import annotations

import asyncio
import time

from console.actions.steps import Context, Outcome
from console.model import Step
from console.remote import Completed
from console.text import clean, mask


async def run_step(step: Step, context: Context) -> Outcome:
    """RUN: the exact ``argv``; failed unless it ends with 0 (or ``params["optional"]``)."""
    done = await context.remote.run(step.argv, timeout_s=step.timeout_s)
    detail = _said(done)
    data = {"code": done.code, "stdout": mask(done.stdout[-8192:].decode("utf-8", "replace"))}
    if done.code == 0:
        return Outcome("ok", detail, data)
    if step.params.get("optional"):
        return Outcome("skipped", f"{step.argv[0]}: {detail}", data)
    how = "no end in time" if done.code is None else f"exit {done.code}"
    return Outcome("failed", f"{step.argv[0]}: {how}: {detail}", data)


async def stop_unit_step(step: Step, context: Context) -> Outcome:
    """STOP_UNIT: ``systemctl stop`` and then the unit's own word that nothing of it is left.

    Never a signal to the unit's processes: with ``Restart=`` set systemd would start them anew.
    ``params``: ``unit``, ``systemctl`` (the words before the verb, with ``sudo -n`` or ``--user``).
    """
    unit = str(step.params["unit"])
    systemctl = tuple(str(word) for word in step.params.get("systemctl", ("systemctl",)))
    done = await context.remote.run(step.argv, timeout_s=step.timeout_s)
    if done.code not in (0, None):
        return Outcome("failed", f"systemctl stop {unit}: exit {done.code}: {_said(done)}")
    deadline = time.monotonic() + step.timeout_s
    asked = ("show", unit, "-p", "ActiveState", "-p", "MainPID", "-p", "Result", "-p", "NRestarts")
    while True:
        shown = await context.remote.run((*systemctl, *asked), timeout_s=10.0)
        text = shown.stdout.decode("utf-8", "replace")
        state = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        if state.get("ActiveState") in ("inactive", "failed") and state.get("MainPID") == "0":
            return Outcome("ok", f"{unit} is {state['ActiveState']}", {"state": state})
        if time.monotonic() >= deadline:
            now = clean(state.get("ActiveState", "unknown"))
            return Outcome("failed", f"{unit} is still {now} after {step.timeout_s:.0f} s")
        await asyncio.sleep(0.2)


def _said(done: Completed) -> str:
    """The last line a command said, for one line of detail."""
    text = (done.stderr or done.stdout).strip().rsplit(b"\n", 1)[-1]
    return clean(mask(text.decode("utf-8", "replace")), limit=300) or "no output"
