"""Many zombies on one host end as one plan, in a time that does not grow with their number."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests import scale
from tests.hosts.killing import Bench, carry_out, running, session
from tests.rig.nspawn import missing as no_hosts
from tests.rig.plugin import require
from tests.trouble.api import make

pytestmark = [pytest.mark.hosts, pytest.mark.long]


async def test_many_orphans(tmp_path: Path, capsys: Any) -> None:
    require(no_hosts())
    launches = scale.count(50)
    each = 10
    with make("orphan", launches, ranks=each, run_id=f"many-{time.time_ns():x}-{{}}") as trouble:
        async with session(tmp_path) as link:
            bench = Bench(link, trouble.specimens)
            found = [z for z in await bench.look() if z.killable]
            assert len(found) == launches * each
            started = time.monotonic()
            plan = bench.plan(found, drain_s=10.0)
            planned = time.monotonic()
            results = await carry_out(link, plan, tmp_path)
            ended = time.monotonic()
            assert {r.outcome for r in results} == {"ok"}, results
        assert not [pid for one in trouble.specimens for pid in running(one)]
    with capsys.disabled():
        print(f"\n{len(found)} zombies: planned in {planned - started:.2f} s, "
              f"ended in {ended - planned:.2f} s of a drain bound of 10 s")  # fmt: skip
