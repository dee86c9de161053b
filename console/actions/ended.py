"""How a plan went, in the contract's word, and the operator's own command that is told of it."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Sequence
from typing import IO

from console.model import Plan, StepKind, StepResult

TOLD = ("ready", "failed", "stalled")
"""The outcomes that ``notify`` is for."""
BOUND_S = 10.0
"""Seconds that the operator's command may take before it is ended."""
LOOK_S = 0.05


def outcome_of(plan: Plan, last: StepResult | None) -> tuple[str | None, int]:
    """The word of the contract and the exit code; no word for a start that was not watched."""
    if last is None:
        return "stopped", 0
    kind = plan.steps[last.step].kind
    if last.outcome in ("ok", "skipped"):
        if kind is StepKind.WATCH:
            return last.data.get("outcome"), 0
        return ("stopped", 0) if plan.action == "stop" else (None, 0)
    if kind is StepKind.PREFLIGHT:
        return "refused", 5
    code = int(last.data.get("exit_code", 4 if last.outcome == "refused" else 6))
    if last.outcome == "refused":
        return "refused", code
    return str(last.data.get("outcome", "failed")), code


async def run_notify_command(
    command: Sequence[str], server: str, outcome: str, out: IO[str] | int = subprocess.DEVNULL
) -> str:
    """Run ``notify.command`` with server and outcome as last words; returns why it failed, or "".

    Nothing else waits for it. When this is cancelled (the console was left), it goes on by itself.
    """
    try:
        process = await asyncio.to_thread(
            subprocess.Popen, [*command, server, outcome],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"notify.command: {command[0]}: {error.strerror or error}"
    end = time.monotonic() + BOUND_S
    while process.poll() is None:
        if time.monotonic() > end:
            process.kill()
            return f"notify.command: {command[0]}: not done after {BOUND_S:.0f} s, ended"
        await asyncio.sleep(LOOK_S)
    code = process.returncode
    return f"notify.command: {command[0]}: exit {code}" if code else ""
