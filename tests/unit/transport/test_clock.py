"""A host's clock that is set while it is looked at: nothing becomes still, or new, by that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.model import Hello, Process, ProcessId, Snapshot
from console.transport.decode import SnapshotBuilder
from console.zombies import Stillness
from console.zombies.family import newest, strangers

BOOT = "b0070000-0000-4000-8000-000000000001"
HELLO = Hello(
    "1", "3", "h", 0, "root", 9, BOOT, "ns", True, "6", False, "/var/lib/specops", False, 100, 0.0
)
HOUR = 3600.0


def value(uptime: float, clock: float, boot: str = BOOT) -> dict[str, object]:
    """What the agent answers, with one process that does nothing."""
    row = {
        "pid": 7, "start": 1000, "comm": "python3", "state": "S", "ppid": 1, "pgid": 7, "sid": 7,
        "threads": 1, "ticks": 5, "rss": 0, "uid": 0, "user": "root", "argv": ["python3"],
        "env": {}, "cgroup": "/", "tasks": {}, "readable": True,
        "read_bytes": 0, "write_bytes": 0,
    }  # fmt: skip
    return {
        "boot_id": boot, "uptime": uptime, "time": clock, "uid": 0, "protected": [],
        "processes": {"whole": True, "rows": [row], "gone": []}, "listening": [],
        "complete": True, "gpus": [], "artefacts": [],
    }  # fmt: skip


def looks(jump_s: float) -> tuple[Snapshot, Snapshot]:
    """Two looks three seconds apart, between which the clock was set."""
    builder = SnapshotBuilder(HELLO)
    return builder.build(value(100.0, 1e9)), builder.build(value(103.0, 1e9 + 3.0 + jump_s))


@pytest.mark.parametrize("jump_s", [HOUR, -HOUR, 0.0])
def test_nothing_is_still_for_an_hour_because_the_clock_was_set(jump_s: float) -> None:
    first, second = looks(jump_s)
    assert second.time - first.time == pytest.approx(3.0)
    still = Stillness()
    still.feed(first)
    still.feed(second)
    member = second.processes[0].id
    assert still.still_s([member], second.time) == pytest.approx(3.0)


def test_another_boot_has_another_clock() -> None:
    builder = SnapshotBuilder(HELLO)
    builder.build(value(100.0, 1e9))
    after = builder.build(value(5.0, 1e9 + HOUR, boot=BOOT.replace("7", "8")))
    assert after.time == pytest.approx(1e9 + HOUR)


def test_who_was_there_is_told_by_starts_and_not_by_the_clock() -> None:
    base = looks(0.0)[0]
    (shown,) = base.processes
    since = newest(base)
    assert since == 1000

    def other(start: int) -> Process:
        return replace(shown, id=ProcessId(8, start, BOOT), ppid=7)

    assert strangers([shown.id], [shown], since) == []
    assert strangers([shown.id], [shown, other(1500)], since) == [], "forked since then"
    assert len(strangers([shown.id], [shown, other(500)], since)) == 1, "it was there"
    assert len(strangers([shown.id], [shown, other(1500)], None)) == 1, "nobody knows"
