"""What was seen of servers' processes, kept between commands on this operator's machine.

"Nothing moved for two minutes" cannot be seen in one short look. What an earlier command saw
counts, because a process is the same only with the same pid, start time and boot.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from console.config.paths import state_dir
from console.config.whole import write_atomically
from console.model import ProcessId
from console.zombies.stillness import Seen, Stillness

FORMAT = 2
SEEN_LONG_ENOUGH_S = 60.0
"""Shorter than that, a count that has not been seen to move says nothing yet."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A server's count of tokens: since when (host clock, s) it has this value.

    ``moved``: the change to it was seen; otherwise ``since`` is only when looking began.
    """

    run_id: str | None
    total: float
    since: float
    moved: bool = False

    def still_s(self, now: float) -> float | None:
        """How long the count has stood, ``None`` where it was not looked at for long enough."""
        seconds = max(0.0, now - self.since)
        return seconds if self.moved or seconds >= SEEN_LONG_ENOUGH_S else None


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of one host; ``tokens`` by server name."""

    stillness: Stillness = field(default_factory=Stillness)
    tokens: Mapping[str, Tokens] = field(default_factory=dict)


def _path(host: str) -> Path:
    return state_dir() / "observed" / f"{host}.json"


def load(host: str, boot_id: str) -> Kept:
    """What was kept for this boot of a host; nothing where nothing was or it cannot be read."""
    try:
        rows: Any = json.loads(_path(host).read_text(encoding="utf-8"))
        if rows.get("format") != FORMAT or rows.get("boot_id") != boot_id:
            return Kept()
        stillness = Stillness({ProcessId(*_key(row), boot_id): _seen(row) for row in rows["seen"]})
        return Kept(stillness, {name: Tokens(**row) for name, row in rows["tokens"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Kept()


def _key(row: Mapping[str, Any]) -> tuple[int, int]:
    return int(row["pid"]), int(row["ticks"])


def _seen(row: Mapping[str, Any]) -> Seen:
    devices = row["devices"]
    return Seen(
        float(row["since"]),
        float(row["time"]),
        int(row["cpu"]),
        (row["read"], row["written"]),
        None if devices is None else tuple((int(index), held) for index, held in devices),
    )


def save(host: str, boot_id: str, kept: Kept, pids: Collection[int]) -> None:
    """Keep it, of processes only these pids; where the folder is not writable nothing is kept."""
    rows = [
        {
            "pid": one.pid,
            "ticks": one.start_ticks,
            "since": seen.since,
            "time": seen.time,
            "cpu": seen.cpu,
            "read": seen.read_write[0],
            "written": seen.read_write[1],
            "devices": seen.devices,
        }
        for one, seen in kept.stillness.seen.items()
        if one.pid in pids
    ]
    path = _path(host)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tokens = {name: asdict(value) for name, value in kept.tokens.items()}
        body = {"format": FORMAT, "boot_id": boot_id, "seen": rows, "tokens": tokens}
        write_atomically(path, json.dumps(body))
    except OSError:
        return
