"""Logs merged by time: every line once, marked, in order, tracebacks whole."""

from __future__ import annotations

import random

import pytest

from console.logs.merge import HOLD_S, STALL_S, Merger, labels, merge, stamp_of
from console.logs.store import LogStore
from tests import scale

TRACE = (
    b"Traceback (most recent call last):",
    b'  File "/srv/own.py", line 7, in serve',
    b"    run()",
    b"ValueError: no",
)


def line(second: float, text: str) -> bytes:
    return b"[2026-11-29 05:%02d:%06.3f] %s" % (second // 60, second % 60, text.encode())


def test_in_the_order_of_their_stamps_whatever_the_pieces() -> None:
    rng = random.Random(scale.seed())
    for _ in range(60):
        logs: dict[str, list[bytes]] = {f"r{n}": [] for n in range(rng.randrange(1, 6))}
        expected: list[tuple[float, int, bytes]] = []
        for at, (name, rows) in enumerate(logs.items()):
            second = 0.0
            for number in range(rng.randrange(40)):
                second += rng.choice([0.0, 0.5, 3.0])
                rows.append(line(second, f"{name} {number}"))
                expected.append((second, at, rows[-1]))
                if rng.random() < 0.1:
                    rows.extend(TRACE)
                    expected += [(second, at, raw) for raw in TRACE]
        merger, queues = Merger(), {}
        for name, rows in logs.items():
            merger.add(name, name, 0.0)
            queues[name] = b"".join(row + b"\n" for row in rows)
        out, now = b"", 0.0
        while any(queues.values()):
            name, left = rng.choice([item for item in queues.items() if item[1]])
            step = rng.randrange(1, 400)
            data, queues[name] = left[:step], left[step:]
            now += 0.001
            merger.feed(name, data, now, behind=bool(queues[name]))
            if not queues[name]:
                merger.end(name, now)
            for other, left in queues.items():  # one that is read slowly is waited for
                merger.feed(other, b"", now, behind=bool(left))
            out += merger.take(now, rng.choice([1, 5, 1000]))
        for name in logs:
            merger.end(name, now)
        out += merger.take(now)
        got = out.replace(b"\r", b"").split(b"\n")[:-1]
        expected.sort(key=lambda row: row[:2])
        names = list(logs)
        assert got == [f"{names[at]} | ".encode() + raw for _, at, raw in expected]


def test_a_quiet_log_holds_nobody_up_and_a_late_line_is_still_shown() -> None:
    merger = Merger()
    merger.add("a", "a", 0.0)
    merger.add("b", "b", 0.0)
    merger.feed("b", b"", 0.0)
    merger.feed("a", line(10, "x") + b"\n", 1.0)
    assert merger.take(1.0 + HOLD_S / 2) == b""
    assert merger.take(1.0 + HOLD_S) == b"a | " + line(10, "x") + b"\n"
    merger.feed("b", line(3, "late") + b"\n", 5.0)
    assert merger.take(5.0 + HOLD_S) == b"b | " + line(3, "late") + b"\n"


def test_a_log_that_hangs_is_not_waited_for_for_ever() -> None:
    merger = Merger()
    merger.add("a", "a", 0.0)
    merger.add("nfs", "nfs", 0.0)
    merger.feed("a", line(10, "x") + b"\n" + line(11, "y") + b"\n", 0.1)
    assert merger.take(STALL_S - 0.1) == b""
    assert merger.take(STALL_S + HOLD_S).count(b"\n") == 2


def test_a_traceback_stays_together_while_another_log_goes_on() -> None:
    merged = merge(
        [
            ("rank0", line(1, "a") + b"\n" + b"\n".join(TRACE) + b"\n" + line(5, "b") + b"\n"),
            ("rank1", b"".join(line(n, "busy") + b"\n" for n in range(8))),
        ]
    ).split(b"\n")
    at = merged.index(b"rank0 | " + TRACE[0])
    assert merged[at : at + 4] == [b"rank0 | " + raw for raw in TRACE]
    store = LogStore()
    store.append(b"\n".join(merged))
    assert [store.text(number) for number in store.errors] == ["rank0 | ValueError: no"]


def test_a_bar_is_one_live_line_until_another_log_writes() -> None:
    merger, store = Merger(), LogStore()
    merger.add("a", "a", 0.0)
    merger.add("b", "b", 0.0)
    merger.feed("b", b"", 0.0)
    now = 0.0
    for percent in (10, 20, 30):
        now += 1.0
        merger.feed("a", b"\r %d%%|#  | %d/100 [00:01<00:01,  1.0it/s]" % (percent, percent), now)
        store.append(merger.take(now))
        assert len(store) == 1
        assert b"%d/100" % percent in store.raw(0)
    merger.feed("b", line(9, "other") + b"\n", now)
    store.append(merger.take(now + HOLD_S))
    assert len(store) == 2, "what has not changed is not shown again"
    merger.feed("a", b"\r 100%|###| 100/100 [00:01<00:00,  1.0it/s]\n", now + 1)
    store.append(merger.take(now + 1 + HOLD_S))
    shown = [store.raw(number) for number in range(len(store))]
    assert sum(b"other" in raw for raw in shown) == 1
    assert sum(b"100/100" in raw for raw in shown) == 1
    assert b"30/100" in shown[0]


def test_a_last_line_without_an_end_is_shown_after_a_while() -> None:
    merger = Merger()
    merger.add("a", "a", 0.0)
    merger.feed("a", b"Segmentation fault", 0.0)
    assert merger.take(0.1) == b""
    assert merger.take(HOLD_S) == b"\ra | Segmentation fault"
    assert merger.take(HOLD_S + 1) == b""
    merger.feed("a", b" (core dumped)\n", 3.0)
    assert merger.take(3.0 + HOLD_S) == b"\ra | Segmentation fault (core dumped)\n"


@pytest.mark.parametrize(
    ("raw", "stamp"),
    [
        (b"[2026-11-29 05:00:01 TP0] x", 1795928401.0),
        (b"2026-11-29T05:00:01.5Z stderr F x", 1795928401.5),
        (b"2026-11-29 05:00:01,250 - x", 1795928401.25),
        (b"    raise ValueError", None),
        (b"ValueError: no", None),
        (b"", None),
        (b"[2026-99-99 05:00:01] x", None),
        (b"\xff\xfe\x00", None),
    ],
)
def test_stamps(raw: bytes, stamp: float | None) -> None:
    assert stamp_of(raw) == stamp


def test_lines_that_name_no_year_are_of_the_year_around_them() -> None:
    merged = merge(
        [
            ("a", line(1, "first") + b"\n" + line(9, "last") + b"\n"),
            ("b", b"INFO 11-29 05:00:05 [core.py:5] between\n"),
        ]
    )
    assert [row[:1] for row in merged.split(b"\n")[:-1]] == [b"a", b"b", b"a"]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/l/rank0.log", "/l/rank1.log"], ["rank0", "rank1"]),
        (["/l/k25.log", "/l/r/rank10.log"], ["k25   ", "rank10"]),
        (["/l/a/0/stderr.log", "/l/a/1/stderr.log"], ["rank0", "rank1"]),
        (["/l/0/stderr.log", "/l/0/stdout.log"], ["stderr", "stdout"]),
        (["/l/0/err.log", "/l/0/out.log", "/l/1/err.log"],
         ["rank0-err", "rank0-out", "rank1-err"]),
        (["k.service", "/x/a b|c.log"], ["k    ", "a_b_c"]),
        (["/only.log"], ["only"]),
    ],
)  # fmt: skip
def test_labels_tell_files_apart(paths: list[str], names: list[str]) -> None:
    assert labels(paths) == names
