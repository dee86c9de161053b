"""Over many made-up hosts: nothing innocent is ever killable, and hardly a zombie is missed."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from console.actions.kill import plan_kill
from console.model import Host, Zombie, ZombieKind
from console.zombies import Attempt, Probe, classify
from tests import scale
from tests.unit.zombies import generator
from tests.unit.zombies.generator import Made, Truth

pytestmark = pytest.mark.long
HOSTS = 4000
"""Full count; a twentieth, 200 hosts, in an ordinary run."""


def _key(zombie: Zombie) -> object:
    if zombie.process is not None:
        return zombie.process
    assert zombie.resource is not None
    if zombie.resource.gpu is not None:
        return ("gpu", zombie.resource.gpu)
    return zombie.resource.path


def _probe(data: dict[str, Any]) -> Probe:
    begun = generator.T0
    attempts = []
    for wait in data["waits"]:
        attempts.append(Attempt(begun, wait, data["health"]))
        begun += wait
    rest = {k: v for k, v in data.items() if k != "waits"}
    return Probe(tuple(attempts), **rest)


def _zombies(made: Made) -> tuple[Zombie, ...]:
    before, now = generator.snapshots(made)
    return classify(
        now,
        previous=before,
        runs=made.runs,
        servers=made.servers,
        states=made.states,
        probes={name: _probe(data) for name, data in made.probes.items()},
    )


def test_precision_and_recall(capsys: Any) -> None:
    rng = random.Random(scale.seed())
    table: Counter[tuple[str, str]] = Counter()
    wanted = right = wrong = 0
    mistakes: list[str] = []
    for number in range(scale.count(HOSTS)):
        made = generator.host(rng)
        found = {_key(zombie): zombie for zombie in _zombies(made)}
        for key, zombie in found.items():
            truth = made.truth.get(key, Truth(None))
            table[truth.kind or "nothing", zombie.kind.value] += 1
            if zombie.killable and not truth.kill:
                wrong += 1
                mistakes.append(f"host {number}: {zombie}")
        for key, truth in made.truth.items():
            hit = found.get(key)
            if hit is None and truth.kind:
                table[truth.kind, "nothing"] += 1
            if truth.kill:
                wanted += 1
                right += hit is not None and hit.killable and hit.kind.value == truth.kind
    with capsys.disabled():
        print(f"\n{_lines(table)}\nkillable: {wrong} wrong, {right} of {wanted} found")
    assert wrong == 0, mistakes[:3]
    assert right / wanted >= 0.95
    kinds = [kind.value for kind in ZombieKind]
    for kind in kinds:
        total = sum(n for (truth, _), n in table.items() if truth == kind)
        assert table[kind, kind] >= 0.95 * total > 0, kind


def test_no_plan_names_an_innocent_process() -> None:
    rng = random.Random(scale.seed() + 1)
    for _ in range(scale.count(HOSTS)):
        made = generator.host(rng)
        _, now = generator.snapshots(made)
        plan = plan_kill(_zombies(made), now, made.runs, host=Host("h"), servers=made.servers)
        guilty = {key for key, truth in made.truth.items() if truth.kill}
        pids = {p.id: p for p in now.processes}
        for step in plan.steps:
            for target in step.targets:
                process = pids[target.process]
                assert process.uid == generator.ME
                assert _belongs_to(process.id, guilty, pids, now.processes), process


def _belongs_to(one: Any, guilty: set[object], pids: Any, processes: Any) -> bool:
    """Whether a process is a zombie, is below one, or is of its run: read off the raw facts."""
    by_pid = {p.id.pid: p for p in processes}
    runs = {pids[key].run_id for key in guilty if key in pids and pids[key].run_id}
    sessions = {pids[key].sid for key in guilty if key in pids and pids[key].sid > 2999}
    process = pids[one]
    if process.run_id in runs or process.sid in sessions:
        return True
    while process is not None:
        if process.id in guilty:
            return True
        process = by_pid.get(process.ppid)
    return False


def _lines(table: Counter[tuple[str, str]]) -> str:
    kinds = [kind.value for kind in ZombieKind]
    head = "truth \\ found " + " ".join(f"{kind[:9]:>9}" for kind in [*kinds, "nothing"])
    rows = [
        f"{truth:<13} " + " ".join(f"{table[truth, kind]:>9}" for kind in [*kinds, "nothing"])
        for truth in [*kinds, "nothing"]
    ]
    return "\n".join([head, *rows])
