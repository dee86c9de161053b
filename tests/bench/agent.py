"""What the agent costs: requests, snapshots, and a request behind a flooded 1 Mbit/s link.

Ratios against the bound or the alternative, measured in the same run on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from console.model import Host
from console.remote import LogSource
from console.session import Headless, Session, connect
from tests.proxy import Proxy


async def timed(count: int, work: Callable[[], Awaitable[object]]) -> list[float]:
    """Seconds of each of ``count`` calls, sorted."""
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        await work()
        found.append(time.perf_counter() - begun)
    return sorted(found)


def line(name: str, values: list[float], against: float, what: str) -> None:
    """One result: median, 99th percentile, ratio."""
    p50, p99 = statistics.median(values), values[int(len(values) * 0.99)]
    ratio = p99 / against
    print(f"{name:34} p50 {p50 * 1e3:8.2f} ms  p99 {p99 * 1e3:8.2f} ms  {ratio:6.3f} of {what}")


async def start_process() -> None:
    """The alternative to a request: one process started for each question."""
    process = await asyncio.create_subprocess_exec("/bin/true")
    await process.wait()


async def flooded(folder: Path) -> None:
    """A log at ten times the link's rate, and requests meanwhile; the bound is 1 s."""
    from tests.rig.sshd import LoopbackSshd

    server = LoopbackSshd(folder / "sshd")
    try:
        async with Proxy(server.address, server.port) as proxy:
            known = folder / "known_hosts"
            known.write_text(server.host_key.known_hosts_line(server.address, proxy.port))
            host = Host(
                "slow", address=server.address, port=proxy.port, user=server.user,
                python=sys.executable, identity_files=(str(server.key.path),),
                known_hosts=str(known),
            )  # fmt: skip
            session = await connect(host, hosts={}, prompts=Headless())
            proxy.both(bytes_per_s=125_000)
            await flood(session, folder / "log")
            proxy.both(bytes_per_s=None)
            await session.close()
    finally:
        server.stop()


async def flood(session: Session, log: Path) -> None:
    """Write, tail and ask at the same time."""
    log.write_bytes(b"first\n")
    got = 0

    async def read() -> None:
        nonlocal got
        async for chunk in session.tail(LogSource(path=str(log))):
            got += len(chunk.data)

    async def write() -> None:
        with log.open("ab") as target:
            while True:
                target.write(b"x" * 124_999 + b"\n")
                target.flush()
                await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
    await asyncio.sleep(3)
    begun, before = time.perf_counter(), got
    values = await timed(100, lambda: session.signal([], "TERM"))
    rate = (got - before) / (time.perf_counter() - begun)
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    line("kill verb, flooded 1 Mbit/s", values, 1.0, "the bound of 1 s")
    print(f"{'  log meanwhile':34} {rate / 1e3:8.1f} kB/s  {rate / 125_000:6.3f} of the link")


async def main() -> None:
    """Run all."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["SPECOPS_STATE_DIR"] = f"{name}/state"
        begun = time.perf_counter()
        session = await connect(Host("here", transport="local"), hosts={}, prompts=Headless())
        print(f"{'start of an agent':34} {(time.perf_counter() - begun) * 1e3:8.2f} ms")
        spawn = statistics.median(await timed(50, start_process))
        line("request", await timed(500, lambda: session.stat(["/"])), spawn, "a process start")
        await session.snapshot()
        line("snapshot", await timed(50, session.snapshot), 1.0, "the second between two")
        whole = await timed(10, lambda: session.snapshot(full=True, artefacts=True))
        line("snapshot, full with artefacts", whole, 30.0, "the 30 s between two")
        log = Path(name) / "big"
        log.write_bytes(b"some line of a log, nothing special in it at all\n" * 1_000_000)
        begun = time.perf_counter()
        size = 0
        async for chunk in session.tail(LogSource(path=str(log)), follow=False):
            size += len(chunk.data)
        seconds = time.perf_counter() - begun
        print(f"{'log, 49 MB':34} {size / seconds / 1e6:8.1f} MB/s")
        await session.close()
        await flooded(Path(name))


if __name__ == "__main__":
    asyncio.run(main())
