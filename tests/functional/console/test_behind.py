"""What stands behind a dialog looks as Textual itself would draw it."""

from __future__ import annotations

import pytest
from textual._context import visible_screen_stack
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import Screen
from textual.strip import Strip
from textual.visual import RichVisual

from console import styles
from console.screens.behind import Behind
from tests.functional.console import fake
from tests.functional.console.steps import settle


@pytest.mark.parametrize("theme", [theme.name for theme in styles.THEMES])
async def test_it_is_what_textual_draws(theme: str) -> None:
    app, *_ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        app.theme = theme
        await pilot.press("question_mark")
        await settle(pilot)
        dialog = app.screen
        shown = dialog._render()
        if app.current_theme.ansi:  # no shade in the terminal's own colours
            assert not isinstance(shown, Behind)
            return
        visible_screen_stack.set(list(app._background_screens))
        theirs = Screen.render(dialog)
        assert isinstance(theirs, BackgroundScreen)
        assert _drawn(dialog, Behind(theirs)) == _drawn(dialog, RichVisual(dialog, theirs))


def _drawn(dialog: Screen[object], visual: Behind | RichVisual) -> list[list[tuple[object, ...]]]:
    width, height = dialog.size
    strips: list[Strip] = visual.to_strips(dialog, visual, width, height, dialog.visual_style)
    assert len(strips) == height
    return [[(text, style) for text, style, _ in strip.simplify()] for strip in strips]
