"""Rules know kinds, not cases: the same failure written elsewhere and elsewise keeps its answer."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from console.diagnosis import diagnose
from tests.unit.diagnosis.cases import cases, judge
from tests.unit.diagnosis.variants import VARIANTS, adapted, varied

FOLDERS = ("reports", "sglang-0.5.12-h200")
RENAMES = ("hosts", "paths", "times", "ports", "lines")
CARRIERS = ("journald", "journald-iso", "compose", "kubernetes", "kubectl", "docker", "ray")
SHAPES = ("interleaved", "head", "tail", "noise", "crlf")


def _share(names_of: dict[str, list[list[str]]]) -> tuple[Counter[str], Counter[str]]:
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for case in cases(*FOLDERS):
        text = case.log.decode("utf-8", "surrogateescape")
        for seed, names in enumerate(names_of[case.id]):
            log = varied(text, names, seed).encode("utf-8", "surrogateescape")
            for field, ok in judge(adapted(case.expect, names), diagnose(log)).items():
                right[field] += ok
                total[field] += 1
    return right, total


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_keeps_root_and_category(name: str) -> None:
    right, total = _share({case.id: [[name]] for case in cases(*FOLDERS)})
    for field in ("root", "category"):
        assert right[field] >= 0.95 * total[field], f"{field} {right[field]}/{total[field]}"


def test_variants_combined_keep_root_and_category() -> None:
    rng = random.Random(20261129)
    plans = {
        case.id: [
            [*rng.sample(RENAMES, 2), rng.choice(SHAPES), rng.choice(CARRIERS)] for _ in range(3)
        ]
        for case in cases(*FOLDERS)
    }
    right, total = _share(plans)
    print({field: f"{right[field]}/{total[field]}" for field in total})
    for field in ("root", "category"):
        assert right[field] >= 0.95 * total[field]


def test_a_carrier_known_by_no_name_is_learned_from_the_tracebacks_in_it() -> None:
    kept = 0
    stacks = [c for c in cases(*FOLDERS) if b"Traceback (most recent call last):\n  File" in c.log]
    for case in stacks:
        lines = case.log.decode("utf-8", "surrogateescape").split("\n")
        log = "\n".join(f"|n4|llm/s-0|{i}| {line}" for i, line in enumerate(lines))
        kept += judge(case.expect, diagnose(log.encode("utf-8", "surrogateescape")))["root"]
    assert len(stacks) > 20
    assert kept >= 0.95 * len(stacks), f"{kept}/{len(stacks)}"


def test_newest_first_exports_are_read_backwards() -> None:
    kept = 0
    multi = [c for c in cases(*FOLDERS) if b"Traceback" in c.log and b"\r" not in c.log]
    for case in multi:
        lines = case.log.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
        log = "\n".join(reversed(lines)).encode("utf-8", "surrogateescape")
        kept += judge(case.expect, diagnose(log))["root"]
    assert kept >= 0.95 * len(multi), f"{kept}/{len(multi)}"
