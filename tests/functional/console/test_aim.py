"""Where a host has one server, keys for servers mean it; in too small a window a plain notice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.model import Server
from console.screens.log import LogScreen
from console.screens.plan import PlanDialog
from tests.functional.console import fake
from tests.functional.console.steps import seen, settle, text, wait_for


def loose() -> fake.FakeFleet:
    """A host whose zombie belongs to no server: its row is the host's, first of all."""
    shown = fake.views()
    view = shown["dflash"]
    stray = replace(fake.ZOMBIE, run_id=None, pid=77, process=None)
    return fake.FakeFleet({"dflash": replace(view, zombies=(stray,))})


@pytest.mark.parametrize("key", ["L", "S", "R"])
async def test_the_only_server_of_a_host_is_meant(key: str) -> None:
    app, _, actions = fake.app(fleet=loose())
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("slash", *"loose", "enter")
        app.screen.table.move_to(0)  # type: ignore[attr-defined]
        await pilot.press("escape", "g", key)
        await seen(pilot, PlanDialog)
        await pilot.press("escape")
        await pilot.press("l")
        await wait_for(pilot, lambda: isinstance(app.screen, LogScreen), "its log")
    assert [made[2] for made in actions.planned] == ["k26"]


async def test_of_several_servers_one_has_to_be_named() -> None:
    servers = {**fake.config().servers, "more": Server("more", "dflash", port=1)}
    app, _, actions = fake.app(fleet=loose(), config=fake.config(servers=servers))
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("g", "L")
        await pilot.pause()
        assert app.screen.where() == ("dflash", None)  # type: ignore[attr-defined]
        assert "which server of dflash? k26, more: put the cursor on one" in text(app)
    assert actions.planned == []


@pytest.mark.parametrize("size", [(40, 20), (59, 24), (100, 14)])
@pytest.mark.parametrize("keys", ["", "enter", "2", "p", "a", "l"])
async def test_too_small_a_window_says_so(size: tuple[int, int], keys: str) -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        if keys:
            await pilot.press(keys)
            await pilot.pause()
        shown = " ".join(text(app).split())
        assert f"This window is {size[0]} by {size[1]}; 60 by 15 are needed" in shown
        assert "│" not in shown
        assert "STATE" not in shown
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        assert "This window" not in text(app)
