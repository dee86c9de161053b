"""The journals that wait for somebody are told apart on the host, without sending all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from console.agent import state
from console.agent.calls import Call

CALL = cast("Call", None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECOPS_STATE_DIR", str(tmp_path))
    (tmp_path / "journals").mkdir()
    return tmp_path / "journals"


def put(
    folder: Path, name: str, at: float, *, server: str | None = "k", done: str = "", end: str = ""
) -> None:
    plan = {"id": name, "action": name.partition("-")[0], "server": server}
    rows: list[dict[str, Any]] = [{"event": "plan", "time": at, "plan": plan}]
    if done:
        rows += [
            {"event": "intent", "step": 0, "kind": done},
            {"event": "result", "step": 0, "outcome": "ok"},
        ]
    rows += [{"event": "end", "outcome": end}] if end else []
    text = "".join(json.dumps({"format": 1, **row}) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text(text)


def told() -> set[str]:
    return set(state.open_journals(CALL))


def test_only_what_has_no_end_is_told_and_whole(folder: Path) -> None:
    put(folder, "relaunch-1", 1.0, done="drain")
    put(folder, "launch-2", 2.0, server="m", done="launch", end="ok")
    found = state.open_journals(CALL)
    assert set(found) == {"relaunch-1"}
    assert found["relaunch-1"] == state.journals(CALL)["relaunch-1"]
    put(folder, "relaunch-1", 1.0, done="drain", end="ok")  # resumed by somebody
    assert told() == set()


def test_a_later_plan_of_the_same_server_follows_it(folder: Path) -> None:
    put(folder, "relaunch-1", 1.0, done="drain")
    put(folder, "launch-2", 2.0, done="preflight", end="refused")
    put(folder, "stop-3", 3.0, server="m", done="signal", end="ok")
    assert told() == {"relaunch-1"}, "one that did nothing, and one of another server"
    put(folder, "stop-4", 4.0, done="signal", end="ok")
    assert told() == set()


def test_a_plan_of_no_server_is_followed_by_one_of_its_kind(folder: Path) -> None:
    put(folder, "kill-1", 1.0, server=None, done="signal")
    put(folder, "reset-2", 2.0, server=None, done="run", end="ok")
    assert told() == {"kill-1"}
    put(folder, "kill-3", 3.0, server=None, done="signal", end="ok")
    assert told() == set()


def test_a_damaged_journal_is_passed_over(folder: Path) -> None:
    (folder / "relaunch-1.jsonl").write_bytes(b"\xff\n[]\n{}\n")
    (folder / "launch-2.jsonl").write_bytes(b"")
    assert told() == set()
