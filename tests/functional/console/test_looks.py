"""Pictures of the screens, as a second net: what no other test asks about must not change unseen.

Each is the exported SVG read back as cells and compared with a page under ``looks/``: first the
words, then how each cell looks, then what the letters of that mean.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.functional.console import fake, picture, svgcells
from tests.functional.console.scenes import BY_NAME, open_desk

PAGES = Path(__file__).parent / "looks"
RENEW = bool(os.environ.get("SPECOPS_RENEW_LOOKS"))
PINNED = "8.2.8"
"""The version that the pages were drawn with; another one draws borders and dialogs its own way."""

HOW = """\
If that is meant, accept it and read what is committed:
    SPECOPS_RENEW_LOOKS=1 pytest tests/functional/console/test_looks.py
    git diff tests/functional/console/looks docs/fleet.svg"""

NAMES = ("fleet", "host", "server", "log", "plan", "presets")
"""A handful: each is read again by whoever changes it, and the walk looks at all the others."""
SHOTS: list[tuple[str, tuple[int, int], tuple[str, ...]]] = [
    ("dark", (80, 24), NAMES),
    ("dark", (200, 60), NAMES),
    ("nocolor", (80, 24), ("fleet",)),
]


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No folder, zone or colour of this machine is in a picture."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/nowhere/state")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere/config")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.skipif(version("textual") != PINNED, reason=f"drawn with Textual {PINNED}")
@pytest.mark.parametrize(("look", "size", "names"), SHOTS)
async def test_pictures(
    look: str, size: tuple[int, int], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if look == "nocolor":
        monkeypatch.setenv("NO_COLOR", "1")
    made = fake.app(config=fake.config(theme=None if look == "nocolor" else look))
    wrong: list[str] = []
    async with made[0].run_test(size=size) as pilot:
        desk = await open_desk(pilot, made)
        for name in names:
            await BY_NAME[name].show(desk)
            await desk.still()
            svg = desk.app.export_screenshot()
            page = svgcells.read(svg, *size).page(f"{name}, {look}, {size[0]} by {size[1]}")
            file = PAGES / f"{look}-{size[0]}x{size[1]}" / f"{name}.txt"
            if RENEW:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(page, encoding="utf-8")
            before = file.read_text(encoding="utf-8") if file.exists() else ""
            wrong += difference(before, page)
    assert not wrong, "\n".join(["the screens look otherwise:", *wrong[:120], "", HOW])


def parts(page: str) -> tuple[str, list[str], list[str], list[str]]:
    """The title, which ends in the height, the rows of words, those of looks, and the legend."""
    title, _, *rows = page.splitlines()
    height = int(title.split()[-1])
    return title, rows[:height], rows[height + 1 : 2 * height + 1], rows[2 * height + 2 :]


def difference(before: str, now: str) -> list[str]:
    """What is otherwise, to be read: rows of words, or rows whose words only look otherwise."""
    if before == now:
        return []
    title, words, looks, legend = parts(now)
    _, old_words, old_looks, old_legend = parts(before) if before else ("", [], [], [])
    out = [f"== {title}"]
    if old_words != words:
        return [*out, *difflib.unified_diff(old_words, words, "was", "now", lineterm="", n=1)]
    for row, old, new in zip(words, old_looks, looks, strict=False):
        if old != new:
            out += ["the same words, other looks:", f"  {row}", f"- {old}", f"+ {new}"]
    return [*out, *difflib.unified_diff(old_legend, legend, "was", "now", lineterm="", n=0)]


@pytest.mark.skipif(RENEW, reason="they are being written")
def test_every_page_is_of_a_scene() -> None:
    """A page that nobody compares would be believed."""
    asked = {f"{look}-{w}x{h}/{name}.txt" for look, (w, h), names in SHOTS for name in names}
    there = {str(path.relative_to(PAGES)) for path in PAGES.rglob("*.txt")}
    assert there == asked


@pytest.mark.skipif(version("textual") != PINNED, reason=f"drawn with Textual {PINNED}")
async def test_the_picture_of_the_readme_is_what_the_console_shows() -> None:
    file = Path(__file__).parents[3] / "docs" / "fleet.svg"
    now = await picture.picture()
    if RENEW:
        file.write_text(now, encoding="utf-8")
    width, height = picture.SIZE
    drawn, shown = (svgcells.read(svg, width, height).page(f"README, {width} by {height}")
                    for svg in (file.read_text(encoding="utf-8"), now))  # fmt: skip
    old = difference(drawn, shown)
    assert not old, "\n".join(["the picture of the README is old:", *old, "", HOW])


async def test_a_changed_colour_and_a_changed_word_are_seen() -> None:
    made = fake.app(config=fake.config(theme="dark"))
    async with made[0].run_test(size=(80, 24)) as pilot:
        desk = await open_desk(pilot, made)
        await BY_NAME["fleet"].show(desk)
        await desk.still()
        first = svgcells.read(desk.app.export_screenshot(), 80, 24)
        assert any("NEVER READY" in row for row in first.text)

        def look_of(word: str) -> str:
            at = next(y for y, row in enumerate(first.text) if word in row)
            return first.styles[at][first.text[at].index(word)]

        assert len({look_of(word) for word in ("FAILED", "ready 2.4", "kimi-k25", "SERVER")}) == 4
        desk.app.theme = "specops-light"
        await desk.still()
        other = svgcells.read(desk.app.export_screenshot(), 80, 24)
        assert other.text == first.text
        assert other.legend != first.legend


def test_a_difference_is_told_in_words_and_looks() -> None:
    page = "fleet, dark, 7 by 3\n\n a  ok\n\n b  ok\n\n.x..yy\n\n.x..yy\n\nx  red\n"
    assert difference(page, page) == []
    words = "\n".join(difference(page, page.replace(" b  ok", " b  ?")))
    assert "- b  ok\n+ b  ?" in words
    looks = "\n".join(difference(page, page.replace(".x..yy\n\nx", ".x..zz\n\nx")))
    assert "the same words, other looks:\n   b  ok\n- .x..yy\n+ .x..zz" in looks
    assert "+x  blue" in difference(page, page.replace("x  red", "x  blue"))
    assert difference("", page)[0] == "== fleet, dark, 7 by 3", "also where there was none"
