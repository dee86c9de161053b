"""A command to be killed: ``python -m tests.functional.cli.cut STEP MOMENT WORDS…``, as specops.

``before`` or ``after`` the work of step STEP of its plan, and before that is recorded, it prints
``here`` on a line of its own and does nothing more.
"""

from __future__ import annotations

import asyncio
import sys

from console.actions.executor import Executor
from console.actions.steps import Context, Outcome
from console.cli import main
from console.model import Step


def stand_still(number: int, moment: str) -> None:
    """Make every executor of this process stop at one point of one step."""
    work = Executor._handle

    async def handle(self: Executor, step: Step, context: Context) -> Outcome:
        if context.index == number and moment == "before":
            await here()
        outcome = await work(self, step, context)
        if context.index == number and moment == "after":
            await here()
        return outcome

    Executor._handle = handle  # type: ignore[method-assign]


async def here() -> None:
    """Say so, and wait to be killed."""
    print("here", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    stand_still(int(sys.argv[1]), sys.argv[2])
    sys.argv = ["specops", *sys.argv[3:]]
    main()
