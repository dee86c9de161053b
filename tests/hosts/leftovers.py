"""Runs in namespaces of its own with an empty /dev/shm: makes leftovers, cleans, says what is left.

``python -m tests.hosts.leftovers NUMBER FOLDER`` prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from console.model import ZombieKind
from tests.hosts.killing import Bench, carry_out, session
from tests.trouble.api import make


async def main(number: int, folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
    with make("leftover", number, mib=1) as trouble:
        async with session(folder) as link:
            bench = Bench(link, trouble.specimens)
            await asyncio.sleep(1.0)
            found = await bench.look()
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
                "left": [path for path in wanted if Path(path).exists()],
                "mapped_left": [path for path in mapped if Path(path).exists()],
                "mapped": mapped,
            }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
