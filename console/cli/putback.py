"""Leave behind what ran before a measurement that relaunches, also when it is interrupted."""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from console.actions.executor import raise_for
from console.actions.journal import unfinished
from console.cli.bench import checked, label
from console.cli.output import warn
from console.cli.serving_run import execute
from console.errors import ActionFailed, HostError, PreflightFailed, Refused, SpecopsError
from console.planning.looking import look
from console.runners.settings import Choice

if TYPE_CHECKING:
    from console.actions.audit import AuditLog
    from console.config import Config
    from console.model import Run, Server
    from console.planning.planner import Planner

LOOK_S = 10.0
"""After the second Ctrl-C so long is taken to say what the server was left as."""


@asynccontextmanager
async def putting_back(
    config: Config, planner: Planner, audit: AuditLog, server: Server, first: Choice, *,
    quiet: bool,
) -> AsyncIterator[None]:  # fmt: skip
    """Whatever happens inside, ``first`` is what runs afterwards; said before and after.

    A failure of that is said and hides no earlier one. Interrupted while at it, it says what the
    server was left as and which command mends it.
    """
    back = _Back(config, planner, audit, server, first, quiet)
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()  # only the next interruption is meant for what comes now
        if await back.serves():
            warn(f"interrupted: it runs with {label(first)}, as before", head=server.name)
            raise
        more = "; a second Ctrl-C gives that up and says how it was left"
        await back.do(f"interrupted: putting {label(first)} back{more}")
        raise
    except BaseException:
        await back.do(f"putting {label(first)} back")
        raise
    else:
        await back.do(f"putting {label(first)} back")


@contextmanager
def _interrupting() -> Iterator[None]:
    """Ctrl-C ends this task alone: asyncio's own second one would take the connections along."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class _Back:
    def __init__(
        self, config: Config, planner: Planner, audit: AuditLog, server: Server, first: Choice,
        quiet: bool,
    ) -> None:  # fmt: skip
        self._config = config
        self._planner = planner
        self._audit = audit
        self._server = server
        self._first = first
        self._quiet = quiet
        self._plan_id = ""

    async def do(self, said: str) -> None:
        name, what = self._server.name, label(self._first)
        warn(said, head=name)
        try:
            with _interrupting():
                await self._relaunch()
        except asyncio.CancelledError:
            warn(await self._left(), head=name)
            raise
        except (ActionFailed, HostError, PreflightFailed, Refused) as error:
            warn(f"not brought back to {what}: {error}; {await self._left()}", head=name)
        else:
            warn(f"{what} runs again", head=name)

    async def serves(self) -> bool:
        """Whether what ran before is what runs: nothing of it was touched by a last plan."""
        try:
            found = (await look(self._planner.remote, self._server)).found
        except SpecopsError:
            return False
        run = found.run
        return (
            found.alive and run is not None and run.outcome == "ready"
            and label(_presets(run)) == label(self._first)
        )  # fmt: skip

    async def _relaunch(self) -> None:
        plan = await checked(self._planner, self._server, self._first)
        self._plan_id = plan.id
        remotes = self._planner.remotes
        done = await execute(remotes, self._config, self._audit, plan, quiet=self._quiet)
        raise_for(plan, done)

    async def _left(self) -> str:
        """What the server is now, and the command that mends it."""
        mend = f"mend with: {self._command()}"
        try:
            async with asyncio.timeout(LOOK_S):
                found = (await look(self._planner.remote, self._server)).found
                plan = await unfinished(list(self._planner.remotes.values()), self._server.name)
        except (SpecopsError, TimeoutError) as error:
            return f"how it was left is not known ({error}); {mend}"
        if plan is not None and plan.record.plan.id == self._plan_id:
            mend = plan.words
        if not found.alive:
            return f"left stopped; {mend}"
        names = label(_presets(found.run)) if found.run else "?"
        return f"left as it is, started with {names}; {mend}"

    def _command(self) -> str:
        """A relaunch with the presets that ran before; it starts a stopped server too."""
        words = ["specops", "relaunch", self._server.name, "--wait"]
        if preset := self._first.preset or self._first.speculative:
            words += ["--preset", preset]
        if self._first.nccl:
            words += ["--nccl", self._first.nccl]
        return shlex.join(words)


def _presets(run: Run) -> Choice:
    return Choice(speculative=run.speculative, nccl=run.nccl, preset=run.preset)
