"""Snapshots put together from changes are what a whole answer would have given."""

from __future__ import annotations

import random
from typing import Any

from console.model import Snapshot
from console.transport.decode import SnapshotBuilder
from tests import scale
from tests.unit.transport.test_hostile_agent import ANSWER, HELLO, ROW


def answer(uptime: float, **processes: Any) -> dict[str, Any]:
    return {**ANSWER, "uptime": uptime, "processes": {"whole": False, "gone": [], **processes}}


def whole(rows: dict[int, dict[str, Any]], uptime: float, gpus: object) -> Snapshot:
    said = answer(uptime, whole=True, rows=list(rows.values()))
    return SnapshotBuilder(HELLO).build({**said, "gpus": gpus})


def test_changes_and_a_whole_answer_give_the_same() -> None:
    rng = random.Random(scale.seed())
    for _ in range(scale.count(400)):
        builder, rows, uptime = SnapshotBuilder(HELLO), dict[int, dict[str, Any]](), 1000.0
        for turn in range(12):
            uptime += rng.random() * 5
            gone = [pid for pid in rows if rng.random() < 0.1]
            for pid in gone:
                del rows[pid]
            news = []
            for pid in range(10, 16):
                if rng.random() < 0.7 and turn:
                    continue
                start = rows.get(pid, ROW)["start"] if rng.random() < 0.8 else rng.randrange(900)
                changed = {"pid": pid, "start": start, "ticks": rng.randrange(99)}
                known = rows.get(pid)
                fresh = known is None or known["start"] != start
                rows[pid] = {**(ROW if fresh else known or {}), **changed}
                news.append(rows[pid] if fresh else changed)
            used = [{"pid": p, "memory_mib": 5.0, "kind": "C"} for p in rows if rng.random() < 0.3]
            gpus = [{"index": 0, "processes": used}]
            said = answer(uptime, whole=turn == 0, rows=news, gone=gone)
            built = builder.build({**said, "gpus": gpus})
            expected = whole(rows, uptime, gpus)
            assert sorted(built.processes, key=lambda p: p.id.pid) == sorted(
                expected.processes, key=lambda p: p.id.pid
            )
