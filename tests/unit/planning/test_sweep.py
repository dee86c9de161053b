"""A sweep's file and table: what is missing, what is known, what may be said of it."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from console import bench
from console.planning import sweep as sweeps
from console.planning.sweep import Asked
from tests import scale

ASKED = Asked("h", "s", ("a", "b", "c"), 3, (1, 8), 4, 128)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def measured(sweep: sweeps.Sweep, turn: int, preset: str, one: float, eight: float) -> None:
    line = {"round": turn, "preset": preset, "tokens_per_s": {"1": one, "8": eight}}
    sweeps.note(sweep, line)


def test_each_round_takes_another_order_and_every_preset_once() -> None:
    todo = sweeps.begin(ASKED, {}).remaining()
    orders = ["".join(p for turn, p in todo if turn == n) for n in range(3)]
    assert orders == ["abc", "bca", "cab"]


def test_it_goes_on_with_what_is_missing() -> None:
    begun = sweeps.begin(ASKED, {"speculative": "a", "nccl": None})
    measured(begun, 0, "a", 10, 50)
    sweeps.note(begun, {"preset": "b", "error": "no such draft"})
    with begun.path.open("a") as file:
        file.write('{"round": 1, "pres')  # the power went
    found = sweeps.unfinished(ASKED)
    assert found is not None
    assert found.remaining() == [(0, "c"), (1, "c"), (1, "a"), (2, "c"), (2, "a")]
    assert found.failed == {"b": "no such draft"}
    assert found.before == {"speculative": "a", "nccl": None}
    assert sweeps.unfinished(Asked("h", "s", ("a", "b"), 3, (1, 8), 4, 128)) is None


def test_one_that_has_ended_is_not_gone_on_with() -> None:
    begun = sweeps.begin(ASKED, {})
    sweeps.note(begun, {"end": True})
    assert sweeps.unfinished(ASKED) is None


def test_the_table_says_no_more_than_the_rounds_do() -> None:
    begun = sweeps.begin(ASKED, {})
    for turn, noise in enumerate((1.0, 1.04, 0.97)):
        measured(begun, turn, "a", 100 * noise, 400 * noise)
        measured(begun, turn, "b", 200 * noise * (1 + turn / 200), 401 * (2 - noise))
    sweep = sweeps.load(begun.path)
    assert sweep is not None
    one, eight = (
        {r.preset: r for r in sweeps.rows(sweep) if r.concurrency == n} for n in (1, 8)
    )  # fmt: skip
    assert next(iter(one)) == "b"  # the fastest is first
    assert one["a"].ratio is None  # it is what the others are held to
    assert one["b"].ratio is not None
    assert one["b"].ratio.decided
    assert one["b"].ratio.mean == pytest.approx(2.0, rel=0.02)
    assert eight["b"].ratio is not None
    assert not eight["b"].ratio.decided
    assert (one["c"].tokens_per_s, one["c"].ratio) == (None, None)
    assert (one["a"].rounds, one["a"].lowest, one["a"].highest) == (3, 97.0, 104.0)


T_TABLE = [(0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 9, 2.262), (0.95, 30, 2.042),
           (0.99, 5, 4.032), (0.999, 3, 12.924)]  # fmt: skip


@pytest.mark.parametrize(("confidence", "freedom", "t"), T_TABLE)
def test_students_t_as_in_the_tables(confidence: float, freedom: int, t: float) -> None:
    assert bench.student_t(confidence, freedom) == pytest.approx(t, abs=0.001)


def test_equal_presets_are_seldom_told_apart() -> None:
    """Of many sweeps over four equal presets at most about one in twenty finds a difference."""
    rng = random.Random(scale.seed())
    trials, wrong = scale.count(4000), 0
    for _ in range(trials):
        rounds = [[math.exp(rng.gauss(0, 0.05)) for _ in range(4)] for _ in range(4)]
        ratios = [
            bench.compare([(row[0], row[other]) for row in rounds], comparisons=3)
            for other in (1, 2, 3)
        ]
        wrong += any(ratio is not None and ratio.decided for ratio in ratios)
    spread = 4 * math.sqrt(0.05 * 0.95 / trials)
    assert wrong / trials <= 0.05 + spread
