"""A sweep: one server measured under several presets, round after round, across interruptions.

Kept as lines of one file on the operator's machine: what was asked for, then one line for each
measurement or failure, then the end. Whatever ends the console, the next run of the same sweep goes
on with what is missing. Each round takes the presets in another order, so that a machine that grows
warm or busy favours none.
"""

from __future__ import annotations

import json
import os
import secrets
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from console.bench import Ratio, compare
from console.config.paths import state_dir
from console.errors import ActionFailed


@dataclass(frozen=True, slots=True)
class Asked:
    """What makes two sweeps the same one. ``load``: concurrencies, requests each, tokens."""

    host: str
    server: str
    presets: tuple[str, ...]
    rounds: int
    concurrency: tuple[int, ...]
    per_worker: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """How far a sweep is. ``speeds``: (round, preset) to concurrency to tokens/s.

    ``failed`` are presets that could not be served, with the reason: they are not tried again.
    ``before`` are the presets that ran when it began, by kind: what it ends with.
    """

    path: Path
    asked: Asked
    before: Mapping[str, str | None]
    speeds: Mapping[tuple[int, str], Mapping[int, float]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    ended: bool = False

    def remaining(self) -> list[tuple[int, str]]:
        """What is still to be measured, in order."""
        return [
            (turn, preset)
            for turn in range(self.asked.rounds)
            for preset in rotated(self.asked.presets, turn)
            if (turn, preset) not in self.speeds and preset not in self.failed
        ]


@dataclass(frozen=True, slots=True)
class Row:
    """One preset at one concurrency: the median over its rounds, and against the first preset."""

    preset: str
    concurrency: int
    rounds: int
    tokens_per_s: float | None
    lowest: float | None
    highest: float | None
    ratio: Ratio | None


def rotated(presets: Sequence[str], turn: int) -> tuple[str, ...]:
    """The presets in the order of one round: begun one further on each time."""
    at = turn % len(presets)
    return (*presets[at:], *presets[:at])


def folder() -> Path:
    """Where sweeps are kept, beside the measurements."""
    return state_dir() / "bench" / "sweeps"


def begin(asked: Asked, before: Mapping[str, str | None]) -> Sweep:
    """A new sweep.

    Raises:
        ActionFailed: it cannot be written, so it could not be gone on with.
    """
    path = folder() / f"{asked.server}-{secrets.token_hex(3)}.jsonl"
    sweep = Sweep(path, asked, dict(before))
    note(sweep, {"format": 1, "asked": asdict(asked), "before": dict(before)})
    return sweep


def note(sweep: Sweep, line: Mapping[str, Any]) -> None:
    """Append one line, on the disk before this returns.

    Raises:
        ActionFailed: it cannot be written.
    """
    try:
        sweep.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(sweep.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ActionFailed(error.strerror or str(error), place=str(sweep.path)) from error


def unfinished(asked: Asked) -> Sweep | None:
    """The newest sweep with exactly this asked for that has no end."""
    try:
        files = sorted(
            folder().glob(f"{asked.server}-*.jsonl"), key=lambda p: p.stat().st_mtime, reverse=True
        )
    except OSError:
        return None
    for path in files:
        sweep = load(path)
        if sweep is not None and sweep.asked == asked and not sweep.ended:
            return sweep
    return None


def load(path: Path) -> Sweep | None:
    """A sweep from its file; ``None`` where it is none. A torn last line is passed over."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        head = json.loads(lines[0])
        if head["format"] != 1:
            return None
        values = head["asked"]
        asked = Asked(
            **{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}  # type: ignore[arg-type]
        )
        before = dict(head["before"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    speeds: dict[tuple[int, str], dict[int, float]] = {}
    failed: dict[str, str] = {}
    ended = False
    for text in lines[1:]:
        try:
            line = json.loads(text)
            if "end" in line:
                ended = True
            elif "error" in line:
                failed[str(line["preset"])] = str(line["error"])
            else:
                key = (int(line["round"]), str(line["preset"]))
                speeds[key] = {int(n): float(v) for n, v in line["tokens_per_s"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return Sweep(path, asked, before, speeds, failed, ended)


def rows(sweep: Sweep) -> list[Row]:
    """The table, fastest first at each concurrency; the first preset is what others are held to.

    With ``m`` presets beside the first, each interval is one of ``m`` that hold together at 95 %.
    """
    asked, out = sweep.asked, list[Row]()
    others = len([p for p in asked.presets[1:] if p not in sweep.failed])
    for count in asked.concurrency:
        level = []
        for preset in asked.presets:
            mine = _by_round(sweep, preset, count)
            base = _by_round(sweep, asked.presets[0], count)
            pairs = [(base[turn], mine[turn]) for turn in sorted(mine) if turn in base]
            is_base = preset == asked.presets[0]
            level.append(
                Row(
                    preset=preset,
                    concurrency=count,
                    rounds=len(mine),
                    tokens_per_s=statistics.median(mine.values()) if mine else None,
                    lowest=min(mine.values(), default=None),
                    highest=max(mine.values(), default=None),
                    ratio=None if is_base else compare(pairs, comparisons=max(1, others)),
                )
            )
        out += sorted(level, key=lambda row: -(row.tokens_per_s or 0.0))
    return out


def _by_round(sweep: Sweep, preset: str, count: int) -> dict[int, float]:
    return {
        turn: speeds[count]
        for (turn, name), speeds in sweep.speeds.items()
        if name == preset and count in speeds
    }
