"""Presets ranked by what worked: the order, the figures, and the history they are read from."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from console.config.presets import load_presets
from console.model import Preset, Run
from console.planning.past import measured_of, measurements
from console.planning.ranking import VERDICTS, Measured, rank_presets
from tests import scale

SPECULATIVE = [p for p in load_presets() if p.kind == "speculative"]
LOAD = (8, 128)


def run(name: str, outcome: str | None, at: float = 1.0, **more: object) -> Run:
    base = Run(
        run_id=f"r{at}", server="s", engine="sglang", host="h", argv=("x",), env={}, cwd="/",
        log="", port=1, launcher=None, session=None, unit=None, launched_at=at, launched_by="me",
        model="/m", speculative=name, outcome=outcome,
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def speed(preset: str, tok_s: float, load: tuple[int, int] = LOAD, at: float = 2.0) -> Measured:
    return Measured("h", "/m", at, speculative=preset, tokens_per_s={load: tok_s})


def test_what_worked_comes_first_and_what_never_did_last() -> None:
    ready = (("load_target", 3.0), ("load_draft", 1.0), ("ready", 0.0))
    runs = [
        run("eagle3-1step", "failed", 3.0, failure="ValueError: too short"),
        run("eagle3-2step", "ready", 1.0, phases=ready),
        run("eagle3-2step", "exit 1", 4.0, failure="OOM"),
        run("eagle3-3step", "failed", 1.0),
        run("eagle3-3step", "stopped", 5.0, phases=ready),
        run("eagle3-tree", None, 6.0),  # nobody watched it: nothing is known of how it went
    ]
    found = rank_presets(SPECULATIVE, runs, host="h", model="/m")
    assert [(s.preset, s.verdict) for s in found] == [
        ("eagle3-3step", "works"),
        ("eagle3-2step", "worked"),
        ("autoregressive", "untried"),
        ("eagle3-tree", "untried"),
        ("eagle3-1step", "fails"),
    ]
    best, broken, untried, *_, bad = found
    assert (best.launches, best.served, best.failed, best.start_s) == (2, 1, 1, 4.0)
    assert best.phases == (("load_target", 3.0), ("load_draft", 1.0))
    assert broken.last_failure == "OOM"
    assert untried.why == "never launched here"
    assert untried.start_s is None
    assert bad.last_failure == "ValueError: too short"
    assert "0 of 1 served" in bad.why


def test_what_served_and_broke_later_is_behind_what_still_serves() -> None:
    phases = (("load_target", 1.0), ("ready", 0.0))
    runs = [
        run("eagle3-1step", "exit -9", 9.0, phases=phases),
        run("eagle3-3step", "ready", 1.0, phases=phases),
    ]
    first, second, *_ = rank_presets(SPECULATIVE, runs)
    assert (first.preset, first.broke) == ("eagle3-3step", 0)
    assert (second.preset, second.verdict, second.broke) == ("eagle3-1step", "worked", 1)


def test_of_those_that_work_the_faster_under_the_same_load_is_first() -> None:
    runs = [run(name, "ready") for name in ("eagle3-1step", "eagle3-2step", "eagle3-3step")]
    rows = [speed("eagle3-1step", 100), speed("eagle3-3step", 300), speed("eagle3-3step", 200),
            speed("eagle3-3step", 260),
            # a figure under a load that no other was measured under makes nothing faster
            speed("eagle3-1step", 9000, (64, 128))]  # fmt: skip
    found = rank_presets(SPECULATIVE, runs, rows)
    names = [s.preset for s in found if s.verdict == "works"]
    assert names == ["eagle3-3step", "eagle3-1step", "eagle3-2step"]
    assert found[0].tokens_per_s == {LOAD: 260}
    assert found[0].speed == pytest.approx(1.0)
    assert found[1].speed == pytest.approx((100 / 260) ** 0.5)
    assert found[2].speed is None


def test_records_of_another_host_or_model_do_not_count() -> None:
    runs = [run("eagle3-tree", "ready", host="other"), run("eagle3-tree", "ready", model="/x")]
    rows = [replace(speed("eagle3-tree", 5.0), host="other")]
    assert {s.verdict for s in rank_presets(SPECULATIVE, runs, rows, host="h", model="/m")} == {
        "untried"
    }
    assert rank_presets(SPECULATIVE, runs, rows, host="other")[0].preset == "eagle3-tree"


def test_without_records_the_order_is_the_plain_one() -> None:
    every = list(load_presets())
    plain = sorted(every, key=lambda p: (p.kind, p.name))
    ranked = rank_presets(every, [])
    assert [(s.kind, s.preset) for s in ranked] == [(p.kind, p.name) for p in plain]


def test_every_kind_is_matched_by_its_own_field() -> None:
    server = Preset("long-context", "server", "d")
    nccl = next(p for p in load_presets() if p.name == "pcie-ll-ring")
    runs = [run("x", "ready", preset="long-context", nccl="pcie-ll-ring")]
    assert {s.verdict for s in rank_presets([server, nccl], runs)} == {"works"}


def test_any_records_give_each_preset_once_in_verdict_order() -> None:
    rng = random.Random(scale.seed())
    outcomes = [None, "ready", "failed", "stalled", "stopped", "killed", "exit 0", "exit 1"]
    names = [p.name for p in SPECULATIVE]
    for _ in range(scale.count(2000)):
        runs = [
            run(rng.choice(names), rng.choice(outcomes), rng.random() * 10,
                phases=rng.choice([(), (("load_target", rng.random()),), (("ready", 0.0),)]))
            for _ in range(rng.randrange(8))
        ]  # fmt: skip
        rows = [speed(rng.choice(names), rng.random()) for _ in range(rng.randrange(4))]
        found = rank_presets(SPECULATIVE, runs, rows)
        assert sorted(s.preset for s in found) == sorted(names)
        places = [VERDICTS.index(s.verdict) for s in found]
        assert places == sorted(places)
        assert sum(s.launches for s in found) == len(runs)
        assert all(s.served + s.failed <= s.launches for s in found)
        shuffled = rng.sample(runs, len(runs))
        assert rank_presets(SPECULATIVE, shuffled, rows) == found


# ---- the history on this machine


def row(**more: object) -> dict[str, object]:
    level = {"concurrency": 8, "tokens_per_s": 50.0, "failed": 0, "accept_length": 2.0}
    return {"format": 1, "time": 5.0, "host": "h", "model": "/m", "speculative": "eagle3-1step",
            "nccl": None, "tokens": 128, "levels": [level], **more}  # fmt: skip


def test_the_history_is_read_and_damage_is_passed_over(tmp_path: Path) -> None:
    bad = {"concurrency": 32, "tokens_per_s": 1.0, "failed": 3}
    good = row()["levels"]
    assert isinstance(good, list)
    lines = [
        json.dumps(row(time=9.0)),
        "{torn",
        json.dumps([1]),
        json.dumps(row(format=2)),
        json.dumps(row(levels="none")),
        json.dumps(row(levels=[bad])),
        json.dumps(row(time=3.0, levels=[*good, bad], accept_length=1.0)),
    ]
    (tmp_path / "h.jsonl").write_text("\n".join(lines) + '\n{"format": 1, "ti')
    found = measurements(tmp_path)
    assert [m.at for m in found] == [3.0, 9.0]
    assert {tuple(m.tokens_per_s.items()) for m in found} == {((LOAD, 50.0),)}
    assert found[0].accept_length == 2.0
    assert measurements(tmp_path / "none") == ()
    assert measured_of({}) is None
