"""Following logs through what happens to logs: nothing lost but what is counted, nothing twice."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from console.errors import ActionFailed
from console.remote import Cursor, HostFileError, LogChunk, LogSource
from console.session import Headless, Session, connect
from tests import scale
from tests.functional.session.conftest import LOCAL


class Reader:
    """Reads a tail in the background and keeps what came."""

    def __init__(
        self, chunks: AsyncIterator[LogChunk], before: bytes = b"", cursor: Cursor | None = None
    ) -> None:
        self.data = before
        self.events: list[str] = []
        self.gap = 0
        self.cursor = cursor
        self._chunks = chunks
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for chunk in self._chunks:
            self.data += chunk.data
            self.gap += chunk.gap_bytes
            self.cursor = chunk.cursor
            if chunk.event:
                self.events.append(chunk.event)

    async def until(self, end: bytes) -> None:
        for _ in range(400):
            if self.data.endswith(end):
                return
            assert not self._task.done() or self._task.exception() is None, self._task.exception()
            await asyncio.sleep(0.025)
        raise AssertionError(f"{end!r} never came; the last was {self.data[-80:]!r} {self.events}")

    async def begun(self) -> None:
        """Wait until the agent has said where it reads."""
        for _ in range(400):
            if self.cursor is not None:
                return
            await asyncio.sleep(0.025)
        raise AssertionError("no place was ever told")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def numbered(first: int, count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, first + count))


async def test_from_start_last_lines_and_cursor(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 20_000))
    source = LogSource(path=str(path))

    async def read(**how: object) -> tuple[bytes, Cursor]:
        chunks = [chunk async for chunk in session.tail(source, follow=False, **how)]  # type: ignore[arg-type]
        return b"".join(chunk.data for chunk in chunks), chunks[-1].cursor

    data, cursor = await read()
    assert data == numbered(0, 20_000)
    assert (await read(last_lines=3))[0] == numbered(19_997, 3)
    with path.open("ab") as more:
        more.write(numbered(20_000, 5) + b"half")
    data, cursor = await read(cursor=cursor)
    assert data == numbered(20_000, 5) + b"half"
    assert (await read(last_lines=2))[0] == numbered(20_004, 1) + b"half"
    assert [chunk async for chunk in session.tail(source, follow=False, cursor=cursor)] == []


async def test_a_missing_log(session: Session, tmp_path: Path) -> None:
    source = LogSource(path=str(tmp_path / "log"))
    with pytest.raises(HostFileError) as caught:
        await anext(session.tail(source, follow=False))
    assert caught.value.missing
    reader = Reader(session.tail(source))
    await asyncio.sleep(0.3)
    assert reader.events == ["missing"]
    (tmp_path / "log").write_bytes(b"at last\n")
    await reader.until(b"at last\n")
    await reader.stop()


@pytest.mark.parametrize("what", ["rename", "copytruncate", "truncate", "refill", "recreate"])
async def test_rotation(session: Session, tmp_path: Path, what: str) -> None:
    path, old = tmp_path / "log", tmp_path / "log.1"
    path.write_bytes(numbered(0, 100))
    reader = Reader(session.tail(LogSource(path=str(path))))
    await reader.until(b"line 99\n")
    if what == "rename":
        writer = path.open("ab")
        path.rename(old)
        path.write_bytes(numbered(110, 10))
        writer.write(numbered(100, 10))  # the writer has not noticed yet
        writer.close()
    elif what == "copytruncate":
        with path.open("ab") as writer:
            writer.write(numbered(100, 10))
            writer.flush()
            shutil.copy(path, old)
            writer.truncate(0)
            writer.write(numbered(110, 10))
    elif what == "truncate":
        path.write_bytes(numbered(100, 20))
    elif what == "refill":
        path.write_bytes(b"another head\n" + numbered(100, 400))
        await reader.until(b"line 499\n")
        assert reader.data == numbered(0, 100) + b"another head\n" + numbered(100, 400)
        assert reader.events == ["refilled"]
        await reader.stop()
        return
    else:
        path.unlink()
        path.write_bytes(numbered(100, 20))
    await reader.until(b"line 119\n")
    assert reader.data == numbered(0, 120)
    assert reader.gap == 0
    assert reader.events, "what happened is said"
    await reader.stop()


@pytest.mark.parametrize("what", ["nothing", "rename", "recreate", "refill", "truncate"])
async def test_resume_after_a_disconnect(session: Session, tmp_path: Path, what: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 100))
    first = Reader(session.tail(LogSource(path=str(path))))
    await first.until(b"line 99\n")
    await first.stop()
    expected = numbered(100, 20)
    with path.open("ab") as writer:
        writer.write(numbered(100, 10))
    if what == "rename":
        path.rename(tmp_path / "log.1")
        path.write_bytes(numbered(110, 10))
    elif what == "recreate":
        path.unlink()
        path.write_bytes(b"new\n" + numbered(110, 10))
        expected = b"new\n" + numbered(110, 10)
    elif what == "refill":
        expected = b"other\n" + numbered(0, 500) + numbered(119, 1)
        path.write_bytes(expected)
    elif what == "truncate":
        expected = b"short\nline 119\n"
        path.write_bytes(expected)
    else:
        with path.open("ab") as writer:
            writer.write(numbered(110, 10))
    later = await connect(LOCAL, hosts={}, prompts=Headless())
    second = Reader(later.tail(LogSource(path=str(path)), cursor=first.cursor))
    await second.until(b"line 119\n")
    assert second.data == expected
    await second.stop()
    await later.close()


async def test_chaos_loses_and_repeats_nothing(session: Session, tmp_path: Path) -> None:
    """Rotations, copies, disconnects at random; every number arrives once, in order."""
    rng = random.Random(scale.seed())
    path = tmp_path / "log"
    path.touch()
    reader = Reader(session.tail(LogSource(path=str(path))))
    await reader.begun()  # what is rotated away before it begins is not asked for
    written = 0
    for rotation in range(scale.count(1000)):
        amount = rng.randrange(1, 300)
        with path.open("ab") as writer:
            writer.write(numbered(written, amount))
        written += amount
        act = rng.choice(["write", "write", "rename", "copytruncate", "disconnect"])
        if act == "rename":
            path.rename(tmp_path / f"log.{10_000 + rotation}")
            path.touch()
        elif act == "copytruncate":
            await reader.until(b"line %d\n" % (written - 1))  # two of these unseen lose lines
            shutil.copy(path, tmp_path / f"log.{10_000 + rotation}")
            path.write_bytes(b"")
        elif act == "disconnect":
            await reader.stop()
            chunks = session.tail(LogSource(path=str(path)), cursor=reader.cursor)
            reader = Reader(chunks, reader.data, reader.cursor)
        if rng.random() < 0.7:
            await reader.until(b"line %d\n" % (written - 1))
    await reader.until(b"line %d\n" % (written - 1))
    await reader.stop()
    assert reader.data == numbered(0, written)
    assert reader.gap == 0


async def test_a_slow_reader_gets_a_counted_gap(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    line = b"x" * 1023 + b"\n"
    chunks = session.tail(LogSource(path=str(path)))
    total = 0
    with path.open("ab") as writer:
        writer.write(line)
        writer.flush()
        first = await anext(chunks)
        total += len(first.data)
        for _ in range(16):  # 16 MiB that nobody reads
            writer.write(line * 1024)
            writer.flush()
            await asyncio.sleep(0.01)
        writer.write(b"end\n")
    gap = 0
    async for chunk in chunks:
        total += len(chunk.data)
        gap += chunk.gap_bytes
        if chunk.data.endswith(b"end\n"):
            break
    assert gap > 0
    assert total + gap == path.stat().st_size


SHIM = """#!/usr/bin/env python3
import os, sys, time
words, path = sys.argv[1:], os.environ["SHIM_LOG"]
if words[-1] != "server":
    sys.exit("Error response from daemon: No such container: " + words[-1])
