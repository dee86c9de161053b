"""The rules as data: which lines mean what, who is only a victim, what category and what fix.

A rules file is YAML with three lists, all optional:

``signs``   lines that tell of a failure without raising (a signal, an Xid, a device assert, ...)
``roles``   exceptions that only follow from another (``victim``, ``wrapper``, ``weak``), mean
            nothing (``noise``), or concern one request while the server still answers (``request``)
``rules``   what a root means: category, explanation, fix, and the change that would mend it

The first rule that matches decides. A user's own file is read before the shipped ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from console.errors import ConfigError

CATEGORIES = frozenset(
    (
        *("args-validation", "context-length", "draft-model", "model-support", "checkpoint-files"),
        *("quant-tp-shape", "binary-abi", "toolchain-jit", "gpu-oom-load", "gpu-oom-runtime"),
        *("gpu-memory-held", "host-oom-kill", "shm-disk-cache", "port-conflict", "nccl-init"),
        *("p2p-allreduce", "collective-timeout", "peer-rank-lost", "kv-transfer"),
        *("engine-invariant", "cuda-async", "hang-no-exception", "readiness-probe"),
        *("orphan-shutdown", "driver-fabric", "gpu-hardware", "none"),
    )
)
"""What an operator has to look at; a rule names one of these."""
ROLES = frozenset(("victim", "wrapper", "weak", "noise", "request"))
MOMENTS = frozenset(("start", "serving"))
"""Whether the root was raised while the server was set up or while it worked on batches."""
KINDS = frozenset(
    (
        *("assert", "hardware", "nvml", "dstate", "orphan", "death", "abort"),
        *("cuda", "watchdog", "import", "nccl", "raised", "peer", "begin"),
    )
)
SHIPPED = (
    "signs.yaml",
    "roles.yaml",
    "begin.yaml",
    "start.yaml",
    "memory.yaml",
    "comm.yaml",
    "host.yaml",
    "place.yaml",
)


@dataclass(frozen=True, slots=True)
class Sign:
    """A line that tells of a failure; ``pattern`` is tried on lines that hold a literal.

    ``beside``: text that the log must hold as well.
    """

    id: str
    kind: str
    type: str
    pattern: re.Pattern[str]
    source: str
    literals: tuple[str, ...] = ()
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Role:
    """An exception that is not the cause while anything else is in the log."""

    id: str
    role: str
    pattern: re.Pattern[str]
    source: str


@dataclass(frozen=True, slots=True)
class Rule:
    """What a root means. Every condition given must hold; ``None`` is no condition.

    ``type`` matches the last part of the class, ``pattern`` the message, ``frames`` any frame as
    ``file:function``, ``near`` and ``absent`` the whole log, ``then`` the log after ``near``, which
    must be found ``at_least`` times and is tried only where one of ``literals`` is in the log;
    ``absent_after`` the log after the last ``near``.
    ``root`` False: for logs without one.
    """

    id: str
    category: str
    explanation: str
    source: str
    fix: str = ""
    type: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    frames: re.Pattern[str] | None = None
    near: re.Pattern[str] | None = None
    literals: tuple[str, ...] = ()
    then: re.Pattern[str] | None = None
    absent: re.Pattern[str] | None = None
    absent_after: re.Pattern[str] | None = None
    phases: frozenset[str] = frozenset()
    when: str = ""
    engines: frozenset[str] = frozenset()
    versions: str = ""
    root: bool = True
    at_least: int = 1
    flags: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    risk: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """A validated set."""

    signs: tuple[Sign, ...] = ()
    roles: tuple[Role, ...] = ()
    rules: tuple[Rule, ...] = ()


def _fail(place: str, message: str, hint: str = "") -> ConfigError:
    return ConfigError(message, place=place, hint=hint)


class _Entry:
    """One mapping of a rules file, read key by key so that a leftover key is an error."""

    def __init__(self, data: Any, place: str) -> None:
        self.place = place
        if not isinstance(data, dict):
            raise _fail(place, "an entry must be a mapping", "write `- id: my-rule` and so on")
        self.data: dict[Any, Any] = dict(data)
        if not isinstance(data.get("id"), str) or not data["id"]:
            raise _fail(place, "an entry needs an `id`", "add `id: some-name`")
        self.place = f"{place} ({data['id']})"

    def text(self, key: str, default: str | None = None) -> str:
        value = self.data.pop(key, default)
        if not isinstance(value, str):
            raise _fail(self.place, f"`{key}` must be text", f"give `{key}: ...`")
        return value.strip()

    def regex(self, key: str) -> re.Pattern[str] | None:
        value = self.data.pop(key, None)
        if value is None:
            return None
        try:
            return re.compile(str(value), re.MULTILINE)
        except re.error as error:
            raise _fail(self.place, f"`{key}` is no regular expression: {error}") from None

    def needed(self, key: str) -> re.Pattern[str]:
        pattern = self.regex(key)
        if pattern is None:
            raise _fail(self.place, f"`{key}` is missing", "give a regular expression")
        return pattern

    def choice(self, key: str, among: frozenset[str]) -> str:
        value = self.text(key)
        if value not in among:
            raise _fail(
                self.place, f"`{key}: {value}` is unknown", "one of " + ", ".join(sorted(among))
            )
        return value

    def names(self, key: str) -> frozenset[str]:
        value = self.data.pop(key, ())
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise _fail(self.place, f"`{key}` must be a list of names")
        return frozenset(value)

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.data.pop(key, {})
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            raise _fail(self.place, f"`{key}` must be a mapping of names to values")
        return value

    def done(self) -> None:
        if self.data:
            odd = ", ".join(sorted(map(str, self.data)))
            raise _fail(self.place, f"unknown key: {odd}", "remove it or correct its spelling")


def _sign(entry: _Entry) -> Sign:
    literals = tuple(sorted(entry.names("literal")))
    if not literals:
        raise _fail(entry.place, "`literal` is missing", "give text that every such line holds")
    sign = Sign(
        entry.text("id"),
        entry.choice("kind", KINDS),
        entry.text("type", ""),
        entry.needed("pattern"),
        entry.text("source"),
        literals,
        str(entry.data.pop("beside", "")),
    )
    entry.done()
    return sign


def _role(entry: _Entry) -> Role:
    role = Role(
        entry.text("id"), entry.choice("role", ROLES), entry.needed("pattern"), entry.text("source")
    )
    entry.done()
    return role


def _rule(entry: _Entry) -> Rule:
    change = entry.mapping("change")
    odd = set(change) - {"flags", "env", "risk"}
    if odd:
        raise _fail(entry.place, f"unknown key in `change`: {', '.join(sorted(odd))}")
    versions = entry.text("versions", "")
    if versions and not all(_BOUND.match(part.strip()) for part in versions.split(",")):
        raise _fail(
            entry.place, f"`versions: {versions}` is unclear", "write e.g. `>=0.5.3,<0.5.9`"
        )
    rule = Rule(
        id=entry.text("id"),
        category=entry.choice("category", CATEGORIES),
        explanation=entry.text("explanation"),
        source=entry.text("source"),
        fix=entry.text("fix", ""),
        type=entry.regex("type"),
        pattern=entry.regex("pattern"),
        frames=entry.regex("frames"),
        near=entry.regex("near"),
        literals=tuple(sorted(entry.names("literal"))),
        then=entry.regex("then"),
        absent=entry.regex("absent"),
        absent_after=entry.regex("absent_after"),
        phases=entry.names("phases"),
        when=entry.choice("when", MOMENTS) if "when" in entry.data else "",
        engines=entry.names("engines"),
        versions=versions,
        root=bool(entry.data.pop("root", True)),
        at_least=int(entry.data.pop("at_least", 1)),
        flags=change.get("flags") or {},
        env=change.get("env") or {},
        risk=str(change.get("risk") or ""),
    )
    entry.done()
    return rule


_BOUND = re.compile(r"(>=|<=|<|>|==)\s*(\d+(?:\.\d+)*)")


def in_versions(bounds: str, version: str | None) -> bool:
    """Whether a version satisfies ``>=0.5.3,<0.5.9``; an unknown version always does."""
    if not bounds or not version:
        return True
    have = tuple(int(n) for n in re.findall(r"\d+", version.split("post")[0])[:4])
    for part in bounds.split(","):
        match = _BOUND.match(part.strip())
        if not match:
            return True
        want = tuple(int(n) for n in match[2].split("."))
        size = max(len(have), len(want))
        left, right = (t + (0,) * (size - len(t)) for t in (have, want))
        holds = {
            ">=": left >= right,
            "<=": left <= right,
            "<": left < right,
            ">": left > right,
            "==": left == right,
        }[match[1]]
        if not holds:
            return False
    return True


def parse_rules(text: str, place: str) -> Rules:
    """A rules file's text as :class:`Rules`. Raises ConfigError naming file and entry."""
    import yaml  # noqa: PLC0415 - a fifth of the start-up time of every command

    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{place}:{mark.line + 1}" if mark else place
        raise _fail(where, f"no valid YAML: {getattr(error, 'problem', error)}") from None
    if data is None:
        return Rules()
    if not isinstance(data, dict) or set(data) - {"signs", "roles", "rules"}:
        raise _fail(place, "a rules file holds `signs`, `roles` and `rules`", "nothing else")
    return Rules(
        tuple(_sign(e) for e in _entries(data, "signs", place)),
        tuple(_role(e) for e in _entries(data, "roles", place)),
        tuple(_rule(e) for e in _entries(data, "rules", place)),
    )


