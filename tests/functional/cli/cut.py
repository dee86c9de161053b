"""A command to be killed: ``python -m tests.functional.cli.cut STEP MOMENT WORDS…``, as specops.

``before`` or ``after`` the work of step STEP of its plan, and before that is recorded, it prints
``here`` on a line of its own and does nothing more. A command with several plans takes
``PLAN:STEP,…``, plans and steps counted from 0.
"""

from __future__ import annotations

import asyncio
import sys

from console.actions.executor import Executor
from console.actions.steps import Context, Outcome
from console.cli import main
from console.model import Step


def stand_still(points: set[tuple[int, int]], moment: str) -> None:
    """Make every executor of this process stop at these steps of these plans."""
    work = Executor._handle
    plans: list[str] = []

    async def handle(self: Executor, step: Step, context: Context) -> Outcome:
        if context.plan.id not in plans:
            plans.append(context.plan.id)
        meant = (plans.index(context.plan.id), context.index) in points
        if meant and moment == "before":
            await here()
        outcome = await work(self, step, context)
        if meant and moment == "after":
            await here()
        return outcome

    Executor._handle = handle  # type: ignore[method-assign]


async def here() -> None:
    """Say so, and wait to be killed."""
    print("here", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    pairs = [point.rpartition(":") for point in sys.argv[1].split(",")]
    stand_still({(int(plan or 0), int(step)) for plan, _, step in pairs}, sys.argv[2])
    sys.argv = ["specops", *sys.argv[3:]]
    main()
