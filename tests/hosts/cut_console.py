"""A console to be cut off: carries out the plan of a file and waits in the middle of one step.

``python -m tests.hosts.cut_console HOSTS HOST PLAN STEP MOMENT``: hosts.yaml, a host's name in it,
the plan; in step STEP, ``before`` its work or ``after`` it (and before its result is recorded), it
prints ``here`` with the agent's pid and waits for the link to be lost.
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
from console.actions.serving import Serving
from console.actions.steps import Context, Handler, Outcome
from console.config import load
from console.model import Step
from console.session import Headless, Session, connect


def waiting(handler: Handler, number: int, moment: str) -> Handler:
    """The handler, with a wait in the step that is meant."""

    async def handle(step: Step, context: Context) -> Outcome:
        if context.index != number:
            return await handler(step, context)
        if moment == "before":
            await until_lost(context)
        outcome = await handler(step, context)
        if moment == "after":
            await until_lost(context)
        return outcome

    return handle


async def until_lost(context: Context) -> None:
    """Say that this is the place."""
    print("here", context.remote.hello.pid, flush=True)
    assert isinstance(context.remote, Session)
    async with asyncio.timeout(60):
        await context.remote.lost.wait()


async def main(hosts: Path, name: str, plan: Path, number: int, moment: str) -> None:
    """Run the plan."""
    config = load(hosts)
    what = plan_from_journal(json.loads(plan.read_text()))
    handlers = {**default_handlers(), **Serving(config.servers).handlers()}
    slow = {kind: waiting(handler, number, moment) for kind, handler in handlers.items()}
    links = {
        one: await connect(config.host(one), hosts=config.hosts, prompts=Headless())
        for one in {name, *(step.host for step in what.steps)}
    }
    try:
        audit = AuditLog(hosts.parent / "audit.jsonl")
        executor = Executor(links[name], audit, handlers=slow, others=links)
        async for result in executor.execute(what):
            print("result", result.step, result.outcome, result.detail, flush=True)
    finally:
        for link in links.values():
            await link.close()


if __name__ == "__main__":
    hosts, name, plan, number, moment = sys.argv[1:]
    asyncio.run(main(Path(hosts), name, Path(plan), int(number), moment))
