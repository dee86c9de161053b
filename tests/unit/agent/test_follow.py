"""Following a log through chains of rotations, with hostile file times."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from console.agent import follow, rotated
from console.agent.follow import Follower
from tests import scale


class Reading:
    """A follower and what it has said; ``again`` is a lost link and a new agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data, self.gap = b"", 0
        self.follower = Follower(str(path))
        self.follower.begin(None, None)
        self.cursor: dict[str, Any] = self.follower.cursor()

    def step(self) -> None:
        piece = self.follower.step()
        if piece is not None:
            self.data += piece.data
            self.gap += piece.gap
            self.cursor = self.follower.cursor()

    def until(self, end: bytes) -> None:
        for _ in range(3000):
            if self.data.endswith(end):
                return
            self.step()
        raise AssertionError(f"{end!r} never came; the last was {self.data[-80:]!r}")

    def again(self) -> None:
        self.follower.close()
        self.follower = Follower(str(self.path))
        self.follower.begin(self.cursor, None)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "QUIET_S", 0.0)


def numbered(first: int, count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, first + count))


def test_a_copied_log_that_is_renamed_before_what_came_after_it(tmp_path: Path) -> None:
    """Emptied, filled again and rotated away, as was its successor, all between two looks."""
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 10))
    reading = Reading(path)
    reading.until(b"line 9\n")
    shutil.copy(path, tmp_path / "log.1")
    path.write_bytes(numbered(10, 100))
    path.rename(tmp_path / "log.2")
    path.write_bytes(numbered(110, 10))
    path.rename(tmp_path / "log.3")
    path.write_bytes(numbered(120, 10))
    for number, name in enumerate(("log.1", "log.2", "log.3", "log")):
        os.utime(tmp_path / name, ns=(0, 10**18 + number))
    reading.until(b"line 129\n")
    assert reading.data == numbered(0, 130)
    reading.follower.close()


def test_the_last_written_files_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotated, "MOST", 3)
    for number in range(10):
        (tmp_path / f"log.{number}").write_bytes(numbered(number, 1))
        os.utime(tmp_path / f"log.{number}", ns=(0, 10**18 - number))
    files = rotated.beside(str(tmp_path / "log"))
    assert [os.pread(item, 100, 0) for item in files] == [numbered(at, 1) for at in (2, 1, 0)]
    rotated.close(files)


def test_only_a_hole_at_the_beginning_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    hole, rest = b"\0" * 100_000, b"x" * 99 + b"\0" * 40_000 + b"end\n"
    for data, gap in ((hole + b"end\n", len(hole)), (rest, 0)):
        path.write_bytes(data)
        reading = Reading(path)
        reading.until(b"end\n")
        assert reading.data == data[gap:]
        assert reading.gap == gap
        reading.follower.close()


@pytest.mark.parametrize("names", ["rising", "falling"])
@pytest.mark.parametrize("tick", [1, 3], ids=["fine", "coarse"])
def test_many_faults(tmp_path: Path, names: str, tick: int) -> None:
    """Several files last written in one tick of the clock; names that move at each rotation."""
    rng = random.Random(scale.seed())
    path = tmp_path / "log"
    path.touch()
    reading = Reading(path)
    written = clock = kept = 0

    def stamp(file: Path) -> None:
        nonlocal clock
        clock += rng.randrange(tick) == 0
        os.utime(file, ns=(0, 10**18 + clock * 4_000_000))

    def spare() -> Path:
        nonlocal kept
        kept += 1
        if names == "rising":
            return tmp_path / f"log.{20_260_000 + kept}"
        for number in range(min(kept, 250), 0, -1):
            if (tmp_path / f"log.{number}").exists():
                (tmp_path / f"log.{number}").rename(tmp_path / f"log.{number + 1}")
        return tmp_path / "log.1"

    for _ in range(scale.count(1000)):
        amount = rng.randrange(1, 300)
        with path.open("ab") as writer:
            writer.write(numbered(written, amount))
        written += amount
        stamp(path)
        end = b"line %d\n" % (written - 1)
        act = rng.choice(["write", "rename", "copytruncate", "disconnect"])
        if act == "rename":
            path.rename(spare())
            path.touch()
            stamp(path)
        elif act == "copytruncate":
            reading.until(end)  # two of these unseen lose lines
            copy = spare()
            shutil.copy(path, copy)
            stamp(copy)
            path.write_bytes(b"")
            stamp(path)
        elif act == "disconnect":
            reading.again()
        if rng.random() < 0.5:
            reading.until(end)
        for _ in range(rng.randrange(4)):
            reading.step()
    reading.until(b"line %d\n" % (written - 1))
    assert reading.data == numbered(0, written)
    assert reading.gap == 0
    reading.follower.close()
