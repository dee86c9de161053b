"""What a login asks: an unknown key is not trusted by Enter, a secret is never on the screen."""

from __future__ import annotations

import asyncio

from console.screens.prompts import ScreenPrompts, SecretDialog, TrustDialog
from tests.functional.console import fake
from tests.functional.console.steps import seen, settle, text, wait_for

KEY = "SHA256:uNiVztksCsDhcc0u9e8BgrJXVGLlyTFXHqjt6sLWUlM"


async def test_only_y_trusts_a_key() -> None:
    app, *_ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        prompts = ScreenPrompts(app)
        for key, trusted in (("enter", False), ("escape", False), ("q", False), ("y", True)):
            asked = asyncio.create_task(prompts.trust("gpu7", "ssh-ed25519", KEY))
            await seen(pilot, TrustDialog)
            await wait_for(pilot, lambda: KEY in text(app), "fingerprint")
            assert "gpu7: first contact" in text(app)
            await pilot.press(key)
            assert await asked is trusted
            assert len(app.screen_stack) == 2


async def test_a_secret_is_dots_and_goes_only_to_who_asked() -> None:
    app, *_ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        prompts = ScreenPrompts(app)
        asked = asyncio.create_task(prompts.secret("gpu7", "passphrase", f"Enter {fake.HOSTILE}:"))
        await seen(pilot, SecretDialog)
        assert "gpu7 asks" in text(app)
        assert "[bold red]evil[/]" in text(app)
        await pilot.press(*"hunter22")
        await pilot.pause()
        assert "hunter22" not in text(app)
        assert "•" * 8 in text(app)
        await pilot.press("enter")
        assert await asked == "hunter22"
        assert all("hunter22" not in notice.text for notice in app.notices.all)


async def test_two_hosts_ask_one_after_the_other_and_escape_means_no() -> None:
    app, *_ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        prompts = ScreenPrompts(app)
        first = asyncio.create_task(prompts.secret("gpu7", "one-time code", "Code:"))
        second = asyncio.create_task(prompts.secret("dflash", "one-time code", "Code:"))
        first_dialog = await seen(pilot, SecretDialog)
        assert "gpu7 asks" in text(app)
        assert len(app.screen_stack) == 3
        await pilot.press(*"123", "enter")
        await wait_for(pilot, lambda: app.screen is not first_dialog, "second")
        await seen(pilot, SecretDialog)
        assert "dflash asks" in text(app)
        await pilot.press("escape")
        assert (await first, await second) == ("123", None)
