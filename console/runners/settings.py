"""What a launch is asked to do: the server's entry, presets and a change, merged in that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.config.presets import Presets
from console.errors import UsageError
from console.model import Change, Preset, Server

REFERENCE = "secret:"
"""Prefix of a value that names a secret instead of holding it."""

ALIASES: Mapping[str, str] = {
    "tp": "tp-size",
    "tensor-parallel-size": "tp-size",
    "dp": "dp-size",
    "data-parallel-size": "dp-size",
    "ep": "ep-size",
    "expert-parallel-size": "ep-size",
    "pp": "pp-size",
    "pipeline-parallel-size": "pp-size",
    "model": "model-path",
    "tokenizer": "tokenizer-path",
    "speculative-algo": "speculative-algorithm",
    "speculative-draft-model": "speculative-draft-model-path",
    "nccl-init-addr": "dist-init-addr",
}
"""Short forms that SGLang's parser takes, and the name every version takes."""

RENAMES: Sequence[tuple[tuple[int, int, int], str, str]] = (
    ((0, 5, 23), "cuda-graph-max-bs", "cuda-graph-max-bs-decode"),
    ((0, 5, 23), "cuda-graph-bs", "cuda-graph-bs-decode"),
)
"""(version known to have the new name, old, new), from the parsers of 0.5.12.post1 and 0.5.23."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What an operator asked for on top of hosts.yaml; ``None`` keeps what is configured.

    ``preset`` is a server preset. ``change`` is applied last: it is the fix somebody decided on.
    """

    speculative: str | None = None
    nccl: str | None = None
    preset: str | None = None
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Flags (canonical names without dashes, in order) and variables of one launch.

    ``removed`` are flags and variables that a preset takes away: a runner with a command of its
    own (a unit) must drop them there as well.
    """

    flags: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    unset: frozenset[str] = frozenset()
    speculative: str | None = None
    nccl: str | None = None
    preset: str | None = None

    @property
    def label(self) -> str:
        """The presets in a word, for file names and lists: ``eagle3-3step+pcie-ll-ring``."""
        names = [n for n in (self.preset, self.speculative, self.nccl) if n and n != "default"]
        return "+".join(names) or "default"


def choose(presets: Presets, name: str | None, nccl: str | None) -> Choice:
    """The choice that ``--preset NAME --nccl NAME`` makes; the preset's kind decides what it is.

    Raises:
        UsageError: no such preset (with the nearest), or two kinds for one setting.
    """
    if nccl is not None:
        presets.get("nccl", nccl)
    if name is None:
        return Choice(nccl=nccl)
    preset = presets.find(name)
    if preset.kind == "nccl":
        if nccl is not None and nccl != preset.name:
            raise UsageError(f"two NCCL presets: '{preset.name}' and '{nccl}'", hint="name one")
        return Choice(nccl=preset.name)
    if preset.kind == "speculative":
        return Choice(speculative=preset.name, nccl=nccl)
    return Choice(preset=preset.name, nccl=nccl)


def merge(server: Server, presets: Presets, choice: Choice | None = None) -> Settings:
    """Flags and variables of a launch: entry, server preset, speculative, NCCL, change.

    Later ones win. Raises ``UsageError`` with the nearest name for an unknown preset.
    """
    choice = choice or Choice()
    change = choice.change or Change()
    speculative = change.preset or choice.speculative or server.speculative
    nccl = choice.nccl or server.nccl
    layers: list[Preset] = []
    if choice.preset:
        layers.append(presets.get("server", choice.preset))
    if speculative:
        layers.append(presets.get("speculative", speculative))
    if nccl:
        layers.append(presets.get("nccl", nccl))
    flags: dict[str, Any] = {canonical(k): v for k, v in server.args.items()}
    env: dict[str, str | None] = dict(server.env)
    steps = [(layer.flags, layer.env) for layer in layers]
    for layer_flags, layer_env in (*steps, (change.flags, change.env)):
        flags.update({canonical(k): v for k, v in layer_flags.items()})
        env.update(layer_env)
    return Settings(
        flags={k: v for k, v in flags.items() if v is not None and v is not False},
        env={k: v for k, v in env.items() if v is not None},
        removed=frozenset(k for k, v in flags.items() if v is None or v is False),
        unset=frozenset(k for k, v in env.items() if v is None),
        speculative=speculative,
        nccl=nccl,
        preset=choice.preset,
    )


def canonical(flag: str) -> str:
    """A flag's full name without dashes in front, the one that all versions take."""
    name = flag.lstrip("-").replace("_", "-")
    return ALIASES.get(name, name)


def renamed(flags: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    """The flags under the names that this SGLang version takes; unknown version: unchanged."""
    if version is None:
        return dict(flags)
    have = _numbers(version)
    out = dict(flags)
    for since, old, new in RENAMES:
        source, target = (old, new) if have >= since else (new, old)
        if source in out:
            out[target] = out.pop(source)
    return out


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:3]
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts)


def words(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags as an argument vector: ``True`` is a bare flag, a list is one flag with many words."""
    out: list[str] = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        out.append(f"--{name}")
        if value is True:
            continue
        if isinstance(value, list | tuple):
            out += [str(item) for item in value]
        else:
            out.append(str(value))
    return tuple(out)


def override(
    args: Sequence[str], settings: Settings, version: str | None = None
) -> tuple[str, ...]:
    """An existing argument vector with flags replaced, added and removed; the rest is untouched.

    ``args`` starts at the engine's first own argument. A replaced flag keeps its place and loses
    its aliases; ``--a=b`` and ``--a b`` are both understood.
    """
    new = renamed(settings.flags, version)
    gone = settings.removed
    out: list[str] = []
    for group in _groups(args):
        name = canonical(group[0].partition("=")[0]) if group[0].startswith("--") else ""
        if name in gone:
            continue
        if name in new:
            out += words({name: new.pop(name)})
        elif name not in settings.flags:
            out += group
    return (*out, *words(new))


def _groups(args: Sequence[str]) -> list[list[str]]:
    """The vector cut before each flag."""
    out: list[list[str]] = []
    for word in args:
        if word.startswith("--") or not out:
            out.append([word])
        else:
            out[-1].append(word)
    return out
