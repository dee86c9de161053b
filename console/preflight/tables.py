"""Which options a version of the engine knows, and which architectures.

The tables are derived from each version's source (tests/engine/make_tables.py). Four versions have
one; a version between two of them is judged by both neighbours: what either knows is accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

VERSIONS = ("0.5.3.post3", "0.5.9", "0.5.12.post1", "0.5.23")
"""Versions with a table of their own, oldest first."""

BUNDLED = "eagle3"
"""Name of the bundled engine's table."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``values`` is 0 for a bare flag, 1, or argparse's ``+``, ``*``, ``?``."""

    names: tuple[str, ...]
    values: int | str = 1
    type: str = ""
    choices: tuple[str | None, ...] = ()
    deprecated: str = ""
    replacement: str = ""

    @property
    def key(self) -> str:
        """The canonical name without dashes; the older spelling where the first one varies."""
        return _CANONICAL.get(self.names[0], self.names[0]).lstrip("-")


# Options whose first spelling differs between versions; the value is the stable name.
_CANONICAL = {
    "--tensor-parallel-size": "--tp-size",
    "--data-parallel-size": "--dp-size",
    "--expert-parallel-size": "--ep-size",
    "--pipeline-parallel-size": "--pp-size",
    "--model": "--model-path",
}


@dataclass(frozen=True, slots=True)
class Table:
    """What one version knows.

    ``own_drafts`` are targets whose own checkpoint holds the draft layer (multi-token prediction).
    """

    version: str
    options: Mapping[str, Option]
    architectures: frozenset[str]
    eagle3_targets: frozenset[str]
    eagle3_drafts: frozenset[str]
    own_drafts: frozenset[str]

    def matches(self, flag: str) -> tuple[Option, ...]:
        """The options that argparse would take the flag for: itself, or all with that prefix."""
        if flag in self.options:
            return (self.options[flag],)
        found = {o.names: o for name, o in self.options.items() if name.startswith(flag)}
        return tuple(found.values()) if flag.startswith("--") and len(flag) > 2 else ()


@dataclass(frozen=True, slots=True)
class Tables:
    """The table a version is judged by, and the neighbour above where it has none of its own."""

    version: str
    table: Table
    above: Table | None = None
    note: str = ""

    @property
    def exact(self) -> bool:
        """Whether the version has a table of its own."""
        return self.above is None and not self.note


def parse_version(text: str) -> tuple[int, ...]:
    """``0.5.12.post1`` as (0, 5, 12); the numbers before any suffix."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in match[1].split(".")) if match else ()


@cache
def load(version: str) -> Table:
    """The table of a version in ``VERSIONS`` or of the bundled engine."""
    raw = _read("eagle3.json" if version == BUNDLED else f"sglang-{version}.json")
    return Table(
        version=raw["version"],
        options=_options(raw["options"]),
        architectures=frozenset(raw["architectures"]),
        eagle3_targets=frozenset(raw["eagle3_targets"]),
        eagle3_drafts=frozenset(raw["eagle3_drafts"]),
        own_drafts=frozenset(raw["own_drafts"]),
    )


def _read(name: str) -> dict[str, Any]:
    file = resources.files("console.preflight") / "data" / name
    raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return raw


def _options(entries: list[dict[str, Any]]) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for entry in entries:
        option = Option(
            names=tuple(entry["names"]),
            values=entry["values"],
            type=entry.get("type", ""),
            choices=tuple(entry.get("choices", ())),
            deprecated=entry.get("deprecated", ""),
            replacement=entry.get("replacement", ""),
        )
        options.update(dict.fromkeys(option.names, option))
    return options


def select(version: str | None) -> Tables:
    """The tables for a version; the newest, with a note, where it is unknown."""
    if version == BUNDLED:
        return Tables(BUNDLED, load(BUNDLED))
    number = parse_version(version or "")
    if not number:
        newest = VERSIONS[-1]
        return Tables(newest, load(newest), note=f"the version is unknown, judged as {newest}")
    known = [(parse_version(v), v) for v in VERSIONS]
    for have, name in known:
        if have == number:
            return Tables(version or name, load(name))
    below = [name for have, name in known if have < number]
    above = [name for have, name in known if have > number]
    if not above:
        note = f"{version} is newer than the newest table, judged as {below[-1]}"
        return Tables(version or "", load(below[-1]), note=note)
    if not below:
        note = f"{version} is older than the oldest table, judged as {above[0]}"
        return Tables(version or "", load(above[0]), note=note)
    return Tables(version or "", load(below[-1]), above=load(above[0]))
