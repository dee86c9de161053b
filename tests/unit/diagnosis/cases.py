"""The cases under tests/data/cases, and how an answer is judged against one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from console.diagnosis import diagnose
from console.model import Diagnosis

DATA = Path(__file__).parents[2] / "data" / "cases"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Case:
    """One log with the answer expected of it."""

    id: str
    log: bytes
    expect: dict[str, Any]

    def __str__(self) -> str:
        return self.id


@cache
def cases(*folders: str) -> tuple[Case, ...]:
    """All cases of the named folders, in order of their ids."""
    found = []
    for folder in folders:
        for path in sorted((DATA / folder).glob("*.log")):
            expect = json.loads(path.with_suffix(".json").read_text("utf-8"))["expect"]
            found.append(Case(path.stem, path.read_bytes(), expect))
    assert found, f"no cases under {DATA}"
    return tuple(found)


def fold(text: str) -> str:
    """White space folded, escapes removed."""
    return " ".join(_ANSI.sub("", text).split())


def last_name(kind: str) -> str:
    """The part of a class that is compared: ``torch.OutOfMemoryError`` is ``outofmemoryerror``."""
    low = fold(kind).lower()
    if "xid" in low:
        numbers: list[str] = re.findall(r"[0-9]+", low)
        return f"xid {numbers[-1]}"
    if "watchdog" in low:
        return "watchdog"
    return low.replace("::", ".").rpartition(".")[2]


def rank_number(rank: str) -> int | None:
    """The number in ``DP1 TP3``, ``rank3``, ``TP3`` or ``3``."""
    match = re.search(r"(?:tp|rank|^)[ _]?(\d+)", rank, re.IGNORECASE)
    return int(match[1]) if match else None


def judge(expect: dict[str, Any], answer: Diagnosis) -> dict[str, bool]:
    """Which of the fields that a case expects the answer has right."""
    root, right = answer.root, {}
    if expect["root"] is None:
        right["root"] = root is None
    else:
        named = root is not None and last_name(root.type) == last_name(expect["root"])
        wanted = expect.get("message_contains") or []
        texts = [wanted] if isinstance(wanted, str) else wanted
        told = not texts or any(fold(t) in fold(root.message if root else "") for t in texts)
        right["root"] = named and told
        if expect.get("file_line"):
            place = f"{Path(root.file).name}:{root.line}" if root and root.file else None
            right["file_line"] = place == expect["file_line"]
        if expect.get("rank"):
            got = rank_number(root.rank) if root and root.rank else None
            right["rank"] = got == rank_number(expect["rank"])
    right["category"] = answer.category in [expect["category"], *expect.get("category_also", [])]
    return right


def score(folder: str) -> dict[str, tuple[int, int]]:
    """Per field: how many are right, of how many."""
    counts: dict[str, tuple[int, int]] = {}
    for case in cases(folder):
        for name, ok in judge(case.expect, diagnose(case.log)).items():
            right, total = counts.get(name, (0, 0))
            counts[name] = (right + ok, total + 1)
    return counts
