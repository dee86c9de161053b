"""What goes on is to be seen, and what is over is no longer said."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from textual.pilot import Pilot

from console.app import SpecopsApp
from console.model import HostState, Phase, Plan, StepResult
from console.screens.plan import PlanDialog
from tests.functional.console import fake
from tests.functional.console.steps import seen, settle, show, text, wait_for


class Slow(fake.FakeActions):
    """Ends its step when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.end = asyncio.Event()

    async def execute(self, plan: Plan) -> AsyncIterator[StepResult]:
        await self.end.wait()
        async for result in super().execute(plan):
            yield result


async def stopping(pilot: Pilot[None], app: SpecopsApp) -> None:
    """The plan of a stop is under way, its dialog open."""
    await pilot.press("S")
    await seen(pilot, PlanDialog)
    await pilot.press("y")
    await wait_for(pilot, lambda: "to the background" in text(app), "it runs")


async def test_a_plan_behind_a_closed_dialog_stays_in_sight_until_it_ends() -> None:
    actions = Slow()
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await stopping(pilot, app)
        await pilot.press("escape")
        for key in ("1", "2", "4", "a"):
            await pilot.press(key)
            show(app)
            await pilot.pause()
            assert "▶ stop kimi-k25 on ct129: step 1 of 2, signal" in text(app), key
        assert "▶ running" not in text(app), "it is of another plan that the audit tells"
        await pilot.press("1")
        show(app)
        await pilot.pause()
        (row,) = [line for line in text(app).splitlines() if " kimi-k25 " in line and "█" in line]
        assert "▶ NEVER READY" in row
        assert "stop: this console is at it" in text(app)
        actions.end.set()
        await wait_for(pilot, lambda: "stop kimi-k25: done" in text(app), "it has ended")
        show(app)
        await pilot.pause()
        assert "▶" not in text(app)


async def refused(pilot: Any, app: Any, actions: fake.FakeActions, why: str) -> None:
    actions.refuse = why
    await pilot.press("S")
    await wait_for(pilot, lambda: why in text(app), "the refusal")
    show(app)
    await pilot.pause()
    assert why in text(app), "it stays while it holds"
    actions.refuse = ""


async def test_a_refusal_goes_when_its_reason_has_gone() -> None:
    app, fleet, actions = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        view = fleet.views["ct129"]
        fleet.publish(replace(view, state=HostState.UNREACHABLE, error="no answer in 5 s"))
        show(app)
        await refused(pilot, app, actions, "not connected")
        fleet.publish(view)
        await wait_for(pilot, lambda: "not connected" not in text(app), "it is connected again")
        await refused(pilot, app, actions, "kimi-k25 runs already, pid 4711")
        (state,) = view.servers
        stopped = replace(state, phase=Phase.STOPPED, pid=None)
        fleet.publish(replace(view, servers=(stopped,), zombies=()))
        await wait_for(pilot, lambda: "runs already" not in text(app), "it runs no longer")
        await refused(pilot, app, actions, "another console holds the lock")
        await pilot.press("S")
        await seen(pilot, PlanDialog)
        await pilot.press("escape")
        await wait_for(pilot, lambda: "holds the lock" not in text(app), "a later one was made")
        assert any("holds the lock" in notice.text for notice in app.notices.all)


async def test_a_hint_for_the_cursor_goes_when_the_cursor_does() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("G", "b")
        await wait_for(pilot, lambda: "put the cursor on a server first" in text(app), "hint")
        await pilot.press("g")
        show(app)
        await pilot.pause()
        assert "put the cursor" not in text(app)


async def test_what_was_asked_again_is_said_until_it_has_come() -> None:
    app, fleet, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("2", "r")
        await wait_for(pilot, lambda: "asking ct129 again" in text(app), "asked")
        fleet.publish(replace(fleet.views["ct129"], seen_at=fake.NOW))
        await wait_for(pilot, lambda: "asking" not in text(app), "answered")