def _entries(data: dict[str, Any], key: str, place: str) -> Iterator[_Entry]:
    listed = data.get(key) or []
    if not isinstance(listed, list):
        raise _fail(place, f"`{key}` must be a list")
    seen: set[str] = set()
    for i, item in enumerate(listed):
        entry = _Entry(item, f"{place}: {key}[{i + 1}]")
        if entry.data["id"] in seen:
            raise _fail(entry.place, "this id is used twice", "give each entry its own")
        seen.add(entry.data["id"])
        yield entry


@lru_cache(maxsize=1)
def _shipped() -> Rules:
    parts = []
    for name in SHIPPED:
        text = resources.files("console.diagnosis").joinpath("data", name).read_text("utf-8")
        parts.append(parse_rules(text, name))
    return _join(parts)


def _join(parts: list[Rules]) -> Rules:
    return Rules(
        tuple(sign for part in parts for sign in part.signs),
        tuple(role for part in parts for role in part.roles),
        tuple(rule for part in parts for rule in part.rules),
    )


def load_rules(extra: Path | None = None) -> Rules:
    """The shipped rules, and before them those of the user's own file.

    Raises:
        ConfigError: the file cannot be read or an entry is wrong; the place names it.
    """
    if extra is None:
        return _shipped()
    try:
        text = extra.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise _fail(str(extra), f"cannot be read: {error}", "name a readable YAML file") from None
    return _join([parse_rules(text, str(extra)), _shipped()])
