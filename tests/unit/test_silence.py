from __future__ import annotations

import pytest

from console.watch.silence import Silence, is_a_look

LOOK = '[2026-11-29 17:{m:02d}:00] INFO:     127.0.0.1:4 - "GET /metrics HTTP/1.1" 200 OK'
WORK = "[2026-11-29 17:{m:02d}:00 TP0] Decode batch, #running-req: 1, #token: 45"


@pytest.mark.parametrize(
    ("text", "look"),
    [
        ('INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable', True),
        ('INFO:     127.0.0.1:1 - "GET /health_generate?x=1 HTTP/1.1" 200 OK', True),
        ('INFO:     127.0.0.1:1 - "GET /v1/models HTTP/1.1" 200 OK', True),
        ("Health check failed. Server couldn't get a response from detokenizer for", True),
        ('INFO:     127.0.0.1:1 - "GET /metrics/ HTTP/1.1" 200 OK', True),
        ('INFO:     10.0.0.9:1 - "GET /get_load HTTP/1.1" 200 OK', True),
        ("Endpoint '/get_server_info' is deprecated and will be removed.", True),
        ("Health check request received during shutdown. Returning 503.", True),
        ("Endpoint 'x' answered", False),
        ('INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK', False),
        ('INFO:     127.0.0.1:1 - "GET /healthy-thing HTTP/1.1" 200 OK', False),
        ("Prefill batch, #new-seq: 1", False),
    ],
)
def test_which_lines_only_record_a_look(text: str, look: bool) -> None:
    assert is_a_look(text) is look


def test_a_watched_hung_server_is_silent() -> None:
    """Work stopped at minute 3; whoever watches has gone on to fill the log until minute 11."""
    silence = Silence()
    for minute in range(12):
        silence.take((WORK if minute <= 3 else LOOK).format(m=minute), now=1000.0)
    assert silence.seconds(1002.0, grew_at=1000.0) == 8 * 60 + 2


def test_work_breaks_the_silence() -> None:
    silence = Silence()
    silence.take(LOOK.format(m=0), 10.0)
    silence.take(WORK.format(m=5), 300.0)
    assert silence.seconds(301.0, grew_at=300.0) == 1.0


def test_a_log_without_stamps_is_as_old_as_its_last_change() -> None:
    silence = Silence()
    silence.take("loading", 10.0)
    assert silence.seconds(100.0, grew_at=40.0) == 60.0


def test_a_journal_has_no_time_of_change() -> None:
    silence = Silence()
    assert silence.seconds(5.0, None) is None
    silence.take(WORK.format(m=1), 10.0)
    silence.take(LOOK.format(m=2), 60.0)
    # A minute between the two lines by their own stamps, and the later one was read 10 s ago.
    assert silence.seconds(70.0, None) == 70.0


def test_a_journal_read_for_the_first_time_is_as_silent_as_its_stamps_say() -> None:
    silence = Silence()
    for minute in range(9):
        silence.take((WORK if minute < 1 else LOOK).format(m=minute), now=5000.0)
    assert silence.seconds(5000.0, None) == 8 * 60


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
@pytest.mark.parametrize("line", [WORK, "without a stamp, minute {m}"])
def test_a_clock_that_was_set_silences_no_log_that_grows(jump: float, line: str) -> None:
    """``now`` is counted on from the first look; the file's own times go with the host's clock."""
    silence = Silence()
    silence.take(line.format(m=0), 1000.0)
    assert silence.seconds(1000.0, grew_at=1000.0) == 0.0
    for minute in range(1, 5):
        now = 1000.0 + 60 * minute
        silence.take(line.format(m=minute), now)
        assert silence.seconds(now + 1.0, grew_at=now + jump) == 1.0
    # It stops to grow: that is seen as well.
    assert silence.seconds(1000.0 + 60 * 4 + 300.0, grew_at=1000.0 + 60 * 4 + jump) == 300.0
