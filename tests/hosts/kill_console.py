"""A console to be killed: carries out the plan of a file and is slow where it is told to be.

``python -m tests.hosts.kill_console FOLDER PLAN STEP``: FOLDER holds the host's state and the audit
file; before the handler of step STEP returns it prints ``here`` and waits for the link to be lost.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.actions.handlers import default_handlers
from console.actions.plan import plan_from_journal
from console.actions.steps import Context, Handler, Outcome
from console.model import Step
from console.session import Session
from tests.hosts.killing import session


def slow(handler: Handler, number: int) -> Handler:
    """The handler, with a pause after its work and before its result is recorded."""

    async def handle(step: Step, context: Context) -> Outcome:
        outcome = await handler(step, context)
        if context.index == number:
            print("here", context.remote.hello.pid, flush=True)
            assert isinstance(context.remote, Session)
            async with asyncio.timeout(60):
                await context.remote.lost.wait()
        return outcome

    return handle


async def main(folder: Path, plan: Path, number: int) -> None:
    """Run the plan."""
    handlers = {kind: slow(handler, number) for kind, handler in default_handlers().items()}
    async with session(folder) as link:
        executor = Executor(link, AuditLog(folder / "audit.jsonl"), handlers=handlers)
        async for result in executor.execute(plan_from_journal(json.loads(plan.read_text()))):
            print("result", result.step, result.outcome, result.detail, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
