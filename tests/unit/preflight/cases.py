"""The launches of tests/data/preflight as command and facts, for every test that uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from console.preflight import (
    GpuFacts,
    HostFacts,
    ModelFacts,
    PathFacts,
    ServedFacts,
)

DATA = Path(__file__).parents[2] / "data" / "preflight"
DEFAULT_VERSION = "0.5.12.post1"


@dataclass(frozen=True)
class Case:
    """One launch. ``judge``: whether the engine's own argument check can tell."""

    id: str
    command: str
    version: str
    facts: HostFacts
    expect: Mapping[str, str]
    faulty: bool
    judge: bool


@cache
def models() -> dict[str, dict[str, Any]]:
    """The config files by name."""
    loaded: dict[str, dict[str, Any]] = {}
    for path in sorted(DATA.glob("models*.yaml")):
        loaded |= yaml.safe_load(path.read_text())
    return loaded


def model(name: str | None) -> ModelFacts | None:
    """A model folder of which only the config is known."""
    return ModelFacts(path=name, config=models()[name]) if name else None


def gpu(index: int, item: Any) -> GpuFacts:
    """``[total, free]`` MiB of an H200, or a mapping that names another device."""
    if isinstance(item, Mapping):
        given = {key: item[key] for key in ("total_mib", "free_mib", "holders") if key in item}
        found = tuple(item["capability"]) if "capability" in item else None
        return GpuFacts(index, item.get("name", ""), capability=found, **given)
    total, free = item
    return GpuFacts(index, "NVIDIA H200", total_mib=total, free_mib=free)


def facts(entry: Mapping[str, Any]) -> HostFacts:
    """The facts of a case; what it does not name is unknown."""
    given = entry.get("facts", {})
    known = {key: given[key] for key in ("driver", "torch_cuda", "ports") if key in given}
    gpus = given.get("gpus")
    served = given.get("served")
    return HostFacts(
        target=model(entry.get("target")),
        draft=model(entry.get("draft")),
        gpus=None if gpus is None else tuple(gpu(index, item) for index, item in enumerate(gpus)),
        paths={path: PathFacts(**state) for path, state in given.get("paths", {}).items()},
        served=None if served is None else tuple(ServedFacts(*item) for item in served),
        **known,
    )


def load(file: str) -> Iterator[Case]:
    """The cases of ``faulty*.yaml`` or ``valid*.yaml``."""
    entries = [e for path in sorted(DATA.glob(file)) for e in yaml.safe_load(path.read_text())]
    for entry in entries:
        yield Case(
            id=entry["id"],
            command=entry["command"],
            version=str(entry.get("version", DEFAULT_VERSION)),
            facts=facts(entry),
            expect=entry.get("expect", {}),
            faulty=file == "faulty*.yaml",
            judge=entry.get("judge", True),
        )


FAULTY = tuple(load("faulty*.yaml"))
VALID = tuple(load("valid*.yaml"))
