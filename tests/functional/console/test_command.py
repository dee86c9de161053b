"""``:``: what may come next is shown and completed, for every command of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.cli.root import COMMANDS
from console.keys import BY_ID, CLI_WORDS
from console.screens.completing import NEVER_END, complete, hint, words
from console.screens.server import ServerScreen
from tests.functional.console import fake
from tests.functional.console.steps import settle, text, wait_for


def test_every_command_of_the_command_line_is_known() -> None:
    assert set(COMMANDS) == set(CLI_WORDS) | set(NEVER_END) & set(COMMANDS)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("rel", {"relaunch"}),
        ("relaunch k", {"relaunch kimi-k25", "relaunch k26", "relaunch k30"}),
        ("relaunch k26 --pre", {"relaunch k26 --preset"}),
        ("relaunch k26 --preset eagle3-t", {"relaunch k26 --preset eagle3-tree"}),
        ("relaunch k26 --nccl pcie", {"relaunch k26 --nccl pcie-ll-ring"}),
        ("zombies ct", {"zombies ct129"}),
        ("zombies ct129 ct", set()),
        ("presets di", {"presets diff"}),
        ("presets show eagle3-t", {"presets show eagle3-tree"}),
        ("config va", {"config validate"}),
        ("logs k26 --gr", {"logs k26 --grep"}),
        ("theme li", {"theme light"}),
        ("report 7d", {"report 7d10"}),
        ("nonsense k", set()),
        ("open more/a", {"open more/afile", "open more/afolder/"}),
    ],
)
def test_what_a_line_may_go_on_to(line: str, offered: set[str], tmp_path: Path) -> None:
    app, *_ = fake.app()
    app.config = fake.config()
    app.views.update(fake.views())
    (tmp_path / "more" / "afolder").mkdir(parents=True)
    (tmp_path / "more" / "afile").write_text("", encoding="utf-8")
    assert set(complete(app, line)) == offered


def test_options_say_what_they_do() -> None:
    app, *_ = fake.app()
    known = dict(hint(app, "bench k26 --con"))
    assert "Requests at a time" in known["--concurrency"]
    assert "--hosts" not in dict(hint(app, "status --")), "the console's own file is meant"


def test_read_only_offers_nothing_that_changes_a_host() -> None:
    app, *_ = fake.app(read_only=True)
    offered = set(words(app))
    assert not {word for word in offered if word in BY_ID and BY_ID[word].dangerous}
    assert not offered & {"launch", "stop", "relaunch", "kill-zombies", "resume", "undo", "adopt"}
    assert {"status", "zombies", "logs"} <= offered
    assert complete(app, "relaunch k") == []


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_the_line_shows_what_may_come_next(size: tuple[int, int]) -> None:
    app, *_ = fake.app()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await pilot.press("colon")
        await wait_for(pilot, lambda: " : status  zombies" in text(app), "the first words")
        assert "? help  : command" in text(app).splitlines()[-1]
        await pilot.press(*"rela")
        await wait_for(pilot, lambda: "stop, clean, verify, launch, watch" in text(app), "meaning")
        await pilot.press("tab")
        prompt: Any = app.screen.query_one("Prompt")
        assert prompt.value == "relaunch"
        await pilot.press("escape")
        await pilot.pause()
        assert not app.screen.query("#hint")
        await pilot.press("slash")
        await pilot.pause()
        assert "fields: host, server, state, memory" in text(app)
        await pilot.press("escape")


@pytest.mark.parametrize(
    ("line", "shown"),
    [("serve", "serve does not end"), ("console", "console is this"),
     ("adopt ct129 900 --dry-run", "output of adopt ct129 900 --dry-run"),
     ("report 7d10", "output of report 7d10")],
)  # fmt: skip
async def test_commands_that_are_run_or_say_why_not(line: str, shown: str) -> None:
    app, *_ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("colon")
        app.screen.query_one("Prompt").value = line  # type: ignore[attr-defined]
        await pilot.press("enter")
        await wait_for(pilot, lambda: shown in text(app), shown)


async def test_watch_is_the_servers_screen_and_adopt_respects_read_only() -> None:
    app, _, actions = fake.app(read_only=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        app.lines.given("watch k26")
        await pilot.pause()
        assert isinstance(app.screen, ServerScreen)
        app.lines.given("adopt ct129 900 --yes")
        await pilot.pause()
        assert "adopt: this console is read-only" in text(app)
    assert actions.commands == []
