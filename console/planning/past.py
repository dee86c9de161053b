"""Measurements that this operator has made before, read from where ``specops bench`` keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from console.config.paths import state_dir
from console.planning.ranking import Measured

MAX_BYTES = 64 << 20
"""Of a host's history so much of the end is read: tens of thousands of measurements."""


def folder() -> Path:
    """``$XDG_STATE_HOME/specops/bench``: one ``HOST.jsonl`` for each host."""
    return state_dir() / "bench"


def measurements(where: Path | None = None) -> tuple[Measured, ...]:
    """All measurements kept on this machine, in the order they were made.

    Lines that are damaged, or of a newer format, are passed over: history is no reason to fail.
    """
    try:
        files = sorted((where or folder()).glob("*.jsonl"))
    except OSError:
        return ()
    found = [one for path in files for row in rows(path) if (one := measured_of(row))]
    return tuple(sorted(found, key=lambda row: row.at))


def rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The lines of one host's history that are JSON objects; none where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MAX_BYTES))
            lines = file.read(MAX_BYTES).splitlines()
    except OSError:
        return
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, Mapping):
            yield row


def measured_of(row: Mapping[str, Any]) -> Measured | None:
    """One line of the history; ``None`` for what is none.

    Levels with failed requests are left out: their throughput is that of a server in trouble.
    """
    try:
        if row["format"] != 1:
            return None
        good = [level for level in row["levels"] if not level["failed"]]
        if not good:
            return None
        accepted = [level.get("accept_length") for level in good]
        return Measured(
            host=str(row["host"]),
            model=str(row.get("model") or ""),
            at=float(row["time"]),
            speculative=_name(row.get("speculative")),
            nccl=_name(row.get("nccl")),
            preset=_name(row.get("preset")),
            run_id=_name(row.get("run_id")),
            tokens_per_s={
                (int(level["concurrency"]), int(row["tokens"])): float(level["tokens_per_s"])
                for level in good
            },
            accept_length=next((float(a) for a in accepted[::-1] if a is not None), None),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
