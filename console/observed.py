"""What was seen of servers' processes, kept between commands on this operator's machine.

"Nothing moved for two minutes" cannot be seen in one short look. What an earlier command saw
counts, because a process is the same only with the same pid, start time and boot.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from console.config.paths import state_dir
from console.config.presets import write_atomically
from console.model import ProcessId
from console.zombies.stillness import Stillness, _Seen


def _path(host: str) -> Path:
    return state_dir() / "observed" / f"{host}.json"


def load(host: str, boot_id: str) -> Stillness:
    """What was kept for this boot of a host; empty where nothing was or it cannot be read."""
    try:
        rows: Any = json.loads(_path(host).read_text(encoding="utf-8"))
        if rows.get("format") != 1 or rows.get("boot_id") != boot_id:
            return Stillness()
        return Stillness(
            {
                ProcessId(int(r["pid"]), int(r["ticks"]), boot_id): _Seen(
                    float(r["since"]), float(r["time"]), int(r["cpu"]), _tuples(r["rest"])
                )
                for r in rows["seen"]
            }
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Stillness()


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def save(host: str, boot_id: str, stillness: Stillness, pids: Collection[int]) -> None:
    """Keep what was seen of these pids; a machine without a writable state folder keeps nothing."""
    rows = [
        {
            "pid": one.pid,
            "ticks": one.start_ticks,
            "since": seen.since,
            "time": seen.time,
            "cpu": seen.cpu,
            "rest": seen.rest,
        }
        for one, seen in stillness._seen.items()
        if one.pid in pids
    ]
    path = _path(host)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"format": 1, "boot_id": boot_id, "seen": rows}))
    except OSError:
        return
