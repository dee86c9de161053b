"""The history of measurements is read as it was written; what is damaged is passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.bench import Level
from console.planning.measuring import (
    Load,
    bench_of,
    history,
    history_path,
    keep,
    level_of,
    level_to_json,
)  # fmt: skip

LEVEL = Level(8, 32, 1, 2.5, 900, 360.0, {50: 0.1, 90: 0.2, 99: 0.3}, {}, None, "HTTP 500")


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_level_survives_its_file() -> None:
    assert level_of(json.loads(json.dumps(level_to_json(LEVEL)))) == LEVEL


def test_newest_first_of_one_server_and_damage_is_passed_over() -> None:
    for number, server in enumerate(("one", "two", "one")):
        ran = {"server": server, "run_id": f"r{number}", "model": "/m", "speculative": "s"}
        keep("host", ran, [LEVEL], Load((8,), 4, 64))
    path = history_path("host")
    lines = path.read_text(encoding="utf-8").splitlines()
    old = json.loads(lines[0])
    del old["server"]
    newer = {**json.loads(lines[0]), "format": 2}
    half = lines[2][:40]
    path.write_text(
        "\n".join([*lines, json.dumps(old), json.dumps(newer), "[]", half]), encoding="utf-8"
    )
    found = history("host", "one", "/m")
    assert [one.run_id for one in found] == ["r2", "r0", "r0"], "an old line goes by its model"
    assert [one.run_id for one in history("host", "one", "/other")] == ["r2", "r0"]
    assert found[0].levels == (LEVEL,)
    assert path.stat().st_mode & 0o777 == 0o600
    assert history("nowhere", "one") == ()


def test_the_presets_of_a_line_in_words() -> None:
    row = {"format": 1, "time": 1.0, "host": "h", "tokens": 64, "levels": [],
           "speculative": "eagle3-3step", "nccl": "default", "preset": None}  # fmt: skip
    made = bench_of(row)
    assert made is not None
    assert made.presets == "eagle3-3step"
    bare = bench_of({**row, "speculative": None})
    assert bare is not None
    assert bare.presets == "no preset"
    assert bench_of({**row, "levels": [{"concurrency": 1}]}) is None
