# ruff: noqa: E501 - log lines are quoted whole
"""Reading tracebacks: chains, torn pairs, groups, exports that lost their shape."""

from __future__ import annotations

from console.diagnosis import LineKind, classify_line, diagnose, rank_number
from console.diagnosis.tracebacks import Trace, read
from console.phases import parse
from tests.unit.diagnosis.cases import cases

BY_ID = {case.id: case for case in cases("reports", "kinds")}


def traces(text: str) -> list[Trace]:
    return read(parse(line, i + 1) for i, line in enumerate(text.split("\n")))[0]


def test_a_chain_keeps_both_blocks_and_their_link() -> None:
    first, second = traces(BY_ID["sg-5285"].log.decode())[:2]
    assert (first.type, second.type) == ("torch.OutOfMemoryError", "Exception")
    assert second.earlier is first
    assert second.link == "during"
    assert second.rank == first.rank == "TP7"


def test_a_message_goes_on_over_blank_lines_when_its_first_line_is_empty() -> None:
    (trace,) = traces(BY_ID["sg-29646"].log.decode())
    assert "libnvrtc.so.12" in trace.text


def test_a_traceback_of_the_logging_module_is_no_failure() -> None:
    text = (
        "--- Logging error ---\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.12/logging/__init__.py", line 1160, in emit\n    stream.write(msg)\n'
        "BrokenPipeError: [Errno 32] Broken pipe\nCall stack:\n"
        "  File \"a.py\", line 1, in <module>\n    main()\nMessage: 'x'\nArguments: ()\n"
        "[2026-01-01 00:00:00] The server is fired up and ready to roll!\n"
    )
    assert traces(text) == []
    assert diagnose(text.encode()).root is None


def test_a_message_ends_where_the_logger_names_another_place() -> None:
    prefix = "(EngineCore pid=7) ERROR 03-02 19:49:00 [{}] {}"
    rows = [
        ("core.py:9", "Traceback (most recent call last):"),
        ("core.py:9", '  File "a.py", line 3, in f'),
        ("core.py:9", "    g()"),
        ("core.py:9", "RuntimeError: first"),
        ("core.py:9", "and its second line"),
        ("multiproc_executor.py:2", "Worker proc VllmWorker-0 died unexpectedly"),
    ]
    (trace,) = traces("\n".join(prefix.format(*row) for row in rows))
    assert trace.message == ["first", "and its second line"]


def test_a_traceback_with_escaped_line_ends_is_read() -> None:
    flat = "2026-03-01T10:00:00Z [2026-03-01 10:00:00 TP1] Scheduler hit an exception: Traceback"
    flat += (
        ' (most recent call last):\\n  File \\"a.py\\", line 3, in f\\n    g()\\nValueError: odd\\n'
    )
    root = diagnose(f"before\n{flat}\nafter\n".encode()).root
    assert root is not None
    assert (root.type, root.message, root.line, root.rank) == ("ValueError", "odd", 3, "TP1")
    assert root.log_line == 2


def test_a_stack_cut_before_its_exception_is_named_from_what_it_raises() -> None:
    whole = BY_ID["sg-4330"].log.decode()
    cut = whole[: whole.index("RuntimeError: Not")]
    found = diagnose(cut.encode())
    assert found.incomplete
    assert found.root is not None
    assert found.root.type == "RuntimeError"


def test_a_stack_cut_before_its_frames_is_no_root() -> None:
    found = diagnose(
        b"[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    )
    assert found.root is None
    assert found.incomplete


def test_a_handled_request_error_does_not_outrank_the_crash() -> None:
    handled = (
        '[2026-05-12 06:00:00] INFO: 1.2.3.4:5 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n'
        "KeyboardInterrupt\n"
    )
    found = diagnose(handled.encode() + BY_ID["page-assert"].log)
    assert found.root is not None
    assert found.root.type == "AssertionError"


def test_lines_are_classified_for_the_log_view() -> None:
    said = {
        "[2026-01-01 00:00:00 TP0] Decode batch, #running-req: 1": LineKind.PLAIN,
        "[2026-01-01 00:00:00 TP1] Scheduler hit an exception: Traceback (most recent call last):": LineKind.TRACEBACK,
        '  File "/x/site-packages/torch/nn/modules/module.py", line 1, in f': LineKind.FRAME_LIBRARY,
        '  File "/x/site-packages/sglang/srt/layers/fp8.py", line 1, in f': LineKind.FRAME_OWN,
        "[rank3]: ValueError: no": LineKind.EXCEPTION,
        "(EngineCore pid=3) ERROR 01-02 03:04:05 [core.py:3] RuntimeError: x": LineKind.EXCEPTION,
        "[2026-01-01 00:00:01] Received sigquit from a child process.": LineKind.FOLLOWS,
        "Capturing batches (bs=8):  12%|#2   | 1/8 [00:36<04:13, 36.23s/it]": LineKind.BAR,
        "WARNING 01-02 03:04:05 [x.py:1] careful": LineKind.WARNING,
        "NVRM: Xid (PCI:0000:01:00): 79, gone": LineKind.ERROR,
        "": LineKind.PLAIN,
    }
    for line, kind in said.items():
        assert classify_line(line) is kind, line


def test_the_rank_of_a_line_is_read_for_its_colour() -> None:
    assert rank_number("[2026-01-01 00:00:00 DP1 TP3 EP3] x") == 3
    assert rank_number("[rank12]: x") == 12
    assert rank_number("(Worker_TP5 pid=3) x") == 5
    assert rank_number("[2026-01-01 00:00:00] x") is None
