"""A recording in the console: it plays, stops, goes back and forth, and nothing can be changed."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.app import SpecopsApp
from console.cli.terminal import bundled_recording
from console.config import Config
from console.history.recording import Recorder
from console.history.replay import Replay
from console.keys import REPLAY, TABLE
from console.model import Cpu, Health, Host, HostState, HostView, Phase, ServerState, Snapshot
from console.remote import Cursor, LogChunk, LogSource
from console.screens.opening import Prepared
from tests.functional.console.fake import run_of
from widgets.words import server_word

BEGAN = 1_790_000_000.0


@pytest.fixture
def played(tmp_path: Path) -> Replay:
    """A minute of one server that gets ready after half of it, and its log."""
    clock = [BEGAN]
    path = tmp_path / "night.jsonl.gz"
    recorder = Recorder(path, clock=lambda: clock[0])
    run = replace(run_of("pair", "gpu1", "r1"), log="/var/log/pair.log", launched_at=BEGAN)
    at = 0
    for second in range(61):
        clock[0] = BEGAN + second
        phase, health = (
            (Phase.READY, Health.OK) if second >= 30 else (Phase.LOAD_TARGET, Health.NONE)
        )
        state = ServerState("pair", phase, health, 77, 30000, "r1")
        snapshot = Snapshot("boot", clock[0], 0, (), cpu=Cpu(1.0, 2.0, 4))
        recorder.view(
            HostView(Host("gpu1", "x.example"), HostState.OK, seen_at=clock[0],
                     snapshot=snapshot, servers=(state,), runs=(run,))
        )  # fmt: skip
        text = f"line of second {second}\n".encode()
        at += len(text)
        recorder.log("gpu1", LogSource(path="/var/log/pair.log"),
                     LogChunk(text, Cursor(offset=at)))  # fmt: skip
    recorder.close()
    return Replay(path)


def shown(app: SpecopsApp) -> str:
    """The whole screen as text."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(part.text for part in strip) for strip in lines)


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, shown(pilot.app)  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        await pilot.pause()


def console(played: Replay) -> SpecopsApp:
    async def opener(_prompts: object) -> tuple[Replay, Replay]:
        return played, played

    config = Config(played.path, played.hosts(), {})
    return SpecopsApp(lambda: Prepared(config, opener, played), read_only=True, label="REPLAY")


async def test_pause_seek_and_speed(played: Replay) -> None:
    app = console(played)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "load_target" in shown(app))
        assert "REPLAY 0:0" in shown(app)
        await pilot.press("space")
        assert played.paused
        where = played.position
        await pilot.press("right", "right", "right")
        assert played.position == pytest.approx(where + 30)
        await until(pilot, lambda: "ready" in shown(app))
        await until(pilot, lambda: "line of second 30" in shown(app))
        assert "STALE" not in shown(app)
        await pilot.press("left", "left")
        await until(pilot, lambda: "load_target" in shown(app))
        await until(pilot, lambda: "line of second 30" not in shown(app))
        await pilot.press("greater_than_sign", "greater_than_sign", "less_than_sign")
        assert played.speed == 2.0
        await until(pilot, lambda: "‖ 2x" in shown(app))
        await pilot.press("l")
        await until(pilot, lambda: "FOLLOW" in shown(app) and "line of second 9" in shown(app))


async def test_seeking_by_word_and_far_and_nothing_of_later_stays(tmp_path: Path) -> None:
    clock, path = [BEGAN], tmp_path / "long.jsonl"
    recorder = Recorder(path, clock=lambda: clock[0])
    run = replace(run_of("pair", "gpu1", "r1"), log="/var/log/pair.log", launched_at=BEGAN + 900)
    for second in range(0, 1801, 5):
        clock[0] = BEGAN + second
        there = second >= 900
        states = (ServerState("pair", Phase.READY, Health.OK, 77, 30000, "r1"),) if there else ()
        snapshot = Snapshot("boot", clock[0], 0, (), cpu=Cpu(1.0, 2.0, 4))
        recorder.view(HostView(Host("gpu1", "x.example"), HostState.OK, seen_at=clock[0],
                               snapshot=snapshot, servers=states,
                               runs=(run,) if there else ()))  # fmt: skip
        if there:
            recorder.log("gpu1", LogSource(path="/var/log/pair.log"),
                         LogChunk(f"line of second {second}\n".encode(), Cursor()))  # fmt: skip
    recorder.close()
    played = Replay(path)
    app = console(played)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "gpu1" in shown(app))
        await pilot.press("space", "right_curly_bracket", "right_curly_bracket")
        assert played.position == pytest.approx(1200, abs=30)
        await until(pilot, lambda: "line of second 1195" in shown(app))
        assert "pair" in shown(app)
        await pilot.press("left_curly_bracket")
        await until(pilot, lambda: "line of second" not in shown(app))
        assert "pair" not in shown(app)
        await pilot.press(*":seek 25:00", "enter")
        await until(pilot, lambda: "25:00 of 30:00" in shown(app))
        await until(pilot, lambda: "line of second 1500" in shown(app))
        await pilot.press(*":seek -20:00", "enter")
        await until(pilot, lambda: "5:00 of 30:00" in shown(app))
        at = time.strftime("%H:%M:%S", time.localtime(BEGAN + 1000))
        await pilot.press(*f":seek @{at}", "enter")
        await until(pilot, lambda: at in shown(app) and "16:40 of 30:00" in shown(app))
        await pilot.press(*":seek soon", "enter")
        await until(pilot, lambda: "'soon' is no moment" in shown(app))
        assert played.position == pytest.approx(1000, abs=1)


async def test_ages_are_those_of_the_recording(played: Replay) -> None:
    app = console(played)
    async with app.run_test(size=(100, 30)) as pilot:
        played.pause(True)
        played.seek(45.5)
        await until(pilot, lambda: "ready" in shown(app))
        assert app.now() == BEGAN + 45.5
        await asyncio.sleep(1.2)
        view = app.views["gpu1"]
        assert view.age_s(app.now()) == pytest.approx(0.5)


async def test_nothing_dangerous_is_there(played: Replay) -> None:
    app = console(played)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "pair" in shown(app))
        assert not any(action.dangerous for action in app.keys.table)
        assert set(REPLAY) <= set(app.keys.table)
        for action in TABLE:
            if action.dangerous:
                assert not app.keys.has(action.id)
        app.propose("stop", "gpu1", "pair")
        await until(pilot, lambda: "read-only" in shown(app))


def test_the_shipped_recording_shows_a_start_and_a_zombie_and_tells_nothing_else() -> None:
    path = bundled_recording()
    text = gzip.decompress(path.read_bytes()).decode()
    assert not [word for word in ("/work", "/tmp", "/root", "/home") if word in text]
    assert path.stat().st_size < 64 * 1024
    demo = Replay(path)
    words = []
    for second in range(int(demo.duration) + 1):
        demo.seek(second)
        view = demo.views["demo"]
        words += [server_word(view, state).text.split()[0] for state in view.servers]
    for word in ("ready", "ORPHAN", "stopped"):
        assert word in words
    assert words.index("ready") < words.index("ORPHAN")
