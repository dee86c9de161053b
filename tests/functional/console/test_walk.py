"""Every screen at three sizes and in three colourings: whole, legible, nothing cut."""

from __future__ import annotations

import itertools
import re

import pytest
from textual.pilot import Pilot

from console.app import SpecopsApp
from tests.functional.console import fake
from tests.functional.console.steps import settle, text, wait_for
from widgets.keybar import KeyBar
from widgets.paint import Lines, text_of, width_of

SIZES = [(80, 24), (100, 30), (200, 60)]
WORDS = ("NEVER READY", "FAILED", "UNREACHABLE", "ready 2.4⇥", "ok")


def nothing_overflows(app: SpecopsApp, where: str) -> None:
    """No widget outside the screen, no line cut at the edge, no line below the fold."""
    width, height = app.size
    for widget in app.screen.query("*"):
        if not widget.display or widget.region.area == 0:
            continue
        right, bottom = widget.region.right, widget.region.bottom
        assert right <= width, f"{where}: {widget} ends at column {right} of {width}"
        assert bottom <= height, f"{where}: {widget} ends at row {bottom} of {height}"
    for lines in app.screen.query(Lines):
        if lines.id in ("detail", "content"):  # scrolled, or cut with a word about it
            continue
        for spans in lines.lines:
            size = width_of(text_of(spans))
            assert size <= lines.size.width, f"{where}: {text_of(spans)!r} takes {size} cells"
        if lines.display:
            assert len(lines.lines) <= lines.size.height, f"{where}: {lines} is cut"


async def visit(pilot: Pilot[None], app: SpecopsApp, keys: str, scope: str, *words: str) -> None:
    """Press keys, then look at where that leads."""
    await pilot.press(*keys.split())
    await wait_for(pilot, lambda: all(word in text(app) for word in words), f"{scope}: {words}")
    shown = text(app)
    foot = shown.splitlines()[-1]
    assert foot.strip().startswith("? help  : command"), f"{scope}: {foot}"
    assert app.screen.query_one(KeyBar).size.width == app.size.width
    nothing_overflows(app, f"{scope} at {app.size}")


@pytest.mark.parametrize(("size", "look"), itertools.product(SIZES, ("16", "light", "nocolor")))
async def test_every_screen(
    size: tuple[int, int], look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if look == "nocolor":
        monkeypatch.setenv("NO_COLOR", "1")
    app, _, _ = fake.app(config=fake.config(theme=None if look == "nocolor" else look))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await visit(pilot, app, "g", "fleet", *WORDS, "kimi-k25", "weights loaded 8 h 09 min ago")
        assert app.no_color == (look == "nocolor")
        await visit(pilot, app, "2", "host", "PID", "4711", "NEVER READY", "score 0.97")
        await visit(
            pilot, app, "escape enter", "server", "NEVER READY", "graph_target", "4/23", "tok/s"
        )
        await visit(pilot, app, "l", "log", "FOLLOW", "ValueError", "⋯ 2 frames", "dropped 0")
        await visit(pilot, app, "escape b", "bench", "kimi-k25 > bench", "nothing measured yet")
        await visit(pilot, app, "p", "presets", "eagle3-3step", "pcie-ll-ring")
        await visit(pilot, app, "a", "activity", "kill-zombies", "ops@laptop")
        await pilot.press("1", "question_mark")
        await wait_for(pilot, lambda: "every key of this screen" in text(app), "help")
        nothing_overflows(app, "help")
        await pilot.press("escape", "S")
        await wait_for(pilot, lambda: "[ Cancel ]" in text(app), "plan")
        nothing_overflows(app, "plan")
        assert "SIGTERM to 4711" in text(app)
        await pilot.press("escape")
        assert len(app.screen_stack) == 2


async def test_states_read_the_same_without_colour() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        head, *rows = text(app).splitlines()[2:8]
    at = head.index("STATE")
    words = [row[at : at + 14].strip() for row in rows]
    assert words == ["NEVER READY", "FAILED", "UNREACHABLE", "ready 2.4⇥", "ok"]
    assert "? %" in rows[1]  # unknown memory is not 0
    assert "15m" in rows[2]  # and old values say how old


async def test_wide_screens_show_a_bar_per_gpu_and_the_log_beside() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        shown = text(app).splitlines()
        assert "MEMORY PER GPU" in shown[2]
        assert "log /data/logs/kimi-k25.log" in shown[2]
        row = next(part for part in shown if "kimi-k25" in part and "NEVER READY" in part)
        assert len(re.findall(r"█+[▏▎▍▌▋▊▉]?░* ", row)) == 8
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        assert "MEMORY PER GPU" not in text(app)


async def test_hostile_text_is_inert_everywhere() -> None:
    app, _, _ = fake.app(actions=fake.FakeActions(log=fake.LOG + fake.HOSTILE.encode() + b"\n"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        seen = []
        for keys in ("G", "enter", "enter", "escape escape g l", "1 a", "enter", "escape 1 S v"):
            await pilot.press(*keys.split())
            await pilot.pause(0.05)
            seen.append(text(app))
            strips = app.screen._compositor.render_strips()
            for segment in itertools.chain.from_iterable(strips):
                assert "\x1b" not in segment.text
                assert "\u202e" not in segment.text
                assert "evil" not in segment.text or segment.style is None or not segment.style.link
    whole = "\n".join(seen)
    assert "[bold red]evil[/]" in whole  # shown as the text that it is
    assert "SECRETSECRET" not in whole
