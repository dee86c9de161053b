"""The console under Pilot, with a clean state folder per test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.app import SpecopsApp


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _pressed_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A press of the Pilot ends when its keys had their effect, however busy the machine is."""
    press = Pilot.press

    async def press_and_wait(pilot: Pilot[None], *keys: str) -> None:
        await press(pilot, *keys)
        app = pilot.app
        if isinstance(app, SpecopsApp) and (handing_on := app.keyboard._task) is not None:
            await asyncio.wait({handing_on})
            await pilot.pause()

    monkeypatch.setattr(Pilot, "press", press_and_wait)
