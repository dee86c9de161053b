"""Runs in namespaces of its own with an empty /dev/shm: makes leftovers, cleans, says what is left.

``python -m tests.hosts.leftovers NUMBER FOLDER`` prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from console.model import Zombie, ZombieKind
from tests.hosts.killing import Bench, carry_out, session
from tests.trouble.api import make

JOB = """
import _multiprocessing, os, sys, time
names = [f"/loky-{os.getpid()}-abc", f"/mp-{os.getpid():08x}"]
held = [_multiprocessing.SemLock(1, 1, 1, name, False) for name in names]
print(*("/dev/shm/sem." + name[1:] for name in names), flush=True)
time.sleep(600)
"""
"""Semaphores as loky and multiprocessing (spawned) make them: named as long as they are used,
unlinked by a finaliser or by the resource tracker, which a kill -9 of everything spares nobody."""


@dataclass(frozen=True)
class Job:
    """A program with semaphores."""

    job: subprocess.Popen[str]
    paths: list[str]


@contextmanager
def semaphores() -> Iterator[Job]:
    """A job that is no server's, with its two semaphores."""
    argv = [sys.executable, "-c", JOB]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        try:
            yield Job(job, job.stdout.readline().split())
        finally:
            job.kill()


def in_shm(zombie: Zombie) -> bool:
    """Whether it is in the shared memory that is this program's alone."""
    path = zombie.resource.path if zombie.resource else None
    return path is not None and path.startswith("/dev/shm/")


async def main(number: int, folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
    with make("leftover", number, mib=1) as trouble, ExitStack() as jobs:
        live, dead = jobs.enter_context(semaphores()), jobs.enter_context(semaphores())
        dead.job.kill()
        dead.job.wait()
        async with session(folder) as link:
            bench = Bench(link, trouble.specimens)
            await asyncio.sleep(1.0)
            found = [z for z in await bench.look(everything=True) if bench.mine(z) or in_shm(z)]
            proposed = [z for z in found if z.kind is ZombieKind.LEFTOVER and z.killable]
            wanted = [path for one in trouble.specimens for path in one.paths]
            mapped = [path for one in trouble.specimens for path in one.more["mapped"]]
            results = await carry_out(link, bench.plan(proposed), folder)
            said = {
                "made": [path for path in wanted if path.startswith("/dev/shm/")],
                "proposed": [z.resource.path for z in proposed if z.resource],
                "why_not": [z.why_not for z in found if not z.killable],
                "outcomes": [result.outcome for result in results],
                "detail": [result.detail for result in results],
                "left": [path for path in (*wanted, *dead.paths) if Path(path).exists()],
                "mapped_left": [path for path in mapped if Path(path).exists()],
                "mapped": mapped,
                "live": live.paths,
                "live_left": [path for path in live.paths if Path(path).exists()],
                "dead": dead.paths,
            }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
