"""What holds whatever a host shows: order does not matter, vetoes are absolute, nothing crashes."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import pytest

from console.model import Process, Snapshot, ZombieKind
from console.zombies import Policy, Stillness, classify
from tests import scale
from tests.unit.zombies import build, generator

pytestmark = pytest.mark.long

CHANGES: tuple[dict[str, Any], ...] = (
    {"uid": 1001, "user": "bob"},
    {"container": "9f8e"},
    {"unit": "x.service"},
    {"cgroup": "/kubepods/a"},
    {"env": {"SLURM_JOB_ID": "1"}},
    {"foreign_namespace": True},
    {"readable": False},
    {"ppid": 2},
    {"comm": "sshd"},
)
"""Each of these alone forbids a signal that is not asked for by name."""
NOISE: tuple[dict[str, Any], ...] = (
    {"state": "X"},
    {"state": "D", "wchan": None},
    {"state": "?"},
    {"argv": ()},
    {"argv": ("",)},
    {"argv": ("\x1b]0;x\x07[/red] \u202e",)},
    {"ppid": 0},
    {"ppid": 4_000_000},
    {"sid": 0},
    {"sid": -1},
    {"task_states": {1: "Z"}},
    {"task_states": {}, "threads": 0},
    {"rss_mib": None},
    {"read_bytes": None},
    {"gpu_memory_mib": {99: None}},
    {"age_s": -5.0},
    {"age_s": 1e12},
    {"run_id": "\x00\n[bold]"},
    {"run_id": ""},
    {"cpu_ticks": 0},
)


def _classify(made: generator.Made, before: Snapshot, now: Snapshot) -> Any:
    return classify(now, previous=before, runs=made.runs, servers=made.servers, states=made.states)


def _with(snapshot: Snapshot, pick: dict[int, dict[str, Any]]) -> Snapshot:
    processes = tuple(replace(p, **pick.get(p.id.pid, {})) for p in snapshot.processes)
    return replace(snapshot, processes=processes)


def test_a_veto_is_absolute() -> None:
    rng = random.Random(scale.seed())
    seen = 0
    for _ in range(scale.count(1000)):
        made = generator.host(rng)
        made.servers = {}
        made.runs = []
        before, now = generator.snapshots(made)
        killable = {z.pid for z in _classify(made, before, now) if z.killable and z.pid}
        for change in CHANGES:
            pick = dict.fromkeys(killable, change)
            again = _classify(made, _with(before, pick), _with(now, pick))
            # Of one whose main thread has ended nothing can be read, by nobody.
            mute = change.get("readable") is False
            for zombie in again:
                if zombie.pid in killable and zombie.killable:
                    assert mute, (change, zombie)
                    assert zombie.kind is ZombieKind.HALF_DEAD, zombie
            seen += len(killable)
    assert seen > 0


def test_the_console_itself_is_never_killable() -> None:
    rng = random.Random(scale.seed() + 3)
    for _ in range(scale.count(400)):
        made = generator.host(rng)
        before, now = generator.snapshots(made)
        pids = frozenset(p.id.pid for p in now.processes)
        safe = replace(now, protected=pids), replace(before, protected=pids)
        assert not [z for z in _classify(made, safe[1], safe[0]) if z.killable and z.pid]


def test_order_does_not_matter() -> None:
    rng = random.Random(scale.seed() + 1)
    for _ in range(scale.count(400)):
        made = generator.host(rng)
        before, now = generator.snapshots(made)
        mixed = list(now.processes)
        rng.shuffle(mixed)
        assert _classify(made, before, replace(now, processes=tuple(mixed))) == _classify(
            made, before, now
        )


def test_another_boot_is_another_machine() -> None:
    rng = random.Random(scale.seed() + 2)
    for _ in range(scale.count(200)):
        made = generator.host(rng)
        before, now = generator.snapshots(made)
        found = _classify(made, replace(before, boot_id="other"), now)
        twice = (ZombieKind.ORPHAN, ZombieKind.HALF_DEAD, ZombieKind.HEADLESS)
        assert not [z for z in found if z.kind in twice and z.killable]


def test_noise_never_crashes_and_always_shows_inert() -> None:
    rng = random.Random(scale.seed() + 4)
    for _ in range(scale.count(4000)):
        made = generator.host(rng)
        before, now = generator.snapshots(made)
        picks = [{p.id.pid: rng.choice(NOISE) for p in now.processes if rng.random() < 0.4}]
        picks.append(picks[0] if rng.random() < 0.5 else {})
        for zombie in _classify(made, _with(before, picks[1]), _with(now, picks[0])):
            assert 0.0 <= zombie.score <= 1.0
            assert zombie.killable is (zombie.why_not is None)
            texts = (*zombie.evidence, zombie.why_not or "", zombie.title, zombie.run_id or "")
            assert all(text.isprintable() or not text for text in texts), texts


def test_every_kind_has_its_own_letter() -> None:
    rng = random.Random(scale.seed() + 5)
    letters: dict[str, str] = {}
    for _ in range(scale.count(2000)):
        made = generator.host(rng)
        found = _classify(made, *generator.snapshots(made))
        assert len({zombie.id for zombie in found}) == len(found)
        for zombie in found:
            assert letters.setdefault(zombie.id[0], zombie.kind.value) == zombie.kind.value
    assert len(letters) >= 8


def _one(time: float, **values: Any) -> Snapshot:
    one: Process = build.process({"pid": 9, "line": "sglang::scheduler", **values})
    return Snapshot(build.BOOT, time, 0, (one,))


def test_stillness_counts_from_the_last_movement() -> None:
    one = build.process({"pid": 9, "line": "x"}).id
    still = Stillness()
    assert still.still_s([one], 0.0) is None
    for time in range(0, 100, 2):
        still.feed(_one(float(time), cpu_ticks=1000 + time // 4))
    assert still.still_s([one], 98.0) == 98.0
    still.feed(_one(100.0, cpu_ticks=1500))
    assert still.still_s([one], 101.0) == 1.0
    still.feed(_one(102.0, cpu_ticks=1500, read_bytes=4096))
    assert still.still_s([one], 102.0) == 0.0
    still.feed(Snapshot(build.BOOT, 104.0, 0, ()))
    assert still.still_s([one], 104.0) is None


def test_the_contracts_thresholds() -> None:
    names = [field.name for field in fields(Policy)]
    values = {name: getattr(Policy(), name) for name in names}
    assert values["kill_score"] == 0.8
    assert values["samples_apart_s"] == 2.0
    assert (values["hung_no_answer_s"], values["hung_probes"], values["hung_silent_s"]) == (
        25.0, 2, 60.0,
    )  # fmt: skip
    assert (values["never_ready_after_s"], values["never_ready_bundled_s"]) == (1800.0, 60.0)
    assert (values["never_ready_learned"], values["never_ready_still_s"]) == (3.0, 120.0)
