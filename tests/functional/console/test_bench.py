"""Measurements: asked before, seen while they run, kept, drawn beside those of other presets."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from console.app import SpecopsApp
from console.planning import measuring
from console.planning.measuring import Load
from console.screens.bench import BenchScreen
from console.screens.bench_dialog import BenchDialog, expected_s
from tests.functional.console import fake
from tests.functional.console.steps import seen, settle, show, text, wait_for
from tests.functional.console.test_walk import nothing_overflows
from widgets.bars import number

LOAD = Load((1, 8, 32), 4, 128)


def keep(preset: str, factor: float, *, server: str = "k26", accept: float | None = 2.4) -> None:
    """One measurement in the history."""
    found = [fake.level(count, factor * 100 * count, accept) for count in LOAD.concurrency]
    ran = {"server": server, "run_id": "7d10", "speculative": preset, "nccl": "default"}
    measuring.keep("dflash", ran, found, LOAD)
    time.sleep(0.002)  # the history is told apart by time


async def opened(pilot: Pilot[None], app: SpecopsApp) -> Any:
    await settle(pilot)
    await pilot.press(*"jjj", "b")
    await wait_for(pilot, lambda: isinstance(app.screen, BenchScreen), "the screen")
    await wait_for(pilot, lambda: "reading" not in text(app), "the history")
    return app.screen


async def test_the_accept_length_of_every_load_is_drawn_where_there_is_room() -> None:
    keep("eagle3-3step", 1.0)
    app, _, _ = fake.app()
    async with app.run_test(size=(100, 40)) as pilot:
        await opened(pilot, app)
        rows = text(app).split("ACCEPT LENGTH", 1)[1].splitlines()[1:4]
        assert [row.split()[0] for row in rows] == ["1", "8", "32"]
        assert all("2.40" in row for row in rows)
        await pilot.resize_terminal(80, 15)
        await wait_for(pilot, lambda: "ACCEPT LENGTH, highest load" in text(app), "one bar")
        assert "more below" not in text(app)


async def test_a_low_window_leaves_out_presets_never_a_load() -> None:
    for preset in ("autoregressive", "eagle3-1step", "eagle3-2step", "eagle3-3step"):
        keep(preset, 1.0)
    app, _, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        rows = text(app).split("TOKENS/S", 1)[1].splitlines()
        loads = [row.split()[0] for row in rows if row[:5].strip().isdigit()]
        assert loads[:3] == ["1", "8", "32"]
        assert "1 more in a higher window" in text(app)
        await pilot.resize_terminal(80, 50)
        await wait_for(pilot, lambda: "higher window" not in text(app), "all of them")
        assert "◇" in text(app)


async def test_the_figures_of_a_row_are_of_one_load_and_it_is_named() -> None:
    keep("eagle3-3step", 1.0)
    app, _, _ = fake.app()
    async with app.run_test(size=(120, 30)) as pilot:
        screen = await opened(pilot, app)
        (one,) = screen.all_rows()
        top = max(one.levels, key=lambda level: level.tokens_per_s)
        row = next(r for r in text(app).splitlines() if "eagle3-3step" in r and " of " in r)
        assert f"{top.concurrency} of 1,8,32" in row
        assert number(top.tokens_per_s) in row
        assert number(top.ttft_s[50] * 1000) in row.split(number(top.tokens_per_s), 1)[1]


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (200, 50)])
async def test_plots_compare_with_every_other_preset(size: tuple[int, int]) -> None:
    keep("eagle3-1step", 0.5, accept=1.7)
    keep("other", 9.0, server="another")
    keep("eagle3-3step", 0.9)
    keep("eagle3-3step", 1.0)
    app, _, _ = fake.app()
    async with app.run_test(size=size) as pilot:
        await opened(pilot, app)
        shown = text(app)
        nothing_overflows(app, f"bench at {size}")
        assert "● eagle3-3step" in shown
        assert "○ eagle3-1step" in shown, "signs tell them apart, not colours alone"
        assert "◆" not in shown, "the newest of each other preset, not each measurement"
        assert "other" not in shown, "of this server only"
        rows = shown.split("TOKENS/S", 1)[1].splitlines()
        longest, shorter = rows[5].split("●")[1], rows[6].split("○")[1]
        assert "3 200" in longest
        assert "1 600" in shorter
        assert longest.count("█") > shorter.count("█") > 0
        assert "1 600 / 3 200" in rows[5], "the first token beside it"
        assert "2.40" in shown
        assert "1.70" in shown
        over_time = shown.split("OVER TIME, tokens/s", 1)[1].splitlines()[1:4]
        assert [row[size[0] // 2 :].split()[0] for row in over_time] == ["1", "8", "32"]
        await pilot.press("j", "j", "space")  # the oldest marked: it alone is compared with
        await pilot.press("g")
        await pilot.pause()
        assert "○ eagle3-1step" in text(app)
        await pilot.press("backslash", "j", "space", "g")
        await pilot.pause()
        assert "○ eagle3-3step" in text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert "TTFT99" in text(app)


async def test_y_measures_and_enter_does_not() -> None:
    app, _, actions = fake.app()
    actions.go_on.clear()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, app)
        assert "nothing measured yet" in text(app)
        await pilot.press("b", "enter")
        await pilot.pause()
        assert app.screen is screen
        assert actions.benched == []
        await pilot.press("b")
        await seen(pilot, BenchDialog)
        assert "3 requests are running now" in text(app), "others feel it, so it is said"
        assert "164 requests of 128 tokens, time unknown" in text(app)
        await pilot.press("k", "y")
        await wait_for(pilot, lambda: "level 1 of 2" in text(app), "under way")
        actions.go_on.set()
        await wait_for(pilot, lambda: "up to 800 tokens/s" in text(app), "the end is said")
    assert actions.benched == [("k26", Load((1, 8), 2, 64))]


async def test_a_measurement_goes_on_elsewhere_and_can_be_ended() -> None:
    app, _, actions = fake.app()
    actions.go_on.clear()
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, app)
        await pilot.press("b", "y")
        await wait_for(pilot, lambda: bool(app.benching.running), "under way")
        await pilot.press("escape")
        show(app)
        assert app.benching.running
        await pilot.press("b")
        await pilot.pause()
        await pilot.press("b")
        assert "a measurement is running" in text(app)
        await pilot.press("j", "enter")
        await wait_for(pilot, lambda: not app.benching.running, "ended")
        assert "ended before its end" in text(app)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("bench k26", "nothing measured yet"),
        ("bench k26 --concurrency 2,4 --tokens 64", "yours  2,4"),
        ("bench k26 --concurrency x", "is no list of numbers"),
        ("bench k26 --requests 0", "1 to 1000 requests"),
        ("bench nobody", "no server 'nobody'"),
        ("bench k26 --against eagle3-tree", "specops bench k26 --against eagle3-tree, in a shell"),
    ],
)
async def test_the_command_asks_the_same(line: str, shown: str) -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("colon")
        app.screen.query_one("Prompt").value = line  # type: ignore[attr-defined]
        await pilot.press("enter")
        await wait_for(pilot, lambda: shown in text(app), shown)
    assert actions.benched == []


async def test_one_that_does_not_serve_is_not_asked() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("b")
        await pilot.pause()
        await pilot.press("b")
        assert "kimi-k25 does not serve now" in text(app)
    assert actions.benched == []


async def test_a_failed_measurement_is_said() -> None:
    app, _, actions = fake.app()
    actions.bench_error = "no completion: HTTP 500"
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, app)
        await pilot.press("b", "y")
        await wait_for(pilot, lambda: "no completion: HTTP 500" in text(app), "the reason")
        await asyncio.sleep(0)
        assert not app.benching.running


def test_the_expected_time_needs_every_level() -> None:
    keep("a", 1.0)
    known = measuring.history("dflash", "k26")
    assert expected_s(LOAD, known) == pytest.approx(3 * 4 * 128 / 100)
    assert expected_s(replace(LOAD, concurrency=(1, 64)), known) is None
    assert expected_s(LOAD, ()) is None
