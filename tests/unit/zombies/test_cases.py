"""Every file under tests/data/zombies: exactly the verdicts it expects, no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.model import Zombie
from console.zombies import classify
from tests.unit.zombies import build

FILES = sorted(build.CASES.glob("*.json"))


def _matches(expected: dict[str, Any], zombie: Zombie) -> bool:
    if "path" in expected:
        return zombie.resource is not None and zombie.resource.path == expected["path"]
    if "port" in expected:
        return zombie.resource is not None and zombie.resource.port == expected["port"]
    return bool(zombie.kind.value == expected["kind"] and zombie.pid == expected["pid"])


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_case(path: Path) -> None:
    case = build.load(path)
    found = list(
        classify(
            case.snapshot,
            previous=case.previous,
            runs=case.runs,
            servers=case.servers,
            states=case.states,
            probes=case.probes,
            policy=case.policy,
        )
    )
    shown = [(z.kind.value, z.pid, z.killable, z.why_not, z.score, z.evidence) for z in found]
    for expected in case.expect:
        fitting = [zombie for zombie in found if _matches(expected, zombie)]
        assert len(fitting) == 1, (expected, shown)
        zombie = fitting[0]
        found.remove(zombie)
        assert zombie.kind.value == expected["kind"], shown
        assert zombie.killable is expected["killable"], shown
        if not zombie.killable:
            assert zombie.why_not
        assert expected.get("why_not", "") in (zombie.why_not or ""), shown
        for line in expected.get("evidence", ()):
            assert line in " | ".join(zombie.evidence), shown
        for key in ("id", "device", "memory_mib", "gpu_memory_mib", "score", "title"):
            if key in expected:
                assert getattr(zombie, key) == expected[key], (key, shown)
    assert not found, [(z.kind.value, z.pid, z.evidence) for z in found]


def test_there_are_cases() -> None:
    kinds = {expected["kind"] for path in FILES for expected in build.load(path).expect}
    assert len(kinds) == 10
