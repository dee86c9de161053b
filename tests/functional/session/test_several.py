"""Several logs of one server, read from a host as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.logs import several
from console.logs.several import Followers, expand, parts_of, tail, tail_all
from console.model import Phase
from console.remote import HostFileError, LogSource
from console.session import Session
from tests.functional.session.test_tail import Reader


def stamped(second: int, text: str) -> bytes:
    return f"[2026-11-29 05:{second // 60:02}:{second % 60:02}] {text}\n".encode()


def phase_of(one: Followers) -> Phase | None:
    return one.phase


async def test_patterns_name_files_in_the_order_of_their_numbers(
    session: Session, tmp_path: Path
) -> None:
    for rank in (0, 1, 10, 2):
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").touch()
    (tmp_path / ".hidden.log").touch()
    (tmp_path / "main.log").touch()
    found = await expand(session, [f"{tmp_path}/*.log", f"{tmp_path}/*/[0-9]*/stderr.log"])
    assert [path.removeprefix(f"{tmp_path}/") for path in found] == [
        "main.log", *(f"attempt_0/{rank}/stderr.log" for rank in (0, 1, 2, 10))
    ]  # fmt: skip
    assert await expand(session, ["/no/such/*.log"]) == []
    source = LogSource(path=f"{tmp_path}/main.log", also=(f"{tmp_path}/*.log", "/plain.log"))
    assert [part.path for part in await parts_of(session, source)] == [
        f"{tmp_path}/main.log", "/plain.log"
    ]  # fmt: skip


async def test_read_whole_and_by_last_lines(session: Session, tmp_path: Path) -> None:
    for rank in range(3):
        rows = [stamped(rank + 3 * n, f"rank {rank} line {n}") for n in range(2000)]
        (tmp_path / f"rank{rank}.log").write_bytes(b"".join(rows))
    source = LogSource(also=(f"{tmp_path}/rank*.log",))

    async def read(last: int | None) -> list[bytes]:
        chunks = tail(session, source, last_lines=last, follow=False)
        return b"".join([chunk.data async for chunk in chunks]).splitlines()

    whole = await read(None)
    assert len(whole) == 6000
    assert [row.split(b" | ")[0] for row in whole[:6]] == [b"rank0", b"rank1", b"rank2"] * 2
    assert whole == sorted(whole, key=lambda row: row.split(b"[")[1][:19])
    assert await read(5) == whole[-5:]
    nothing = LogSource(path=f"{tmp_path}/no.log", also=(f"{tmp_path}/no*",))
    with pytest.raises(HostFileError):
        _ = [chunk async for chunk in tail(session, nothing, last_lines=None, follow=False)]


async def test_a_file_that_appears_is_followed_too(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several, "LOOK_S", 0.2)
    (tmp_path / "rank0.log").write_bytes(stamped(1, "first"))
    source = LogSource(also=(f"{tmp_path}/rank*.log",))
    reader = Reader(tail_all(lambda: parts_of(session, source), session.tail, follow=True))
    await reader.until(b"first\n")
    (tmp_path / "rank1.log").write_bytes(stamped(2, "second"))
    await reader.until(b"second\n")
    (tmp_path / "rank0.log").rename(tmp_path / "rank0.log.1")
    (tmp_path / "rank0.log").write_bytes(stamped(3, "after rotation"))
    await reader.until(b"after rotation\n")
    await reader.stop()
    assert b"rank1 | " in reader.data
    assert b"rank0.log: log rotated" in reader.data


async def test_phases_and_the_failure_are_read_from_all_of_them(
    session: Session, tmp_path: Path
) -> None:
    own, rank = tmp_path / "k.log", tmp_path / "rank3.log"
    own.write_bytes(
        stamped(1, "server_args=ServerArgs(model_path='/m')")
        + stamped(2, "Init torch distributed begin.")
        + stamped(3, "Load weight begin. avail mem=78.90 GB")
    )
    source = LogSource(path=str(own), also=(f"{tmp_path}/rank*.log",))
    one = Followers(source, "sglang")
    await one.update(session, 1000.0)
    assert phase_of(one) is Phase.LOAD_TARGET
    before = one.stand
    with rank.open("wb") as file:
        file.write(stamped(4, "Scheduler hit an exception: Traceback (most recent call last):"))
        file.write(b'  File "/srv/own.py", line 7, in serve\n    run()\nValueError: no\n')
    one._looked = -several.LOOK_S
    await one.update(session, 1001.0)
    assert phase_of(one) is Phase.FAILED
    assert one.stand != before
    written = await one.written(session)
    assert written.index(b"Load weight begin") < written.index(b"rank3 | ValueError: no")
