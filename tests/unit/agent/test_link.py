"""What goes first, and how much may be under way."""

from __future__ import annotations

import os
import threading

import pytest

from console.agent import wire
from console.agent.link import MAX_WINDOW, MIN_WINDOW, Cancelled, Link, Window


def test_window_grows_on_a_quick_link_and_shrinks_on_a_slow_one() -> None:
    window = Window()
    now = 0.0
    for _ in range(100):
        window.sent(wire.CHUNK, now)
        now += 0.01
        window.received(wire.CHUNK, now)
    assert window.limit == MAX_WINDOW
    assert window.piece == wire.PIECE
    for _ in range(100):
        window.sent(wire.CHUNK, now)
        now += 2.0
        window.received(wire.CHUNK, now)
    assert window.limit == MIN_WINDOW
    assert window.piece == wire.CHUNK
    assert window.under_way == 0


def test_window_counts_partial_receipts() -> None:
    window = Window()
    window.sent(1000, 0.0)
    window.received(400, 0.1)
    assert window.under_way == 600
    window.received(5000, 0.2)  # more than was sent: counted no further
    assert window.under_way == 0


def frames_of(link: Link, reader: int, writer: int) -> list[tuple[int, str, int]]:
    thread = threading.Thread(target=link.write_forever, daemon=True)
    thread.start()
    found: list[tuple[int, str, int]] = []
    with os.fdopen(reader, "rb") as source:
        while not found or found[-1][1] != "last":
            header = wire.parse_header(source.readline())
            source.read(header.length)
            found.append((header.id, header.stream, header.length))
    os.close(writer)
    return found


def test_control_goes_before_bulk() -> None:
    reader, writer = os.pipe()
    link = Link(writer)
    never = threading.Event()
    link.bulk(1, "data", b"x" * wire.CHUNK, None, never)
    link.bulk(1, "data", b"x" * wire.CHUNK, None, never)
    link.control(2, "reply", b"{}")
    link.bulk(1, "last", b"", None, never)
    assert [item[1] for item in frames_of(link, reader, writer)] == [
        "reply",
        "data",
        "data",
        "last",
    ]


def test_a_stream_without_credit_waits_until_it_is_cancelled() -> None:
    link = Link(-1)
    cancelled = threading.Event()
    link.bulk(1, "data", b"x" * MIN_WINDOW, None, cancelled)
    threading.Timer(0.05, cancelled.set).start()
    with pytest.raises(Cancelled):
        link.bulk(1, "data", b"x", None, cancelled)


def test_receipt_and_credit_are_both_needed() -> None:
    link = Link(-1)
    never = threading.Event()
    for _ in range(wire.STREAM_CREDIT // wire.CHUNK):
        link.bulk(1, "data", b"x" * wire.CHUNK, None, never)
        link.received(wire.CHUNK)
    sent = threading.Event()

    def send() -> None:
        link.bulk(1, "data", b"x" * wire.CHUNK, None, never)
        sent.set()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    assert not sent.wait(0.05)
    link.credit(1, wire.CHUNK)
    assert sent.wait(5)
    thread.join(5)
