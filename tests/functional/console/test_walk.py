"""Every screen at three sizes and in three colourings: whole, legible, nothing cut."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from textual.containers import VerticalScroll
from textual.screen import Screen

import console.screens
from console.app import SpecopsApp
from console.screens.base import Place
from console.screens.dialog import Dialog, Foot
from console.screens.opening import Opening
from tests import scale
from tests.functional.console import fake
from tests.functional.console.scenes import SCENES, Scene, open_desk
from tests.functional.console.steps import settle, text
from widgets.keybar import KeyBar
from widgets.paint import Lines, text_of, width_of

SIZES = [(80, 24), (100, 30), (200, 60)]
LOOKS = ("16", "light", "nocolor")
WAYS_OUT = ("Esc", "[ Cancel ]", "[ Close ]", "[ Give up ]", "[ Do not connect ]")


def nothing_overflows(app: SpecopsApp, where: str) -> None:
    """No widget outside the screen, no line cut at the edge, no line below the fold."""
    width, height = app.size
    for widget in app.screen.query("*"):
        if not widget.display or widget.region.area == 0:
            continue
        if any(isinstance(parent, VerticalScroll) for parent in widget.ancestors):
            continue  # scrolled into view by the focus
        right, bottom = widget.region.right, widget.region.bottom
        assert right <= width, f"{where}: {widget} ends at column {right} of {width}"
        assert bottom <= height, f"{where}: {widget} ends at row {bottom} of {height}"
    for lines in app.screen.query(Lines):
        if not lines.display:
            continue
        for spans in lines.lines:
            size = width_of(text_of(spans))
            assert size <= lines.size.width, f"{where}: {text_of(spans)!r} takes {size} cells"
        if lines.id not in ("detail", "content"):  # scrolled, or cut with a word about it
            assert len(lines.lines) <= lines.size.height, f"{where}: {lines} is cut"


def inert(app: SpecopsApp, where: str) -> None:
    """Nothing that is drawn is a terminal's command, whatever hosts say."""
    for part in itertools.chain.from_iterable(app.screen._compositor.render_strips()):
        assert part.text.isprintable(), f"{where}: {part.text!r}"
        assert part.style is None or not part.style.link, where


def look_at(app: SpecopsApp, scene: Scene) -> None:
    """What holds of every screen."""
    where = f"{scene.name} at {app.size.width} by {app.size.height}"
    shown = text(app)
    if isinstance(app.screen, Place):
        foot = shown.splitlines()[-1]
        assert foot.strip().startswith("? help  : command"), f"{where}: {foot}"
        assert app.screen.query_one(KeyBar).size.width == app.size.width
    else:
        assert any(way in shown for way in WAYS_OUT), f"{where}: no way out\n{shown}"
    nothing_overflows(app, where)
    inert(app, where)
    assert "SECRETSECRET" not in shown, where


def walks() -> list[tuple[tuple[int, int], str]]:
    """In full every size in every look; else each size and each look once, as the seed has it."""
    if scale.SHARE >= 1:
        return list(itertools.product(SIZES, LOOKS))
    turn = scale.seed() % len(LOOKS)
    return list(zip(SIZES, LOOKS[turn:] + LOOKS[:turn], strict=True))


@pytest.mark.long
@pytest.mark.parametrize(("size", "look"), walks())
async def test_every_screen(
    size: tuple[int, int], look: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if look == "nocolor":
        monkeypatch.setenv("NO_COLOR", "1")
    made = fake.app(config=fake.config(theme=None if look == "nocolor" else look))
    seen: set[type[Any]] = set()
    async with made[0].run_test(size=size) as pilot:
        desk = await open_desk(pilot, made)
        assert desk.app.no_color == (look == "nocolor")
        for scene in SCENES:
            await scene.show(desk)
            look_at(desk.app, scene)
            seen |= set(type(desk.app.screen).__mro__)
    missing = [kind.__name__ for kind in screens() if kind not in seen]
    assert not missing, f"no scene shows {missing}"


SMALLEST = [(60, 15), (80, 24)]


@pytest.mark.parametrize("size", SMALLEST)
async def test_the_way_out_of_a_dialog_is_in_sight_in_the_smallest_window(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Made smaller while it is open, and opened in a small one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    made = fake.app()
    async with made[0].run_test(size=(100, 30)) as pilot:
        desk = await open_desk(pilot, made)
        for scene in SCENES:
            await scene.show(desk)
            if isinstance(desk.app.screen, Dialog):
                foot = desk.app.screen.query_one(Foot)
                words = {text_of(spans) for spans in foot.lines}
                await pilot.resize_terminal(*size)
                await desk.still()
                whole_foot(desk.app, scene, words)
                await pilot.resize_terminal(100, 30)
                await pilot.pause()
    made = fake.app()
    async with made[0].run_test(size=size) as pilot:
        desk = await open_desk(pilot, made)
        for scene in SCENES:
            await desk.home()
            await scene.go(desk)
            await desk.still()
            if isinstance(desk.app.screen, Dialog):
                whole_foot(desk.app, scene, set())


def whole_foot(app: SpecopsApp, scene: Scene, before: set[str]) -> None:
    """All keys of a dialog are on the screen, those that a wider one had too."""
    where = f"{scene.name} at {app.size.width} by {app.size.height}"
    shown, foot = text(app), app.screen.query_one(Foot)
    assert foot.lines, where
    rows = [text_of(spans).strip() for spans in foot.lines]
    assert all(row in shown for row in rows), f"{where}: {rows}\n{shown}"
    now = " ".join(rows).split()
    for row in before:
        assert [word for word in row.split() if word not in now] == [], f"{where}\n{shown}"
    assert any(way in " ".join(rows) for way in WAYS_OUT), f"{where}: no way out\n{shown}"
    content = app.screen.query("#content")
    assert not content or content.first().region.height > 0, f"{where}: nothing to read\n{shown}"


def screens() -> set[type[Any]]:
    """Every screen that there is to show; the rest are what they are made of."""
    found: set[type[Any]] = set()
    for module in pkgutil.iter_modules(console.screens.__path__):
        name = f"console.screens.{module.name}"
        kinds = [kind for kind in vars(importlib.import_module(name)).values()
                 if isinstance(kind, type) and issubclass(kind, Screen)]  # fmt: skip
        found |= {kind for kind in kinds if kind.__module__ == name}
    parts = {part for kind in found for part in kind.__mro__[1:]}
    return found - parts - {Opening}  # the first frame has its own tests


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
