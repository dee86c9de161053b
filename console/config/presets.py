"""Presets: named sets of flags and variables, one YAML file each.

Shipped ones are inside the package and never written to. An operator's own live in a ``presets``
folder beside an explicit hosts file, else in ``$XDG_CONFIG_HOME/specops``; one of the same kind and
name wins over a shipped one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast

from console.config.nodes import Node, nearest, parse
from console.config.paths import config_dir
from console.config.schema import NAME, NAME_RULE, check_env_name, read_flags
from console.config.whole import write_atomically
from console.errors import ConfigError, Mistakes, UsageError
from console.model import Preset

Kind = Literal["nccl", "speculative", "server"]
KINDS: tuple[Kind, ...] = ("nccl", "speculative", "server")


@dataclass(frozen=True, slots=True)
class Difference:
    """One flag or variable that differs. ``None`` is: not set."""

    name: str
    before: Any
    after: Any
    variable: bool


@dataclass(frozen=True, slots=True)
class Presets:
    """All presets in reach, an operator's own over the shipped ones."""

    folder: Path
    by_key: Mapping[tuple[str, str], Preset] = field(default_factory=dict)
    broken: Mapping[tuple[str, str], ConfigError] = field(default_factory=dict)
    """Files that cannot be read, by folder and name: only what uses one of them is refused."""

    def __iter__(self) -> Iterator[Preset]:
        return iter(sorted(self.by_key.values(), key=lambda p: (KINDS.index(p.kind), p.name)))

    def get(self, kind: str, name: str) -> Preset:
        """The preset of that kind and name.

        Raises:
            UsageError: there is none; the nearest one is named.
            ConfigError: its file cannot be read.
        """
        if (kind, name) in self.broken:
            raise self.broken[(kind, name)]
        if (kind, name) not in self.by_key:
            known = [preset.name for preset in self if preset.kind == kind]
            raise UsageError(f"no {kind} preset '{name}'", hint=nearest(name, known))
        return self.by_key[(kind, name)]

    def find(self, name: str) -> Preset:
        """A preset by ``NAME`` or, where two kinds share the name, ``KIND/NAME``."""
        kind, slash, rest = name.partition("/")
        if slash:
            return self.get(kind, rest)
        found = [preset for preset in self if preset.name == name]
        unread = [error for (_, other), error in self.broken.items() if other == name]
        if unread:
            raise unread[0]
        if not found:
            hint = nearest(name, [preset.name for preset in self])
            raise UsageError(f"no preset '{name}'", hint=hint)
        if len(found) > 1:
            both = " or ".join(f"{preset.kind}/{preset.name}" for preset in found)
            raise UsageError(f"'{name}' is more than one preset", hint=f"say {both}")
        return found[0]

    def save(self, preset: Preset) -> Path:
        """Write a preset whole and atomically to the operator's folder; returns the file.

        Raises:
            UsageError: the name is not one.
        """
        if preset.kind not in KINDS or not NAME.fullmatch(preset.name):
            raise UsageError(f"'{preset.name}' is not a preset name", hint=NAME_RULE)
        path = self.folder / preset.kind / f"{preset.name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, dump(preset))
        return path


def dump(preset: Preset) -> str:
    """The file form of a preset."""
    import yaml  # noqa: PLC0415 - only writing needs the emitter

    body: dict[str, Any] = {"kind": preset.kind, "description": preset.description}
    for key in ("flags", "env", "notes"):
        if value := getattr(preset, key):
            body[key] = dict(value)
    if preset.source:
        body["source"] = preset.source
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=100)


def read_preset(root: Node, name: str, origin: str) -> Preset:
    """One preset file."""
    entries = root.known_keys({"kind", "description", "flags", "env", "notes", "source"})
    for key in ("kind", "description"):
        if key not in entries:
            root.fail(f"has no {key}")
    return Preset(
        name=name,
        kind=cast("Kind", entries["kind"].choice(KINDS)),
        description=" ".join(_prose(entries["description"]).split()),
        flags=read_flags(entries["flags"]) if "flags" in entries else {},
        env=_unsettable(entries["env"]) if "env" in entries else {},
        source=entries["source"].text() if "source" in entries else "",
        origin=origin,
        notes={key: " ".join(_prose(node).split()) for key, node in _notes(entries).items()},
    )


def _prose(node: Node) -> str:
    return str(node.scalar())


def _notes(entries: Mapping[str, Node]) -> dict[str, Node]:
    return entries["notes"].mapping() if "notes" in entries else {}


def _unsettable(node: Node) -> dict[str, str | None]:
    """Variables, where null takes one away."""
    out: dict[str, str | None] = {}
    for key, value in node.mapping().items():
        with node.kept():
            check_env_name(key, value)
            out[key] = None if value.scalar() is None else value.text()
    return out


def load_presets(hosts_file: Path | None = None) -> Presets:
    """Shipped presets and the operator's own; those that cannot be read are kept as such.

    ``hosts_file`` is an explicit hosts.yaml, whose folder may have presets of its own.
    """
    return read_folder((hosts_file.parent if hosts_file else config_dir()) / "presets")


def read_folder(folder: Path) -> Presets:
    """Shipped presets and those of a folder, as the files are now.

    A file that cannot be read hides a shipped one of its name: that is not silently used instead.
    """
    found: dict[tuple[str, str], Preset] = {}
    broken: dict[tuple[str, str], ConfigError] = {}
    shipped = Path(str(resources.files("console") / "data" / "presets"))
    for root, origin in ((shipped, "shipped"), (folder, "")):
        for path in sorted(root.glob("*/*.yaml")):
            key = (path.parent.name, path.stem)
            try:
                found[key] = _read(path, origin or str(path))
            except ConfigError as error:
                broken[key] = error
                found.pop(key, None)
    return Presets(folder, found, broken)


def _read(path: Path, origin: str) -> Preset:
    try:
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        return _read_file(path, origin, stamp)
    except OSError as error:
        raise ConfigError(error.strerror or str(error), place=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 at byte {error.start}", place=str(path)) from error


@lru_cache(maxsize=256)
def _read_file(path: Path, origin: str, _stamp: tuple[int, ...]) -> Preset:
    """One file, kept as read until it is another: parsing all takes longer than a key may."""
    mistakes = Mistakes()
    root = parse(path.read_text(encoding="utf-8"), path, mistakes)
    with mistakes.kept():
        preset = read_preset(root, path.stem, origin)
    mistakes.tell()
    if preset.kind != path.parent.name:
        hint = f"move it to presets/{preset.kind}/"
        raise ConfigError(f"is a {preset.kind} preset", place=str(path), hint=hint)
    return preset


def diff(before: Preset, after: Preset) -> tuple[Difference, ...]:
    """What changes from one preset to the other, flags first, each list sorted by name."""
    out: list[Difference] = []
    for variable in (False, True):
        old: Mapping[str, Any] = before.env if variable else before.flags
        new: Mapping[str, Any] = after.env if variable else after.flags
        out += [
            Difference(name, old.get(name), new.get(name), variable)
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        ]
    return tuple(out)
