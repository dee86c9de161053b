"""The programs that ``tests.bench.console`` measures, each run in a terminal of its own.

``bare``: a Textual application with one line. ``fleet N``: the console over N hosts of 8 GPUs whose
values all change once a second. ``flood``: the same with a log of 5,000 lines a second beside it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace


def bare() -> None:
    """The least that Textual can draw."""
    from textual.app import App, ComposeResult
    from textual.widgets import Static

    class Bare(App[None]):
        def compose(self) -> ComposeResult:
            yield Static("specops")

    Bare().run()


def fleet(count: int, flood: bool) -> None:
    """The console over made-up hosts."""
    import random
    import time

    from console.app import SpecopsApp
    from console.model import Host, HostState, HostView
    from console.remote import Cursor, LogChunk, LogSource
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
                await asyncio.sleep(0.05 if flood else 3600)

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
    SpecopsApp(config, opener).run()


if __name__ == "__main__":
    mode = sys.argv[1]
    if mode == "bare":
        bare()
    else:
        fleet(int(sys.argv[2]), flood=mode == "flood")