since = next((w[8:] for w in words if w.startswith("--since=")), "")
tail = next((int(w[7:]) for w in words if w.startswith("--tail=")), None)
with open(path) as log:
    lines = [line for line in log if line.split(" ", 1)[0] >= since]
    sys.stdout.write("".join(lines if tail is None else lines[len(lines) - tail:]))
    sys.stdout.flush()
    while "--follow" in words and not os.path.exists(path + ".stopped"):
        sys.stdout.write(log.read())
        sys.stdout.flush()
        time.sleep(0.02)
"""


async def test_a_containers_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program that answers as docker does: stamps before lines, --since with its moment."""
    log, stopped = tmp_path / "log", tmp_path / "log.stopped"
    shim = tmp_path / "docker"
    shim.write_text(SHIM)
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SHIM_LOG", str(log))

    def write(first: int, count: int) -> None:
        with log.open("a") as file:
            for number in range(first, first + count):  # three lines of each moment
                file.write(f"2026-11-29T05:00:{number // 3:02}.123456789Z line {number}\n")

    write(0, 10)
    session = await connect(LOCAL, hosts={}, prompts=Headless())
    source = LogSource(container="server")
    try:
        chunks = [chunk async for chunk in session.tail(source, last_lines=2, follow=False)]
        assert b"".join(chunk.data for chunk in chunks) == numbered(8, 2)
        reader = Reader(session.tail(source))
        await reader.until(b"line 9\n")
        write(10, 1)
        await reader.until(b"line 10\n")
        await reader.stop()
        write(11, 4)  # while nobody was there, of a moment that was seen in part
        again = Reader(session.tail(source, cursor=reader.cursor), reader.data, reader.cursor)
        await again.until(b"line 14\n")
        assert again.data == numbered(0, 15)
        stopped.touch()  # it ends with its container, and says so by ending
        async with asyncio.timeout(20):
            await asyncio.wait([again._task])
        assert again._task.exception() is None
        with pytest.raises(HostFileError, match="No such container: gone") as caught:
            await anext(session.tail(LogSource(container="gone")))
        assert caught.value.missing
    finally:
        await session.close()


