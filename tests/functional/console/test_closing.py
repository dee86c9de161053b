"""A screen that is being closed is drawn on no more, whatever still reaches it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from console.screens import opening
from tests.functional.console import fake
from tests.functional.console.steps import settle


async def test_places_closed_while_rows_move() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for at in range(60):
            app.places.host("ct129") if at % 2 else app.places.presets()
            screen: Any = app.screen
            while not screen.is_mounted:
                await asyncio.sleep(0)
            for turn in range(at % 7):
                screen.table.move(1 if turn % 2 else -1)
                await asyncio.sleep(0)
            app.places.back()
            screen.table.move(1)
            while app.screen is screen:
                await asyncio.sleep(0)
        assert app.is_running


@pytest.mark.parametrize("turns", range(0, 100, 10))
async def test_the_console_closed_while_it_draws(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "REDRAW_S", 0.001)
    app, _, _ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)

        async def pour() -> None:
            while True:
                app._dirty = True
                await asyncio.sleep(0)

        pouring = asyncio.create_task(pour())
        for _ in range(turns):
            await asyncio.sleep(0)
    pouring.cancel()
