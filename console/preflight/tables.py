"""Which options a version of the engine knows, and which architectures and quantisations.

``data/sglang.json`` is derived from the source of every version (tools/sglang_tables.py). A version
between two of them is judged by both neighbours: what either knows is accepted. One that is newer
or older than all of them is judged by the nearest, and a note says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

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
    default: int | float | str | None = None

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
class Method:
    """A quantisation method: least compute capability (90 for 9.0) and configs it looks for.

    ``files`` is None where the source does not tell; where it is empty, ``needs`` says whether the
    class can be made without a quantisation in config.json.
    """

    name: str
    capability: int | None = None
    files: tuple[str, ...] | None = None
    needs: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What one version knows.

    ``own_drafts`` are targets whose own checkpoint holds the draft layer (multi-token prediction);
    ``transformers`` is the version that the engine pins, empty where it pins none.
    """

    version: str
    options: Mapping[str, Option]
    architectures: frozenset[str]
    eagle3_targets: frozenset[str]
    eagle3_drafts: frozenset[str]
    own_drafts: frozenset[str]
    quantisation: Mapping[str, Method] = field(default_factory=dict)
    transformers: str = ""

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

    named: bool = True
    """Whether the version is known, if not its table."""

    @property
    def exact(self) -> bool:
        """Whether the version has a table of its own."""
        return self.above is None and not self.note


def parse_version(text: str) -> tuple[int, ...]:
    """``0.5.12.post1`` as (0, 5, 12); the numbers before any suffix."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in match[1].split(".")) if match else ()


@cache
def order(text: str) -> tuple[tuple[int, ...], int]:
    """What versions are sorted by: the numbers, then that of a post-release."""
    post = re.search(r"\.post(\d+)", text)
    return parse_version(text), int(post[1]) if post else 0


@cache
def versions() -> tuple[str, ...]:
    """The versions with a table of their own, oldest first."""
    return tuple(_read("sglang.json")["versions"])


@cache
def load(version: str) -> Table:
    """The table of one of :func:`versions` or of the bundled engine."""
    if version == BUNDLED:
        raw = _read("eagle3.json")
        return Table(
            version=raw["version"],
            options=_options(raw["options"]),
            architectures=frozenset(raw["architectures"]),
            eagle3_targets=frozenset(raw["eagle3_targets"]),
            eagle3_drafts=frozenset(raw["eagle3_drafts"]),
            own_drafts=frozenset(raw["own_drafts"]),
        )
    raw = _read("sglang.json")
    models = list(_held(raw["architectures"], version))
    known = frozenset(m["name"] for m in models if not m.get("unregistered"))
    return Table(
        version=version,
        options=_options(_held(raw["options"], version)),
        architectures=known,
        eagle3_targets=frozenset(m["name"] for m in models if m.get("captures")),
        eagle3_drafts=frozenset(name for name in known if "Eagle3" in name),
        own_drafts=frozenset(m["name"] for m in models if m.get("own_draft")),
        quantisation={
            row["name"]: Method(
                row["name"],
                row.get("capability"),
                tuple(row["files"]) if "files" in row else None,
                row.get("needs", False),
            )
            for row in _held(raw["quantisation"], version)
        },
        transformers=next((row["version"] for row in _held(raw["pins"], version)), ""),
    )


def option_spans(flag: str) -> list[tuple[str, str]]:
    """First and last version of every run of versions that has a flag, oldest first."""
    return _spans(row["in"] for row in _read("sglang.json")["options"] if flag in row["names"])


def options_anywhere(flag: str) -> list[Option]:
    """Every form that a flag has in any version, newest first."""
    rows = [row for row in _read("sglang.json")["options"] if flag in row["names"]]
    rows.sort(key=lambda row: order(row["in"][1]), reverse=True)
    return [_options([row])[flag] for row in rows]


@cache
def anywhere(flag: str) -> bool:
    """Whether any version has a flag of that name or with that beginning."""
    rows = _read("sglang.json")["options"]
    return any(name.startswith(flag) for row in rows for name in row["names"])


def first_with(architecture: str, mark: str = "") -> str | None:
    """The oldest version that registers an architecture; with ``mark``, one that has it so."""
    rows = (
        row
        for row in _read("sglang.json")["architectures"]
        if row["name"] == architecture and not row.get("unregistered") and row.get(mark, not mark)
    )
    found = _spans(row["in"] for row in rows)
    return found[0][0] if found else None


@cache
def places() -> Mapping[str, Mapping[str, str]]:
    """Rule to version to ``file:line`` of SGLang's source; a version that has none is left out."""
    rows = _read("sglang.json")["sources"]
    return {
        row["rule"]: {v: p for v, p in zip(versions(), row["lines"], strict=True) if p}
        for row in rows
    }


def place(rule: str, version: str) -> str:
    """The line behind a rule in a version with a table; "" where that version has none."""
    return places().get(rule, {}).get(version, "")


@cache
def variables() -> frozenset[str]:
    """The SGLANG_ and SGL_ names that any version reads."""
    return frozenset(row["name"] for row in _read("sglang.json")["variables"])


def _spans(rows: Iterator[list[str]]) -> list[tuple[str, str]]:
    """Runs that touch are joined."""
    known = versions()
    out: list[tuple[int, int]] = []
    for first, last in sorted((known.index(a), known.index(b)) for a, b in rows):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return [(known[first], known[last]) for first, last in out]


@cache
def _read(name: str) -> dict[str, Any]:
    file = resources.files("console.preflight") / "data" / name
    raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return raw


def _held(rows: list[dict[str, Any]], version: str) -> Iterator[dict[str, Any]]:
    """The rows that hold for a version."""
    at = order(version)
    return (row for row in rows if order(row["in"][0]) <= at <= order(row["in"][1]))


def _options(entries: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for entry in entries:
        option = Option(
            names=tuple(entry["names"]),
            values=entry["values"],
            type=entry.get("type", ""),
            choices=tuple(entry.get("choices", ())),
            deprecated=entry.get("deprecated", ""),
            replacement=entry.get("replacement", ""),
            default=entry.get("default"),
        )
        options.update(dict.fromkeys(option.names, option))
    return options


def select(version: str | None) -> Tables:
    """The tables for a version; the newest, with a note, where it is unknown."""
    if version == BUNDLED:
        return Tables(BUNDLED, load(BUNDLED))
    number = order(version or "")
    known = versions()
    if not number[0]:
        newest = known[-1]
        note = f"the version is unknown, judged as {newest}"
        return Tables(newest, load(newest), note=note, named=False)
    if exact := next((name for name in known if order(name) == number), None):
        return Tables(version or exact, load(exact))
    below = [name for name in known if order(name) < number]
    above = [name for name in known if order(name) > number]
    if not above:
        note = f"{version} is newer than the newest table, judged as {below[-1]}"
        return Tables(version or "", load(below[-1]), note=note)
    if not below:
        note = f"{version} is older than the oldest table, judged as {above[0]}"
        return Tables(version or "", load(above[0]), note=note)
    return Tables(version or "", load(below[-1]), above=load(above[0]))
