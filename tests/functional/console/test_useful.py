"""The key bar shows what has something to act on: its few places are not spent on the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.model import Change, Phase
from console.screens.log import LogScreen
from console.screens.plan import PlanDialog
from console.screens.server import ServerScreen
from tests.functional.console import fake
from tests.functional.console.steps import seen, settle, text, wait_for


def bar(app: Any) -> str:
    return text(app).splitlines()[-1]


@pytest.mark.parametrize(
    ("host", "shown", "missing"),
    [
        ("ct129", ("Z kill zombies", "R relaunch", "S stop"), ("L launch",)),  # hangs
        ("gpu7", ("R relaunch", "L launch", "S stop"), ("Z kill", "C clean")),  # failed
        ("dflash", ("R relaunch", "S stop"), ("L launch", "Z kill", "C clean")),  # serves
    ],
)
async def test_the_bar_follows_the_row(
    host: str, shown: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        screen: Any = app.screen
        screen.table.select(next(r.key for r in screen.table.rows if r.view.host.name == host))

        def right() -> bool:
            there = bar(app)
            return all(word in there for word in shown) and not any(w in there for w in missing)

        await wait_for(pilot, right, f"{host}: {shown}, not {missing}")


@pytest.mark.parametrize(
    ("keys", "fix", "seen_keys"),
    [("j enter", True, "F apply fix"), ("j j j enter", False, "S stop")],
)
async def test_a_healthy_server_has_no_fix_in_the_bar(keys: str, fix: bool, seen_keys: str) -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press(*keys.split())
        await wait_for(pilot, lambda: isinstance(app.screen, ServerScreen), "server")
        await wait_for(pilot, lambda: seen_keys in bar(app), seen_keys)
        assert ("F apply fix" in bar(app)) == fix


async def test_a_key_that_the_bar_leaves_out_works_and_says_why_not() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press(*"jjj", "enter")
        await wait_for(pilot, lambda: isinstance(app.screen, ServerScreen), "server")
        await pilot.press("F")
        await wait_for(pilot, lambda: "no diagnosis with a change" in text(app), "says so")
    assert actions.planned == []


async def test_the_log_has_its_fix_whole_and_applies_it() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("l")
        await wait_for(pilot, lambda: " Fix " in text(app), "the verdict")
        screen: Any = app.screen
        verdict = screen._view.judged.diagnosis
        shown = " ".join(text(app).split())
        assert " ".join(verdict.fix.split()) in shown, "whole: that is what one came for"
        assert " ".join(verdict.explanation.split()[:6]) in shown
        change = Change({"context-length": 131072})
        judged = replace(screen._view.judged, diagnosis=replace(verdict, change=change))
        screen._view.judge(judged)
        await wait_for(pilot, lambda: "F apply fix" in bar(app), "its key")
        await pilot.press("F")
        await seen(pilot, PlanDialog)
    assert actions.planned[0][:3] == ("relaunch", "ct129", "kimi-k25")
    assert actions.planned[0][3]["change"] == change


async def test_measurements_are_a_key_away_from_the_log() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("l")
        await wait_for(pilot, lambda: isinstance(app.screen, LogScreen), "log")
        await pilot.press("b")
        await wait_for(pilot, lambda: "kimi-k25 > bench" in text(app), "bench")


async def test_nothing_is_launched_that_starts_already() -> None:
    app, fleet, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        view = fleet.views["ct129"]
        starting = tuple(replace(s, phase=Phase.SPAWN, run_id=None) for s in view.servers)
        fleet.publish(replace(view, servers=starting, zombies=(), runs=()))
        await wait_for(pilot, lambda: "spawn" in text(app), "it starts")
        assert "L launches" not in text(app)
