# ruff: noqa: E501 - log lines are quoted whole
"""A log's rows as text: what the timestamps toggle takes away, and what it leaves."""

from __future__ import annotations

import pytest

from console.logs.store import LogStore
from widgets.log_rows import draw


@pytest.mark.parametrize(
    ("line", "bare"),
    [
        ("[2026-11-29 14:16:51] Received sigquit", "Received sigquit"),
        ("[2026-11-29 14:16:51 TP3] Load weight begin.", "[TP3] Load weight begin."),
        ("(EngineCore pid=3) ERROR 11-27 22:39:46 [core.py:1] x", "(EngineCore pid=3) ERROR [core.py:1] x"),
        ("Nov 29 14:00:00 host unit[1]: x", "host unit[1]: x"),
        ("2026-01-17T18:48:10.4+01:00 stderr F x", "stderr F x"),
        ("prefill-1  | 2026-01-17 18:48:10,417 x", "prefill-1  | x"),
        ("no time here: 12:00:00", "no time here: 12:00:00"),
    ],
)  # fmt: skip
def test_lines_without_their_time(line: str, bare: str) -> None:
    store = LogStore()
    store.append(line.encode() + b"\n")
    assert draw(store, 0, times=True, find=None)[1] == line
    assert draw(store, 0, times=False, find=None)[1] == bare
