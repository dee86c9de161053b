"""What carriers wrap around a line comes off, and what it tells is kept."""

from __future__ import annotations

import json

import pytest

from console.phases import parse

CORE = "ValueError: x"
WRAPPED = [
    (CORE, None, ""),
    (f"[rank3]: {CORE}", "rank3", "rank3"),
    (f"[default3]:[rank3]: {CORE}", "rank3", "rank3"),
    (f"(Worker_TP1 pid=7) ERROR 05-02 10:00:00 [core.py:3] {CORE}", "TP1", "(Worker_TP1 pid=7)"),
    (f"(VllmWorker rank=2 pid=7) {CORE}", "rank2", "(VllmWorker rank=2 pid=7)"),
    (
        f"(RayWorkerWrapper pid=7, ip=10.0.0.1) {CORE}",
        None,
        "(RayWorkerWrapper pid=7, ip=10.0.0.1)",
    ),
    (f"ERROR 05-02 10:00:00 core.py:396] {CORE}", None, ""),
    (f"Nov 29 14:00:00 n7 sglang.service[88]: {CORE}", None, "sglang.service[88]"),
    (f"2026-11-29T14:00:00+0000 n7 python3[88]: {CORE}", None, "python3[88]"),
    (f"llm-server-1  | {CORE}", None, ""),
    (f"\x1b[36m0|sglang  | \x1b[39m\x1b[31m{CORE}\x1b[0m", None, ""),
    (f"2026-11-29T14:00:00.1Z stderr F {CORE}", None, ""),
    (f"[pod/llm-0/server] {CORE}", None, ""),
    (f"ERROR 2026-06-15T14:10:59.392125190Z {CORE}", None, ""),
    (
        f"[2025-12-18T16:24:02+08:00] job-7 >> (SGLangEngine pid=31) {CORE}",
        None,
        "(SGLangEngine pid=31)",
    ),
    (f"[1,3]<stderr>: {CORE}", "rank3", "rank3"),
    (f"3: {CORE}", "rank3", "rank3"),
    (f"[7120311.91] {CORE}", None, ""),
    (f"[Wed Jul  1 12:00:05 2026] {CORE}", None, ""),
    (json.dumps({"log": CORE + "\n", "stream": "stderr", "time": "x"}), None, ""),
    (json.dumps({"MESSAGE": CORE, "_PID": "3"}), None, ""),
    (
        f"Nov 29 14:00:00 n7 docker[1]: llm-1  | {json.dumps({'log': '[rank5]: ' + CORE})}",
        "rank5",
        "docker[1]",
    ),
]


@pytest.mark.parametrize(("raw", "rank", "stream"), WRAPPED)
def test_carriers_come_off(raw: str, rank: str | None, stream: str) -> None:
    line = parse(raw, 7)
    assert line.text == CORE
    assert line.rank == rank
    assert line.stream == stream
    assert line.number == 7


def test_sglang_tags_are_ranks_in_either_order() -> None:
    assert parse("[2026-01-01 00:00:00 DP1 TP3 EP3] x").rank == "DP1 TP3 EP3"
    assert parse("[2026-01-01 00:00:00.123 TP3] x").rank == "TP3"
    assert parse("[2026-01-01 00:00:00] x").rank is None
    assert parse("[01:03:55 TP0] x").fresh


def test_indentation_inside_a_carrier_is_kept() -> None:
    assert parse('[rank3]:   File "a.py", line 1, in f').text == '  File "a.py", line 1, in f'
    assert parse("Nov 29 14:00:00 n7 u[1]:     raise X").text == "    raise X"


def test_of_a_bar_the_last_state_stays_and_a_line_glued_to_it_comes_free() -> None:
    assert parse("\r 0% | 0/2\r50%|## | 1/2\r\n").text == "50%|## | 1/2"
    glued = "\rCapturing: 4%|4 | 1/23 [00:07<02:41, 7.3s/it][2026-01-01 00:00:00 TP7] Scheduler x"
    assert parse(glued).text == "Scheduler x"
    assert parse(glued).rank == "TP7"


def test_tables_and_code_are_not_taken_for_carriers() -> None:
    for text in (
        "    5 | #include <Python.h>",
        "      |          ^~~~",
        "a.c:3:1: error: x",
    ):
        assert parse(text).text == text


def test_an_endless_line_is_cut_in_its_middle() -> None:
    line = parse("a" * 50_000 + "end")
    assert len(line.text) < 20_000
    assert line.text.endswith("end")


def test_times_are_seconds_and_unknown_stays_unknown() -> None:
    early, late = (parse(f"[2026-01-01 00:00:{s}] x").time for s in ("01", "31"))
    assert early is not None
    assert late is not None
    assert late - early == 30.0
    assert parse("x").time is None
    assert parse("[2026-99-99 00:00:00] x").time is None
