"""The state directory: run records, plan journals. Reading only; ``record`` writes.

Every file carries ``"format": 1``. A newer format is read where it can be and never written over.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from console.agent import machine
from console.agent.calls import Call, VerbError, Verbs

FORMAT = 1
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")


def folder(kind: str) -> str:
    """``runs`` or ``journals`` in the state directory."""
    return os.path.join(machine.state_dir(), kind)


def checked_name(name: str) -> str:
    """A run or plan id that is safe as a file name; raises ``VerbError``."""
    if not NAME.match(name):
        raise VerbError("usage", "{!r} cannot be an id".format(name[:80]))
    return name


def names(kind: str, ending: str) -> list[str]:
    """The files of a kind."""
    try:
        return sorted(name for name in os.listdir(folder(kind)) if name.endswith(ending))
    except (FileNotFoundError, NotADirectoryError):
        return []


def load(path: str) -> dict[str, Any] | None:
    """A record, ``None`` when it is damaged or not ours."""
    try:
        value = json.loads(machine.read(path, 4 << 20).decode("utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("format"), int) else None


def too_new(value: dict[str, Any] | None) -> bool:
    """Whether a newer specops has written it."""
    return value is not None and value["format"] > FORMAT


def runs(_call: Call) -> list[dict[str, Any]]:
    """The verb: all run records; a finished server's exit is added from beside its record."""
    found = []
    for name in names("runs", ".json"):
        path = os.path.join(folder("runs"), name)
        record = load(path)
        if record is None:
            continue
        ended = load(path[: -len(".json")] + ".exit")
        if ended is not None:
            record["exit"] = ended
        found.append(record)
    return found


def journals(_call: Call) -> dict[str, list[Any]]:
    """The verb: plan id to its entries; a line cut off by a crash is left out."""
    return {name[: -len(".jsonl")]: _entries(name) for name in names("journals", ".jsonl")}


def _entries(name: str) -> list[Any]:
    entries = []
    for line in machine.read(os.path.join(folder("journals"), name), 16 << 20).splitlines():
        try:
            entry = json.loads(line.decode("utf-8"))
        except ValueError:
            continue
        if isinstance(entry, dict):
            entry.pop("format", None)
            entries.append(entry)
    return entries


_LOOKING = ("preflight", "watch")
"""Kinds of steps that change nothing."""
_judged: dict[str, tuple[tuple[int, int], tuple[float, str, bool, bool]]] = {}
"""Of each journal its time and length when it was read, and what ``_judge`` said."""


def open_journals(_call: Call) -> dict[str, list[Any]]:
    """The verb: the journals without an end that no later plan of the same server has followed.

    Asked again and again, so a journal is read only when it has changed.
    """
    rows = []
    for name in names("journals", ".jsonl"):
        try:
            seen = os.stat(os.path.join(folder("journals"), name))
            key = (seen.st_mtime_ns, seen.st_size)
            if name not in _judged or _judged[name][0] != key:
                _judged[name] = (key, _judge(_entries(name)))
        except OSError:  # taken away just now
            continue
        rows.append((*_judged[name][1], name))
    found: dict[str, list[Any]] = {}
    taken = set()
    for _at, place, is_open, touched, name in sorted(rows, reverse=True):
        if is_open and place not in taken:
            found[name[: -len(".jsonl")]] = _entries(name)
        if is_open or touched:
            taken.add(place)
    return found


def _judge(entries: list[Any]) -> tuple[float, str, bool, bool]:
    """When a plan began, what it is about, whether it has no end, whether it changed anything."""
    first = entries[0] if entries else {}
    plan = first.get("plan")
    at = first.get("time")
    if not isinstance(plan, dict) or not isinstance(at, (int, float)):
        return 0.0, "", False, False
    server = plan.get("server")
    place = "server {}".format(server) if server else "action {}".format(plan.get("action"))
    is_open, touched, kinds = True, False, {}
    for entry in entries:
        event = entry.get("event")
        if event in ("plan", "end"):
            is_open = event == "plan"
        elif event == "intent":
            kinds[str(entry.get("step"))] = entry.get("kind")
        elif event == "result" and entry.get("outcome") == "ok":
            touched = touched or kinds.get(str(entry.get("step"))) not in _LOOKING
    return float(at), place, is_open, touched


def lock_owner(_call: Call) -> str | None:
    """The verb: whoever holds the host's lock, in the words of the lock; ``None``: nobody does.

    Asked of the kernel (proc(5), /proc/locks), because trying the lock would take it for a moment.
    """
    path = os.path.join(machine.state_dir(), "lock")
    try:
        inode = os.stat(path).st_ino
        held = machine.read("/proc/locks", 1 << 20).decode("ascii", "replace")
    except OSError:
        return None
    for line in held.splitlines():
        words = line.split()
        if "FLOCK" in words and any(word.endswith(":{}".format(inode)) for word in words):
            owner = machine.read(path, 4096).decode("utf-8", "backslashreplace").strip()
            return owner or "another console"
    return None


VERBS: Verbs = {
    "runs": runs,
    "journals": journals,
    "open_journals": open_journals,
    "lock_owner": lock_owner,
}
