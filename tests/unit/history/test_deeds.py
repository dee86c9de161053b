"""The audit file told in sentences: one deed a plan, nothing lost, no dict as Python writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.history.deeds import Deed, deeds, raw

FILE = Path(__file__).parents[2] / "data/audit/relaunch.jsonl"
ENTRIES: list[dict[str, Any]] = [json.loads(row) for row in FILE.read_text().splitlines()]


def of(action: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["plan"].startswith(action)]


def words(deed: Deed) -> str:
    return "\n".join((deed.detail, *deed.story))


def test_each_plan_is_one_deed_in_sentences() -> None:
    found = deeds(reversed(ENTRIES))
    assert [(d.what, d.outcome, d.detail) for d in found] == [
        ("kill-zombies", "ok", "1 orphan: all 5 steps done in 0.2 s"),
        ("relaunch", "ok", "pair: all 9 steps done in 6.9 s"),
        ("launch", "ok", "pair: all 3 steps done in 5.2 s"),
    ]
    assert found[1].plan == "relaunch-e4ce3c"
    assert found[1].who == "ops@laptop"
    for deed in found:
        assert "{" not in words(deed)
        assert "None" not in words(deed)
        assert [json.loads(row) for row in raw(deed)] == [
            entry for entry in ENTRIES if entry["plan"] == deed.plan
        ]
    assert "  --speculative-num-steps  3  →  1" in found[1].story
    assert any(row.startswith("  SIGTERM to pid 14089 of root: ") for row in found[1].story)
    assert "  → ok: run 86c87361, pid 15619 (0.2 s)" in found[1].story


@pytest.mark.parametrize("length", range(1, len(of("relaunch", ENTRIES)) + 1))
def test_a_file_that_ends_anywhere_is_told_as_far_as_it_goes(length: int) -> None:
    """As while the plan goes on, or after a power cut."""
    (deed,) = deeds(of("relaunch", ENTRIES)[:length])
    whole = length == len(of("relaunch", ENTRIES))
    assert deed.outcome == ("ok" if whole else "?")
    assert ("no end is recorded" in deed.detail) is not whole
    assert "{" not in words(deed)


@pytest.mark.parametrize("length", range(1, len(of("relaunch", ENTRIES)) + 1))
def test_a_file_that_begins_anywhere_is_told_from_there(length: int) -> None:
    """Only the newest entries are read."""
    (deed,) = deeds(of("relaunch", ENTRIES)[-length:])
    assert (deed.what, deed.outcome) == ("relaunch", "ok")
    assert "{" not in words(deed)


def test_a_failed_step_says_which_and_why() -> None:
    entries = [dict(entry) for entry in of("launch", ENTRIES)]
    entries[4] |= {"outcome": "failed", "detail": "no such file: /m"}
    del entries[5:]
    (deed,) = deeds(entries)
    assert deed.outcome == "failed"
    assert deed.detail == "pair: step 2 of 3, launch, failed: no such file: /m"
    assert "  → not begun" in deed.story
    (deed,) = deeds([*entries[:1], {**entries[0], "event": "refused", "detail": "pid 7 is gone"}])
    assert (deed.outcome, deed.detail) == ("refused", "pair: not begun: pid 7 is gone")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"event": "adopt", "server": "k26", "detail": "7d10"},
         "k26 became a server of hosts.yaml, run 7d10"),
        ({"event": "purge", "detail": {"argv": ["rm", "-rf", "-x", "--", "/var/lib/specops"]}},
         "removes what specops left there: /var/lib/specops"),
        ({"event": "purged", "detail": {"outcome": "ok", "left": []}}, "nothing is left there"),
        ({"event": "link-lost"}, "the connection was lost; the lock fell with it"),
        ({"event": "new", "detail": {"a": {"b": [1, 2]}, "c": 0}},
         "event new, detail a b 1 2, c 0"),
        ({"event": 3, "detail": [{"x": 1}], "time": "then"}, "event 3, detail x 1"),
    ],
)  # fmt: skip
def test_what_is_no_plan_is_a_sentence_too(values: dict[str, Any], told: str) -> None:
    (deed,) = deeds([{"format": 1, "time": 5.0, "user": "ops", "host": "h", **values}])
    assert deed.detail == told


@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, [[]], [{"a": 1}]])
@pytest.mark.parametrize("key", ["detail", "step", "plan", "host", "user", "outcome", "event"])
def test_entries_of_another_shape_are_told_all_the_same(key: str, junk: object) -> None:
    for at in range(len(ENTRIES)):
        found = deeds([*ENTRIES[:at], {**ENTRIES[at], key: junk}, *ENTRIES[at + 1 :]])
        assert found
        assert all("{" not in words(deed) for deed in found)
    for inner in ("steps", "summary", "findings"):
        changed = {**ENTRIES[0], "detail": {**ENTRIES[0]["detail"], inner: junk}}
        assert deeds([changed, *ENTRIES[1:]])