async def test_escape_closes_the_full_view_before_the_dialog() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for close in ("escape", "enter"):
            await pilot.press("S")
            dialog = await seen(pilot, PlanDialog)
            before = text(app)
            await pilot.press("v")
            await wait_for(pilot, lambda: "[ Esc: back ]" in text(app), "in full")
            await pilot.press(close)
            await pilot.pause()
            assert app.screen is dialog
            assert text(app) == before
            await pilot.press(close)
            await wait_for(pilot, lambda: len(app.screen_stack) == 2, "cancelled")
    assert actions.executed == []


async def test_a_search_says_on_which_hit_the_cursor_is() -> None:
    """Also on one behind a fold: it is opened."""
    app, _, _ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("l")
        await wait_for(pilot, lambda: "⋯ 2 frames" in text(app), "a folded log")
        await pilot.press("slash", *"scheduler", "enter")
        await wait_for(pilot, lambda: re.search(r"hit \d+/\d+", text(app)) is not None, "a hit")
        total = int(re.findall(r"hit \d+/(\d+)", text(app))[0])
        assert total >= 3
        places = []
        for _ in range(total):
            shown = text(app)
            (row,) = [line for line in shown.splitlines() if "▸" in line]
            assert "cheduler" in row, "the mark is on the hit's own line"
            here = re.search(r"hit (\d+)/", row)
            assert here is not None, row
            assert f"hit {here[1]}/{total}" in shown.splitlines()[-2], "and in the status line"
            places.append(int(here[1]))
            await pilot.press("n")
            await pilot.pause()
        assert sorted(places) == list(range(1, total + 1))
        await pilot.press("g")
        await pilot.pause()
        assert f"{total} hits" in text(app), "the cursor is on none"


async def test_the_activity_goes_on_with_a_plan_that_runs() -> None:
    class Told(Slow):
        """The audit file gets longer while the plan runs."""

        asked = 0

        async def audit(self, limit: int = 500) -> list[Any]:
            self.asked += 1
            entries = await super().audit(limit)
            return [{**entry, "plan": "p-1"} for entry in entries[-min(self.asked, 4) :]]

    actions = Told()
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await stopping(pilot, app)
        await pilot.press("escape", "a")
        await wait_for(pilot, lambda: "▶ running" in text(app), "it is said to run")
        await wait_for(pilot, lambda: actions.asked >= 3, "the file is read again")
        actions.end.set()
        await wait_for(pilot, lambda: "done in 3.0 s" in text(app), "and how it ended")
        assert "▶ running" not in text(app)


async def test_no_key_takes_a_server_for_the_strangers_on_the_row() -> None:
    """A host with one server of its own: its name is not meant by a row that is another's."""
    app, fleet, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        fleet.publish(replace(fleet.views["dflash"], unlisted=(5100,)))
        show(app)
        await pilot.pause()
        screen: Any = app.screen
        screen.table.select(("dflash", "?5100"))
        await pilot.pause()
        assert "a server of root that hosts.yaml does not have" in text(app)
        for key in ("S", "R", "L"):
            await pilot.press(key)
            await pilot.pause()
            assert "which server of dflash?" in text(app), key
    assert actions.planned == []


async def test_no_launch_is_offered_on_a_host_that_is_not_there() -> None:
    fleet = fake.FakeFleet()
    stopped = replace(fleet.views["ct129"].servers[0], phase=Phase.STOPPED, pid=None)
    view = replace(fleet.views["ct129"], servers=(stopped,), runs=(), zombies=())
    fleet.publish(view)
    app, _, _ = fake.app(fleet=fleet)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        screen: Any = app.screen
        screen.table.select(("ct129", "kimi-k25"))
        await pilot.pause()
        assert "no log yet; L launches kimi-k25" in text(app)
        for state in (HostState.CONNECTING, HostState.UNREACHABLE, HostState.AUTH_FAILED):
            fleet.publish(replace(view, state=state))
            show(app)
            await pilot.pause()
            assert "L launches" not in text(app), state
