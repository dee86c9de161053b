"""Keys typed before what they are meant for is there: in order, to what the one before opened."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.events import Key
from textual.pilot import Pilot

from console.model import Plan
from console.remote import Cursor, LogChunk, LogSource
from console.screens.log import LogScreen
from console.screens.making import Making
from console.screens.plan import PlanDialog
from console.screens.prompts import ScreenPrompts, SecretDialog, TrustDialog
from console.screens.reading import Reading
from tests.functional.console import fake
from tests.functional.console.steps import seen, settle, text, wait_for

NAMES = {"/": "slash", ":": "colon"}


def type_at_once(pilot: Pilot[None], *keys: str) -> None:
    """All keys in one read of the terminal: none waits for what the one before it does."""
    driver = pilot.app._driver
    assert driver is not None
    for key in keys:
        event = Key(NAMES.get(key, key), " " if key == "space" else key if len(key) == 1 else None)
        event.set_sender(pilot.app)
        driver.send_message(event)


class SlowPlans(fake.FakeActions):
    """Plans come when they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def plan(self, action: str, host: str, server: str | None = None, **options: Any) -> Plan:
        """As the fake, later."""
        await self.go_on.wait()
        return await super().plan(action, host, server, **options)


async def test_a_filter_and_what_is_done_with_its_row() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        type_at_once(pilot, "/", *"k26", "enter", "l")
        await wait_for(pilot, lambda: isinstance(app.screen, LogScreen), "log")
        assert app.screen.where() == ("dflash", "k26")  # type: ignore[attr-defined]
        type_at_once(pilot, "escape", "R", "p", "k", "k", "enter")
        await wait_for(pilot, lambda: len(actions.planned) == 2, "planned anew")
        await seen(pilot, PlanDialog)
    first, (action, host, server, options) = actions.planned
    assert first == ("relaunch", "dflash", "k26", {"present": True})
    assert (action, host, server) == ("relaunch", "dflash", "k26")
    assert options["speculative"] == "autoregressive"


async def test_a_search_in_a_log_opened_by_the_key_before() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        type_at_once(pilot, "l", "/", *"avail", "enter", "n", "f")
        await wait_for(pilot, lambda: "/avail hit " in text(app), "search")
        type_at_once(pilot, "escape", "escape", ":", *"stop", "space", *"k26", "enter")
        plan = (await seen(pilot, PlanDialog)).plan
    assert (plan.action, plan.server) == ("stop", "k26")


async def test_escape_and_a_letter_in_one_read_are_two_keys() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await wait_for(pilot, lambda: len(app.screen_stack) == 3, "host")
        driver: Any = app._driver
        driver.send_message(Key("alt+shift+s", "S"))
        dialog = await seen(pilot, PlanDialog)
        assert len(app.screen_stack) == 3  # the host's screen was left
    assert dialog.plan.action == "stop"
    assert len(actions.planned) == 1


async def test_yes_typed_before_the_plan_was_seen_does_nothing() -> None:
    actions = SlowPlans()
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        type_at_once(pilot, "S", "y", "v", "y")
        await seen(pilot, Making)
        assert "making the plan" in text(app)
        type_at_once(pilot, "y")
        await pilot.pause()
        actions.go_on.set()
        dialog = await seen(pilot, PlanDialog)
        await wait_for(pilot, lambda: dialog.whole, "v was honoured")
        await wait_for(pilot, lambda: "typed before this was drawn" in text(app), "y was not")
        assert actions.executed == []
        await pilot.press("y")
        await wait_for(pilot, lambda: actions.executed == [dialog.plan], "y, seen")


async def test_the_hosts_name_typed_before_the_plan_was_seen_allows_nothing() -> None:
    actions = SlowPlans()
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        type_at_once(pilot, "2", "space", "space", "space", "K", *"ct129", "y")
        await wait_for(pilot, lambda: isinstance(app.screen, Making), "the plan is being made")
        actions.go_on.set()
        dialog = await seen(pilot, PlanDialog)
        await wait_for(pilot, lambda: "typed before this was drawn" in text(app), "refusal")
        assert not dialog.unlocked
        type_at_once(pilot, *"ct129", "y")  # seen: the name opens, and the next key is a key
        await wait_for(pilot, lambda: len(actions.executed) == 1, "execution")


async def test_a_plan_that_takes_its_time_can_be_given_up() -> None:
    actions = SlowPlans()
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        type_at_once(pilot, "S", "d", "escape", "l")
        await wait_for(pilot, lambda: isinstance(app.screen, LogScreen), "keys go on")
        actions.go_on.set()
        await pilot.pause(0.1)
        assert isinstance(app.screen, LogScreen)
    assert actions.planned == []


async def test_a_question_over_a_plan_being_made_is_answered_first() -> None:
    actions = SlowPlans()
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("S")
        asked = asyncio.create_task(ScreenPrompts(app).trust("gpu7", "ssh-ed25519", "SHA256:x"))
        await seen(pilot, TrustDialog)
        actions.go_on.set()
        await pilot.pause(0.1)
        await pilot.press("enter")
        assert await asked is False
        assert (await seen(pilot, PlanDialog)).plan.action == "stop"


async def test_no_key_typed_before_answers_what_nobody_asked_for() -> None:
    """A login's question comes between: the keys on their way were meant for something else."""
    app, _, _ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        prompts = ScreenPrompts(app)
        trust = asyncio.create_task(prompts.trust("gpu7", "ssh-ed25519", "SHA256:x"))
        secret = asyncio.create_task(prompts.secret("gpu7", "passphrase", "Enter:"))
        await asyncio.sleep(0)
        type_at_once(pilot, "y", "escape")
        dialog = await seen(pilot, TrustDialog)
        await pilot.pause()
        assert app.screen is dialog
        await pilot.press("y")
        assert await trust
        line = await seen(pilot, SecretDialog)
        early = Key("x", "x")
        assert line.drawn_at is not None
        early.time = line.drawn_at - 1
        app.post_message(early)
        await pilot.press("z", "enter")
        assert await secret == "z"


async def test_a_command_takes_the_keys_while_it_runs() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        type_at_once(pilot, ":", *"status", "enter", "j", "j", "q")
        await wait_for(pilot, lambda: not isinstance(app.screen, Reading), "q leaves the output")
        assert app.is_running
        type_at_once(pilot, ":", *"status", "enter")
        await wait_for(pilot, lambda: "output of status" in text(app), "output")


async def test_keys_before_the_first_screen() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        type_at_once(pilot, "/", *"k26", "enter", "R")
        plan = (await seen(pilot, PlanDialog)).plan
        assert (plan.action, plan.server) == ("relaunch", "k26")


async def test_a_log_that_pours_in_does_not_hold_the_keys() -> None:
    actions = fake.FakeActions()

    async def pour(host: str, source: LogSource, *, last_lines: int | None = None) -> Any:
        while True:
            yield LogChunk(b"line\n" * 200, Cursor())
            await asyncio.sleep(0)

    actions.tail = pour  # type: ignore[method-assign]
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        type_at_once(pilot, "l", "f", "escape", "2", "escape", "S")
        assert (await seen(pilot, PlanDialog)).plan.action == "stop"
