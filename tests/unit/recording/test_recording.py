from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from console.errors import ConfigError, Refused, UsageError
from console.history.recording import Recorder
from console.history.replay import Replay
from console.model import Cpu, Host, HostState, HostView, Process, ProcessId, Snapshot
from console.remote import Cursor, LogChunk, LogSource


def process(pid: int, cpu: int = 0, argv: tuple[str, ...] = ("python3",)) -> Process:
    return Process(ProcessId(pid, 1, "boot"), 1, pid, pid, 0, "root", "S", "python3", argv=argv,
                   cpu_ticks=cpu)  # fmt: skip


def view(at: float, *processes: Process, name: str = "gpu1") -> HostView:
    snapshot = Snapshot("boot", at, 0, processes, cpu=Cpu(1.0, 2.0, 4))
    return HostView(Host(name, "x.example"), HostState.OK, seen_at=at, snapshot=snapshot)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def record(path: Path) -> None:
    """A process that comes, works and goes, over two key frames, with a log beside it."""
    clock = Clock()
    recorder = Recorder(path, clock=clock)
    for second in range(130):
        clock.now = 1000.0 + second
        here = [process(1)]
        if 20 <= second < 100:
            here.append(process(77, cpu=second, argv=("serve", "--api-key", "hunter2secret")))
        recorder.view(view(clock.now, *here))
        line = f"line {second} password=hunter2secret\n".encode()
        recorder.log("gpu1", LogSource(path="/l/x.log"), LogChunk(line, Cursor()))
    recorder.close()


def pids(replay: Replay) -> list[int]:
    snapshot = replay.views["gpu1"].snapshot
    assert snapshot is not None
    return sorted(p.id.pid for p in snapshot.processes)


@pytest.fixture(params=["r.jsonl", "r.jsonl.gz"])
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    record(path)
    return path


def test_any_moment_can_be_seen(recording: Path) -> None:
    replay = Replay(recording)
    assert replay.duration == 129.0
    for moment, there in [(5, False), (25, True), (99, True), (101, False), (50, True), (0, False)]:
        replay.seek(moment)
        assert pids(replay) == ([1, 77] if there else [1]), moment
    replay.seek(61.5)
    snapshot = replay.views["gpu1"].snapshot
    assert snapshot is not None
    assert {p.id.pid: p.cpu_ticks for p in snapshot.processes}[77] == 61


def test_secrets_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    record(path)
    assert b"hunter2secret" not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600


def test_frames_between_keys_hold_only_what_changed(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    record(path)
    frames = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    frames = [f for f in frames if "view" in f]
    assert [f["t"] for f in frames if f["key"]] == [0.0, 60.0, 120.0]
    assert frames[10]["processes"] == []
    assert frames[100]["gone"] == [77]


async def test_it_plays_and_the_log_follows(recording: Path) -> None:
    replay = Replay(recording)
    seen: list[HostView] = []
    replay.subscribe(seen.append)
    replay.speed = 1000
    await replay.start()
    got = b""
    async for chunk in replay.tail("gpu1", LogSource(path="/l/x.log")):
        got += chunk.data
        if b"line 129" in got:
            break
    await replay.stop()
    assert replay.position == replay.duration
    assert got.count(b"line ") == 130
    assert len(seen) >= 100


async def test_nothing_can_be_changed(recording: Path) -> None:
    replay = Replay(recording)
    with pytest.raises(Refused, match="recording"):
        await replay.plan("kill", "gpu1")
    with pytest.raises(Refused, match="recording"):
        await replay.run_command("kill-zombies --yes")


def test_a_console_that_died_leaves_a_recording(recording: Path) -> None:
    data = recording.read_bytes()
    recording.write_bytes(data[: len(data) * 2 // 3])
    replay = Replay(recording)
    assert 20 < replay.duration < 129


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no frames"),
        (b"not json\n", "not a recording"),
        (b'{"kind": "other"}\n', "not a recording"),
        (b'{"kind": "specops-recording", "format": 99, "began_at": 0}\n', "newer"),
        (b'{"kind": "specops-recording", "format": 1, "began_at": 0}\nx\n\n', "not a recording"),
        (b"\x1f\x8bgarbage", "damaged"),
    ],
)
def test_what_is_not_a_recording(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=message):
        Replay(path)


def test_an_older_recording_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("mine")
    with pytest.raises(UsageError, match="File exists"):
        Recorder(path)
    assert path.read_text() == "mine"


async def test_logs_pass_through(tmp_path: Path) -> None:
    async def source() -> AsyncIterator[LogChunk]:
        yield LogChunk(b"a\n", Cursor(), gap_bytes=3)

    recorder = Recorder(tmp_path / "r.jsonl")
    tee = recorder.tee("gpu1", LogSource(unit="u.service"), source())
    assert [chunk.data async for chunk in tee] == [b"a\n"]
    recorder.close()
    assert '"gap":3' in (tmp_path / "r.jsonl").read_text()


async def test_a_moment_is_the_same_however_it_was_come_to(tmp_path: Path) -> None:
    """A host that was added later, one that went, processes between key frames."""
    clock = Clock()
    path = tmp_path / "r.jsonl"
    recorder = Recorder(path, clock=clock)
    for second in range(150):
        clock.now = 1000.0 + second
        if second < 90:
            recorder.view(view(clock.now, process(1), *([process(2)] * (second % 7 > 3))))
        if second >= 40:
            recorder.view(view(clock.now, process(5, cpu=second), name="later"))
    recorder.close()
    walked = Replay(path)
    heard: dict[str, HostView] = {}
    walked.subscribe(lambda seen: heard.update({seen.host.name: seen}))
    moments = [0, 149, 39, 40, 39, 100, 89, 62, 61, 60, 3, 140, 20, 0]
    for position in moments:
        walked.seek(position)
        fresh = Replay(path)
        fresh.seek(position)
        assert walked.views == fresh.views, position
        assert heard == dict(walked.views), "who listens is told of every host"
        later = walked.views["later"]
        assert (later.seen_at is None) == (position < 40), "nothing is known before it was seen"
        for known in walked.views.values():
            assert known.seen_at is None or known.seen_at <= walked.now()
