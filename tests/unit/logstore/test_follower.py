"""What a follower passes over of a busy log changes nothing of what it says of the server."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from console.logs import follower as module
from console.logs.follower import LogFollower
from console.model import Phase
from console.remote import Cursor, FileStat, LogChunk, LogSource
from tests import scale

READY = b"""\
[2026-11-29 05:49:02] server_args=ServerArgs(model_path='/m')
[2026-11-29 05:49:08 TP0] Init torch distributed begin.
[2026-11-29 05:49:12 TP0] Load weight begin. avail mem=78.90 GB
[2026-11-29 05:55:12] The server is fired up and ready to roll!
"""
BUSY = (
    b"[2026-11-29 05:56:01 TP0] Decode batch. #running-req: 8, accept len: 2.41",
    b"[2026-11-29 05:56:02 TP0] Prefill batch, #new-seq: 1, #new-token: 512",
    b'[2026-11-29 05:56:03] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
    b'[2026-11-29 05:56:04] INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK',
    b"a line of nobody",
)
ENDS = (
    b"[2026-11-29 06:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    b"[2026-11-29 06:00:01] Received sigquit from a child process.",
    b"[2026-11-29 06:00:02] SIGTERM received. Draining requests and shutting down...",
    b"[2026-11-29 06:00:03] server_args=ServerArgs(model_path='/m')",
)


def told(data: bytes, sizes: list[int]) -> tuple[object, ...]:
    """What a follower says after it was fed in pieces."""
    one = LogFollower(LogSource(path="/x"), "sglang")
    at = 0
    for turn in range(len(data)):
        step = sizes[turn % len(sizes)]
        one._feed(data[at : at + step], 1000.0)
        at += step
        if at >= len(data):
            break
    machine = one.machine
    return (machine.phase, machine.spans, machine.starts, machine.failed_in,
            machine._number, one._silence.seconds(1000.0, 900.0))  # fmt: skip


@pytest.mark.parametrize("end", [b"", *ENDS])
def test_a_busy_log_read_in_any_pieces(end: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(scale.seed())
    for _ in range(40):
        rows = [rng.choice(BUSY) for _ in range(rng.randrange(1, 60))]
        rows.insert(rng.randrange(len(rows) + 1), end)
        data = READY + b"\n".join(rows) + b"\n"
        sizes = [rng.randrange(20, 900) for _ in range(rng.randrange(1, 4))]
        quick = told(data, sizes)
        with monkeypatch.context() as patched:
            patched.setattr(module, "ENDS", (b"\n",))  # every piece may end it: nothing is left out
            assert told(data, sizes) == quick


class Host:
    """A host with one log file; counts the bytes that it sends."""

    def __init__(self) -> None:
        self.log = b""
        self.sent = 0

    async def stat(self, paths: list[str]) -> list[FileStat]:
        return [FileStat(path=paths[0], kind="file", size_bytes=len(self.log), mtime=1000.0)]

    async def tail(
        self, source: LogSource, *, cursor: Cursor | None, last_lines: int | None, follow: bool
    ) -> AsyncIterator[LogChunk]:
        assert not follow
        data = self.log[cursor.offset if cursor else 0 :]
        if last_lines is not None:
            data = b"".join(data.splitlines(keepends=True)[-last_lines:])
        self.sent += len(data)
        yield LogChunk(data, Cursor(offset=len(self.log)))


async def test_a_server_that_floods_its_log_is_read_at_its_end() -> None:
    host, one = Host(), LogFollower(LogSource(path="/x"), "sglang")
    host.log = READY
    await one.update(host, 1000.0)  # type: ignore[arg-type]
    for _ in range(3):
        host.log += b"\n".join(BUSY * 20_000) + b"\n"
        before = host.sent
        await one.update(host, 1000.0)  # type: ignore[arg-type]
        assert host.sent - before < module.BEHIND_BYTES
        assert one.phase is Phase.READY
    host.log += b"\n".join(BUSY * 20_000) + b"\n" + ENDS[0] + b"\n" + ENDS[1] + b"\n"
    await one.update(host, 1000.0)  # type: ignore[arg-type]
    assert str(one.phase) == "failed"
    begun = len(host.log)
    host.log += READY + b"\n".join(BUSY * 20_000) + b"\n"
    before = host.sent
    await one.update(host, 1000.0)  # type: ignore[arg-type]
    assert host.sent - before == len(host.log) - begun  # one that starts is read whole
    assert str(one.phase) == "ready"
