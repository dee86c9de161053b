"""The store keeps every line, whatever the chunks, and finds again what it kept."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.diagnosis import TROUBLE, LineKind
from console.diagnosis import classify_line as classify
from console.errors import UsageError
from console.logs.lines import Kind, body_of, classify_line, rank_of
from console.logs.search import Matcher, Search
from console.logs.store import BLOCK, MAX_LINE, LogStore
from console.text import clean
from tests import scale
from tests.unit.diagnosis.cases import cases

CASES = Path(__file__).parents[2] / "data" / "cases"

TRACE = b"""\
[2026-11-29 05:58:22 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1, in _call
    return forward()
           ^^^^^^^^^
  File "/lib/python3.11/site-packages/torch/b.py", line 2, in b
    go()
  File "/srv/app/own.py", line 7, in serve
    run()
  File "/lib/python3.11/site-packages/torch/c.py", line 3, in c
    go()
  File "/lib/python3.11/site-packages/torch/d.py", line 4, in d
    raise ValueError("no")
ValueError: no
after
"""


def filled(data: bytes, sizes: list[int] | None = None) -> LogStore:
    """A store that got the data in pieces of these sizes, over and over."""
    store = LogStore()
    at, turn = 0, 0
    while at < len(data):
        step = sizes[turn % len(sizes)] if sizes else len(data)
        store.append(data[at : at + step])
        at, turn = at + step, turn + 1
    return store


def everything(store: LogStore) -> list[bytes]:
    return [store.raw(number) for number in range(len(store))]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.binary(max_size=60).map(lambda b: b.translate(None, b"\n\r\x1b")), max_size=40),
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
)
def test_chunks_may_end_anywhere(lines: list[bytes], sizes: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    assert everything(filled(data, sizes)) == lines
    assert everything(filled(data)) == lines


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=3000), st.lists(st.integers(1, 700), min_size=1, max_size=4))
def test_arbitrary_bytes_are_inert_and_never_crash(data: bytes, sizes: list[int]) -> None:
    store = filled(data, sizes)
    for number in range(len(store)):
        text = store.text(number)
        assert "\x1b" not in text
        assert "\n" not in text
        store.kind(number)
        store.record(number)
        assert store.folds.line_of(store.folds.row_of(number)) <= number


def test_many_blocks_and_every_line_in_its_place() -> None:
    lines = [b"line %d %s" % (n, b"x" * (n % 300)) for n in range(20_000)]
    store = filled(b"\n".join(lines) + b"\n", [7_919, 65_536, 13])
    assert len(store) == 20_000
    for number in random.Random(3).sample(range(20_000), 500):
        assert store.raw(number) == lines[number]


def test_of_a_log_without_end_the_oldest_lines_are_let_go() -> None:
    store = LogStore(kept_bytes=4 * BLOCK)
    search = Search(store, Matcher("!nothing"))
    rng = random.Random(scale.seed())
    written = 0
    for turn in range(60):
        rows = rng.randrange(1, 900)
        lines = [b"%07d %s" % (written + n, b"x" * rng.randrange(200)) for n in range(rows)]
        if turn % 7 == 0:
            lines[0] = b"ValueError: %d" % written
        store.append(b"\n".join(lines) + b"\n")
        if turn % 3 == 0:
            while search.step():
                pass
        written += rows
        held = sum(len(data) for _, data, _ in store.blocks())
        assert held <= 4 * BLOCK + BLOCK
        assert len(store) == written
    assert 0 < store.first < written
    for number in range(len(store)):
        raw = store.raw(number)
        store.kind(number)
        if number < store.first:
            assert raw == b""
        else:
            assert raw == b"ValueError: %d" % number or raw[:8] == b"%07d " % number
    first = store.next_error(-1, 1)
    assert first is not None
    assert first >= store.first
    assert store.next_error(first, -1) is None
    while search.step():
        pass
    assert search.done
    fresh = hits_of(store, "!nothing")
    assert fresh == list(range(store.first, len(store)))
    assert set(fresh) <= set(search.lines)


def test_a_bar_is_one_live_line() -> None:
    store = LogStore()
    for done in range(5):
        store.append(b"\r 20%%|##        | %d/5 [00:01<00:04,  1.00it/s]" % done)
        assert len(store) == 1
    assert b"4/5" in store.raw(0)
    assert store.kind(0) is Kind.BAR
    store.append(b"\nnext\r\n")
    assert everything(store)[1:] == [b"next"]
    assert b"4/5" in store.raw(0)


def test_a_long_line_is_cut_with_its_length() -> None:
    store = LogStore()
    for _ in range(40):
        store.append(b"y" * 10_000)
    assert len(store) == 1
    assert store.raw(0).endswith(b"[+%d bytes]" % (400_000 - MAX_LINE))
    assert store.left_out(0) == 400_000 - MAX_LINE
    store.append(b"zz\nshort\n")
    assert store.raw(0) == b"y" * MAX_LINE + b" [+%d bytes]" % (400_002 - MAX_LINE)
    assert store.raw(1) == b"short"
    assert [store.left_out(number) for number in (0, 1)] == [400_002 - MAX_LINE, 0]
    whole = filled(b"a\n" + b"y" * 400_000 + b"\nb\n")
    assert [len(raw) < MAX_LINE + 64 for raw in everything(whole)] == [True] * 3
    assert whole.raw(2) == b"b"


def test_escapes_split_between_chunks_do_not_reach_the_screen() -> None:
    store = LogStore()
    store.append(b"\x1b[3")
    store.append(b"1mred\x1b[0m plain\x1b]52;c;AAAA\x07 end\n")
    assert store.raw(0) == b"red plain end"


def test_half_a_character_waits_for_its_other_half() -> None:
    store = LogStore()
    store.append("gr\u00fc".encode()[:-1])
    assert store.text(0) == "gr\\xc3"
    store.append("\u00fc".encode()[1:] + b"n\n")
    assert store.text(0) == "gr\u00fcn"


def test_gaps_and_notes_stand_as_lines_of_their_own() -> None:
    store = LogStore()
    store.append(b"half a li")
    store.gap(1_000_000)
    store.append(b"after\n")
    assert store.skipped_bytes == 1_000_000
    assert store.kind(1) is Kind.NOTE
    assert "1,000,000 bytes left out" in store.text(1)
    assert store.raw(2) == b"after"


@pytest.mark.parametrize("sizes", [[10_000], [1], [64], [3, 200]])
def test_a_traceback_folds_to_its_own_frames_and_the_deepest(sizes: list[int]) -> None:
    store = filled(b"before\n" + TRACE, sizes)
    kinds = [store.kind(number).name for number in range(len(store))]
    assert kinds == ["PLAIN", "TRACEBACK", "FRAME_LIB", "CODE", "CODE", "FRAME_LIB", "CODE",
                     "FRAME", "CODE", "FRAME_LIB", "CODE", "FRAME_LIB", "CODE", "RAISED",
                     "PLAIN"]  # fmt: skip
    assert list(store.errors) == [13]
    shown = [store.folds.line_of(row) for row in range(len(store) - store.folds.hidden)]
    assert shown == [0, 1, 2, 7, 8, 9, 11, 12, 13, 14]
    assert store.folds.at(2) == (2, 6)
    assert store.record(13) == (1, 13)
    assert store.record(5) == (1, 13)
    assert store.next_error(0, 1) == 13
    assert store.next_error(13, 1) is None
    assert store.next_error(14, -1) == 13


def test_rows_and_lines_are_inverse_over_many_folds() -> None:
    store = filled((b"plain\n" * 3 + TRACE) * 50)
    rows = len(store) - store.folds.hidden
    lines = [store.folds.line_of(row) for row in range(rows)]
    assert lines == sorted(set(lines))
    assert [store.folds.row_of(line) for line in lines] == list(range(rows))
    for line in range(len(store)):
        assert lines[store.folds.row_of(line)] <= line


def test_prefixes_do_not_hide_what_a_line_is() -> None:
    for prefix in (
        b"Nov 29 14:02:09 ct129 python3[4711]: ",
        b"2026-11-29T14:02:09.123456Z stderr F ",
        b"sglang-1  | ",
        b"(Worker_TP3 pid=4711) ",
        b"[rank3]: ",
    ):
        assert body_of(prefix + b"ValueError: no") == b"ValueError: no", prefix
        assert classify_line(prefix + b"ValueError: no") is Kind.RAISED, prefix
        frame = prefix + b'  File "/srv/own.py", line 7, in serve'
        assert classify_line(frame, Kind.TRACEBACK) is Kind.FRAME, prefix
        assert classify_line(prefix + b"    run()", Kind.FRAME) is Kind.CODE, prefix


def test_ranks() -> None:
    assert rank_of(b"[2026-11-29 05:58:22 TP3] x") == 3
    assert rank_of(b"[2026-11-29 05:58:22 DP1 TP12] x") == 1
    assert rank_of(b"[rank5]: x") == 5
    assert rank_of(b"nothing") is None


def test_the_quick_search_misses_nothing_that_the_slow_one_finds() -> None:
    """Over every log that the project has: a line is plain, or a token of it was found."""
    logs = sorted(CASES.rglob("*.log"))
    assert logs, f"no cases under {CASES}"
    missed = []
    for path in logs:
        store = filled(path.read_bytes().replace(b"\r", b"\n") + b"\n")
        before = Kind.PLAIN
        for number in range(len(store)):
            kind = classify_line(store.raw(number), before)
            if kind is not store.kind(number):
                missed.append((path.name, number, kind.name, store.text(number)[:120]))
            before = kind
    assert missed == []


def test_a_search_on_the_host_leaves_out_no_error() -> None:
    plain = (LineKind.PLAIN, LineKind.WARNING, LineKind.BAR)
    for case in cases("reports", "kinds", "sglang-0.5.12-h200"):
        for raw in case.log.split(b"\n"):
            line = clean(raw)
            assert classify(line) in plain or any(word in line for word in TROUBLE), line


def test_errors_of_a_real_crash_lead_to_its_root() -> None:
    """``E`` from the end of a crash log passes the line that its answer names."""
    found = total = 0
    for path in sorted((CASES / "reports").glob("*.log")):
        answer = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["expect"]
        wanted = answer.get("message_contains")
        if answer.get("root") is None or not isinstance(wanted, str):
            continue
        total += 1
        store = filled(path.read_bytes() + b"\n")
        needle = wanted.lower()
        hits = (
            needle
            in " ".join(store.text(n) for n in range(line, min(line + 12, len(store)))).lower()
            for line in store.errors
        )
        found += any(hits)
    print(f"roots reached by e: {found} of {total}")
    assert total >= 30
    assert found / total >= 0.8


# ---- search


def hits_of(store: LogStore, text: str) -> list[int]:
    search = Search(store, Matcher(text))
    while search.step():
        pass
    return list(search.lines)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.text("abAB /\u00e9", max_size=12), max_size=60),
    st.text("abAB\u00e9", min_size=1, max_size=3),
    st.booleans(),
)
def test_a_search_finds_what_python_finds(lines: list[str], needle: str, negated: bool) -> None:
    store = filled("".join(line + "\n" for line in lines).encode())
    exact = needle.lower() != needle

    def has(line: str) -> bool:
        # ASCII letters only change their case in a search over bytes
        fold = line if exact else "".join(c.lower() if c.isascii() else c for c in line)
        return needle in fold

    expected = [n for n, line in enumerate(lines) if has(line) != negated]
    assert hits_of(store, ("!" if negated else "") + needle) == expected


def test_regular_expressions_and_growth() -> None:
    store = filled(b"".join(b"line %d\n" % n for n in range(50_000)))
    search = Search(store, Matcher("/line 4999\\d$/"))
    steps = 0
    while search.step():
        steps += 1
    assert steps > 5
    assert list(search.lines) == list(range(49_990, 50_000))
    store.append(b"line 49999\nline 1\nline 49990")
    while search.step():
        pass
    assert search.lines[-1] == 50_000  # the growing line is not looked at yet
    assert search.after(49_995) == 49_996
    assert search.before(49_990) is None
    assert search.after(50_000) is None


def test_a_step_is_small_whatever_the_lines() -> None:
    store = filled(b"x" * 60_000 + b"\n" + b"y\n" * 200_000)
    search = Search(store, Matcher("y"))
    position = 0
    while search.step():
        assert 0 < search.position - position <= 65_536
        position = search.position
    assert len(search.lines) == 200_000


@pytest.mark.parametrize("text", ["line", "/1$/", "!/1$/", "9", "!line"])
def test_a_search_in_no_time_finds_the_same(text: str) -> None:
    store = filled(b"".join(b"line %d %s\n" % (n, b"x" * (n % 90)) for n in range(30_000)))
    search = Search(store, Matcher(text))
    turns = 0
    while search.run(1e-9):  # every slice is over its time
        turns += 1
    assert turns > 100
    assert list(search.lines) == hits_of(store, text)


@pytest.mark.parametrize("text", ["/(/", "/[a/", "/x*/"])
def test_a_pattern_that_makes_no_sense_is_one_error(text: str) -> None:
    with pytest.raises(UsageError):
        Matcher(text)


LOOKS = b"""\
[2026-11-29 17:30:00] The server is fired up and ready to roll!
[2026-11-29 17:30:01] INFO:     127.0.0.1:1 - "GET /metrics HTTP/1.1" 200 OK
[2026-11-29 17:30:02] Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0, #queue-req: 0
[2026-11-29 17:30:02] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK
[2026-11-29 17:30:03] INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK
[2026-11-29 17:30:04] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable
[2026-11-29 17:30:05] INFO:     127.0.0.1:1 - "GET /metrics HTTP/1.1" 200 OK
[2026-11-29 17:30:06] INFO:     127.0.0.1:1 - "GET /v1/models/x HTTP/1.1" 200 OK
"""


@given(st.lists(st.integers(1, 90), min_size=1, max_size=9))
def test_runs_of_looks_fold_to_one_row_and_nothing_else_does(sizes: list[int]) -> None:
    store = filled(LOOKS, sizes)
    shown = [store.folds.line_of(row) for row in range(len(store) - store.folds.hidden)]
    assert shown == [0, 1, 4, 5, 6, 7]
    assert store.folds.at(1) == (1, 3)
    assert store.folds.at(6) is None  # one look is shown as itself
    assert store.folds.looks == 4
    assert [store.folds.row_of(line) for line in (1, 2, 3, 4)] == [1, 1, 1, 2]


def test_a_fold_of_looks_grows_with_the_log() -> None:
    store = LogStore()
    for count in range(1, 5):
        store.append(LOOKS.splitlines(keepends=True)[1])
        assert len(store) - store.folds.hidden == 1, count
    assert store.folds.at(0) == (0, 3)
