"""The programs that ``tests.bench.console`` measures, each run in a terminal of its own.

``bare``: a Textual application with one line. ``keys``: one whose line answers two keys.
``fleet N``: the console over N hosts of 8 GPUs whose values all change once a second. ``flood``:
the same with a log of 5,000 lines a second beside it. ``watched N FILE``: as ``fleet``, with its
event loop timed from inside, the result in the file.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple


def bare() -> None:
    """The least that Textual can draw."""
    from textual.app import App, ComposeResult
    from textual.widgets import Static

    class Bare(App[None]):
        def compose(self) -> ComposeResult:
            yield Static("specops")

    Bare().run()


def keys() -> None:
    """The least that Textual can answer a key with."""
    from textual.app import App, ComposeResult
    from textual.widgets import Static

    class Keys(App[None]):
        BINDINGS = [("k", "say('PAUSED')", ""), ("f", "say('FOLLOW')", "")]  # noqa: RUF012

        def compose(self) -> ComposeResult:
            yield Static("FOLLOW")

        def action_say(self, word: str) -> None:
            self.query_one(Static).update(word)

    Keys().run()


START_S = 5.0
TICK_S = 0.005


LONG_S = 0.008
"""Steps that are kept."""
SHOWN = 5


class Step(NamedTuple):
    """One callback of the loop: how long it held it, its CPU, and whose it was."""

    seconds: float
    cpu_s: float
    what: str


def _name(handle: asyncio.Handle) -> str:
    """Whose step it is: the task's name, which has the widget's in it, else the callback's."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    return owner.get_name() if isinstance(owner, asyncio.Task) else repr(callback)[:60]


class Loop:
    """Times the event loop: how late a timer comes, and how long single steps take."""

    def __init__(self, leaving: Callable[[], bool]) -> None:
        self.leaving = leaving  # what is done then holds up nobody
        self.begun = time.monotonic()
        self.late: dict[str, list[float]] = {"start": [], "minute": []}
        self.steps: dict[str, list[Step]] = {"start": [], "minute": []}

    @property
    def part(self) -> str:
        """The start has a line of its own."""
        return "start" if time.monotonic() - self.begun < START_S else "minute"

    def time_steps(self) -> None:
        """Every callback of every loop of this process."""
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            wall, cpu = time.monotonic(), time.thread_time()
            what = _name(handle)
            run(handle)
            step = Step(time.monotonic() - wall, time.thread_time() - cpu, what)
            if step.seconds > LONG_S and not self.leaving():
                self.steps[self.part].append(step)

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]

    async def tick(self) -> None:
        """A timer of five milliseconds, and how late it was."""
        while True:
            due = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self.late[self.part].append(time.monotonic() - due)

    def write(self, path: str) -> None:
        """Milliseconds, as JSON."""
        found = {}
        for part, late in self.late.items():
            late.sort()
            found[part] = {
                "p999": 1000 * late[int(len(late) * 0.999)],
                "max": 1000 * late[-1],
                "steps": [
                    (1000 * step.seconds, 1000 * step.cpu_s, step.what)
                    for step in sorted(self.steps[part], reverse=True)[:SHOWN]
                ],
            }
        Path(path).write_text(json.dumps(found), encoding="utf-8")


def fleet(count: int, flood: bool, report: str = "") -> None:
    """The console over made-up hosts."""
    gc.disable()  # as console.terminal.run does; the console collects again once it is open
    import random

    from console.app import SpecopsApp
    from console.model import Host, HostState, HostView
    from console.remote import Cursor, LogChunk, LogSource
    from console.screens.opening import Prepared
    from tests.functional.console import fake

    rng = random.Random(7)
    model = fake.views()["dflash"]

    class Fleet(fake.FakeFleet):
        async def start(self) -> None:
            self.task = asyncio.create_task(self.run())

        async def run(self) -> None:
            while True:
                for name in list(self.views):
                    self.publish(one(name))
                    await asyncio.sleep(1 / count)

        async def stop(self) -> None:
            self.task.cancel()

    class Actions(fake.FakeActions):
        async def tail(
            self, host: str, source: LogSource, *, last_lines: int | None = None
        ) -> AsyncIterator[LogChunk]:
            line = b"[2026-11-29 05:58:14 TP0] Decode batch. #running-req: 8, gen throughput: 812\n"
            while True:
                yield LogChunk(line * 250, Cursor())
                if not flood:
                    await self.more.wait()
                await asyncio.sleep(0.05)

    def one(name: str) -> HostView:
        assert model.snapshot is not None
        gpus = tuple(
            replace(
                gpu, memory_used_mib=rng.uniform(9, 80_000), utilization_pct=rng.uniform(0, 100)
            )
            for gpu in model.snapshot.gpus
        )
        state = replace(model.servers[0], name=f"s-{name}", accept_length=rng.uniform(1, 4))
        run = replace(model.runs[0], server=f"s-{name}")
        return HostView(
            Host(name), HostState.OK, "", time.time(), None,
            replace(model.snapshot, gpus=gpus), (state,), (), (run,),
        )  # fmt: skip

    names = [f"host{i:02}" for i in range(count)]
    made = Fleet({name: one(name) for name in names})

    async def opener(prompts: object) -> tuple[fake.FakeFleet, fake.FakeActions]:
        return made, Actions()

    config = replace(fake.config(), hosts={name: Host(name) for name in names}, servers={})
    app = SpecopsApp(lambda: Prepared(config, opener))
    if report:
        loop = Loop(lambda: app._exit)
        loop.time_steps()
        atexit.register(loop.write, report)
        app.call_later(lambda: app.run_worker(loop.tick(), group="watch"))
    app.run()


if __name__ == "__main__":
    mode = sys.argv[1]
    if mode == "bare":
        bare()
    elif mode == "keys":
        keys()
    else:
        report = sys.argv[3] if mode == "watched" else ""
        fleet(int(sys.argv[2]), flood=mode == "flood", report=report)
