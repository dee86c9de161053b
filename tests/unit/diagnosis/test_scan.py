"""Size, restarts, hostile bytes: bounded work on anything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.diagnosis import diagnose, diagnosis_to_json, scan
from console.diagnosis.scan import extract
from tests.unit.diagnosis.cases import cases
from tests.unit.diagnosis.hostile import HOSTILE

BY_ID = {case.id: case for case in cases("reports", "sglang-0.5.12-h200", "kinds")}
HEALTHY, CRASH = BY_ID["healthy_eagle3"].log, BY_ID["ctx_mismatch"].log


def test_only_the_last_start_is_judged() -> None:
    found = diagnose(CRASH + HEALTHY)
    assert found.root is None
    assert found.category == "none"
    found = diagnose(HEALTHY + CRASH)
    assert found.category == "context-length"
    assert found.root is not None
    assert found.root.log_line == HEALTHY.count(b"\n") + 102


def test_a_start_under_way_does_not_hide_why_the_last_one_failed() -> None:
    begun = b"".join(HEALTHY.splitlines(keepends=True)[:20])
    found = diagnose(CRASH + begun)
    assert found.category == "context-length"


@pytest.mark.parametrize("size", [7, 60, 500])
def test_lines_cut_by_the_container_runtime_are_whole_again(size: int) -> None:
    lines = BY_ID["sg-4791"].log.decode().removesuffix("\n").split("\n")
    docker, cri = [], []
    for line in lines:
        parts = [line[i : i + size] for i in range(0, len(line), size)] or [""]
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            docker.append(json.dumps({"log": part + "\n" * last, "stream": "stderr", "time": "x"}))
            cri.append(f"2026-11-29T14:00:00.1Z stderr {'F' if last else 'P'} {part}")
    for log in (docker, cri):
        found = diagnose("\n".join(log).encode())
        assert found.category == "quant-tp-shape"
        assert found.root is not None
        assert found.root.rank == "TP5"


def test_a_second_server_in_a_compose_log_is_no_restart() -> None:
    def carried(name: str, log: bytes) -> list[bytes]:
        return [name.encode() + b"  | " + line for line in log.splitlines(keepends=True)]

    prefill, decode = carried("prefill-1", CRASH), carried("decode-1", HEALTHY)
    assert diagnose(b"".join(prefill + decode)).category == "context-length"
    assert diagnose(b"".join(prefill + carried("prefill-1", HEALTHY))).category == "none"


def test_a_restart_loop_is_counted_once() -> None:
    assert diagnose(CRASH * 5).incidents == 5
    assert diagnose(HEALTHY + CRASH).incidents == 1


def test_blocks_give_the_same_answer_as_the_whole() -> None:
    for log in (HEALTHY * 8 + CRASH, BY_ID["sg-5285"].log):
        pieces = [log[i : i + 7001] for i in range(0, len(log), 7001)]
        assert diagnosis_to_json(diagnose(pieces)) == diagnosis_to_json(diagnose(log))


def test_the_first_error_is_found_far_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "HEAD", 64 * 1024)
    monkeypatch.setattr(scan, "TAIL", 64 * 1024)
    monkeypatch.setattr(scan, "BLOCK", 16 * 1024)
    plain = b'[2026-11-29 14:15:39] INFO:     127.0.0.1:33938 - "GET /metrics HTTP/1.1" 200 OK\n'
    trouble = b"".join(BY_ID["sg-4791"].log.splitlines(keepends=True)[21:])
    log = plain * 4000 + trouble + plain * 4000
    found = diagnose(log)
    assert found.category == "quant-tp-shape"
    assert found.root is not None
    assert log.split(b"\n")[(found.root.log_line or 0) - 1].startswith(b"ValueError: Weight")
    assert sum(len(line) for _, line in extract(log).current) < 300_000


def test_one_endless_line_is_capped() -> None:
    log = b"x" * 3_000_000 + b"\n" + BY_ID["sg-4330"].log
    assert diagnose(log).category == "gpu-oom-load"


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bytes_get_an_answer(data: bytes) -> None:
    assert diagnose(data).category


WORDS = st.sampled_from(
    [
        b"Traceback (most recent call last):\n",
        b'  File "/a/b.py", line 3, in f\n',
        b"    g()\n",
        b"ValueError: x\n",
        b"[2026-01-01 00:00:00 TP3] ",
        b"[rank2]: ",
        b"\r",
        b"\x00",
        b"\xff",
        b"\x1b[31m",
        b"(EngineCore pid=3) ",
        b"ERROR 01-02 03:04:05 [a.py:3] ",
        b"\n",
        b"\n\n",
        b"During handling of the above exception, another exception occurred:\n",
        b"Killed\n",
        b"  + Exception Group Traceback (most recent call last):\n",
        b"  | ",
        b"    | ",
        b"NVRM: Xid (PCI:0000:01:00): 79, x\n",
        b"server_args=ServerArgs(a=1)\n",
        b"NCCL WARN x\n",
        b"Scheduler hit an exception: Traceback (most recent call last):\n",
        b"AssertionError\n",
        b"exit code: -9\n",
        b"Load weight begin.\n",
        b"50%|##| 1/2 [00:01<00:01, 1it/s]",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=400), st.lists(WORDS, max_size=40).map(b"".join)))
def test_no_bytes_crash_it(data: bytes) -> None:
    document = diagnosis_to_json(diagnose(data))
    assert document["category"]
    root = document["root"]
    if root is not None:
        assert root["type"]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(BY_ID)), st.data())
def test_a_log_cut_or_damaged_anywhere_is_still_read(name: str, data: st.DataObject) -> None:
    log = bytearray(BY_ID[name].log[:6000])
    start = data.draw(st.integers(0, len(log)))
    end = data.draw(st.integers(start, len(log)))
    for _ in range(data.draw(st.integers(0, 6))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    assert diagnose(bytes(log[start:end])).category
