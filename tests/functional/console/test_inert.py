"""Text of hosts in places besides the screens themselves: notices, dialogs, alerts, crumbs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from console.app import SpecopsApp
from console.errors import ActionFailed
from console.model import Finding, Severity
from console.screens.plan import PlanDialog
from console.screens.prompts import SecretDialog, TrustDialog
from tests.functional.console import fake
from tests.functional.console.steps import settle, text, wait_for
from widgets.paint import Lines, line

EVIL = fake.HOSTILE


def inert(app: SpecopsApp, where: str) -> None:
    """Nothing on the screen commands the terminal, and markup is only text."""
    drawn = [part.text for strip in app.screen._compositor.render_strips() for part in strip]
    assert all(part.isprintable() for part in drawn), f"{where}: {drawn}"
    assert "[bold red]" in text(app), where


async def test_a_notice_its_history_and_its_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    app, _, actions = fake.app()
    written: list[str] = []
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        actions.refuse = f"cannot: {EVIL}"
        await pilot.press("S")
        await wait_for(pilot, lambda: "cannot: " in text(app), "the refusal")
        inert(app, "notice")
        await pilot.press("n")
        await pilot.pause()
        inert(app, "history of notices")
        driver: Any = app._driver
        monkeypatch.setattr(driver, "write", written.append)
        monkeypatch.setattr(type(app), "is_headless", False)
        app.alert(f"k26: {EVIL}")
        monkeypatch.undo()
    (sent,) = [part for part in written if part.startswith("\x1b]9;")]
    assert sent.endswith("\x07")
    assert sent.removeprefix("\x1b]9;").removesuffix("\x07").isprintable()


async def test_a_plan_with_hostile_findings_and_results() -> None:
    app, _, actions = fake.app()
    actions.findings = [Finding("rule", Severity.WARNING, EVIL, EVIL)]
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await pilot.press("L")
        await wait_for(pilot, lambda: "1 warning" in text(app), "findings")
        inert(app, "findings")
        await pilot.press("v")
        inert(app, "targets in full")
        await pilot.press("escape")
        plan = await actions.plan("stop", "ct129", "kimi-k25")
        app.push_screen(app.made(PlanDialog, replace(plan, server=EVIL, summary=(EVIL,)), None))
        await pilot.pause()
        inert(app, "heading and summary")


@pytest.mark.parametrize(
    "dialog", [lambda: SecretDialog(EVIL, EVIL, EVIL), lambda: TrustDialog(EVIL, EVIL, EVIL)]
)
async def test_what_a_login_says(dialog: Any) -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        app.push_screen(dialog())
        await pilot.pause()
        inert(app, "login")


@pytest.mark.parametrize("keys", ["enter", "2", "enter l", "enter b", "p"])
async def test_a_recorded_server_with_a_hostile_name(keys: str) -> None:
    shown = fake.views()
    view = shown["dflash"]
    servers = tuple(replace(one, name=EVIL, model=EVIL, preset=EVIL) for one in view.servers)
    runs = tuple(replace(run, server=EVIL, speculative=EVIL) for run in view.runs)
    fleet = fake.FakeFleet({"dflash": replace(view, servers=servers, runs=runs)})
    config = fake.config(servers={}, hosts={"dflash": view.host})
    app, _, _ = fake.app(fleet=fleet, config=config)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        inert(app, "fleet")
        await pilot.press(*keys.split())
        await asyncio.sleep(0)
        await pilot.pause()
        inert(app, keys)


async def test_a_failed_measurement_and_a_failed_check() -> None:
    app, _, actions = fake.app()
    actions.bench_error = EVIL
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press(*"jjj", "b")
        await pilot.pause()
        await pilot.press("b", "y")
        await wait_for(pilot, lambda: "evil" in text(app), "the failure")
        inert(app, "bench")
        app.say(str(ActionFailed(EVIL, place=EVIL, hint=EVIL)), "bad")
        await pilot.pause()
        inert(app, "an error with everything in it")


async def test_what_forgot_to_clean_is_cleaned_where_it_is_drawn() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        app.screen.query_one("#head", Lines).show([line(EVIL)])
        await pilot.pause()
        inert(app, "raw line")