async def test_bytes_arrive_as_they_are(session: Session, tmp_path: Path) -> None:
    rng = random.Random(scale.seed())
    data = rng.randbytes(300_000) + b"\xff\xfe\x00\r\n" + b"y" * 2_000_000
    path = tmp_path / "log"
    path.write_bytes(b"a" + data)
    parts = [chunk.data async for chunk in session.tail(LogSource(path=str(path)), follow=False)]
    assert b"".join(parts) == b"a" + data


async def test_grep(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [b"line %d of nothing" % number for number in range(50_000)]
    for number in (7, 25_000, 49_999):
        lines[number] = b"Error: \xff here %d" % number
    path.write_bytes(b"\n".join(lines))
    source = LogSource(path=str(path))
    data = path.read_bytes()
    for pattern in ("^error: .* \\d+$", "ERROR"):
        found = [item async for item in session.grep(source, pattern, ignore_case=True)]
        assert [line for _, line in found] == [lines[7], lines[25_000], lines[49_999]]
        assert all(data[offset : offset + len(line)] == line for offset, line in found)
    words = [item async for item in session.grep(source, ("Error", "line 9 "))]
    assert [line for _, line in words] == [lines[7], lines[9], lines[25_000], lines[49_999]]
    assert all(data[offset : offset + len(line)] == line for offset, line in words)
    newest = [item async for item in session.grep(source, "of", max_lines=3, newest=True)]
    assert [line for _, line in newest] == lines[49_996:49_999]
    for word, alike in (
        ("here", "h[e]re"),
        ("\udcff here", "\udcff h[e]re"),
        ("line 9 ", "line 9[ ]"),
    ):
        by_grep = [item async for item in session.grep(source, word)]
        assert by_grep == [item async for item in session.grep(source, alike)] != []
    few = [item async for item in session.grep(source, "nothing", max_lines=450)]
    assert [line for _, line in few] == [line for line in lines if b"nothing" in line][:450]
    with pytest.raises(ActionFailed, match="not a regular expression"):
        await anext(session.grep(source, "(unclosed"))
    with pytest.raises(ActionFailed, match="No such file"):
        await anext(session.grep(LogSource(path="/no/such/log"), "x"))
