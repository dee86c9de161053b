"""Nothing is done without ``y``, nothing to another process than the one that was shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.keys import CLI_WORDS, OWN_WORDS, TABLE, KeyMap
from console.model import HostState, ProcessId, StepKind
from console.screens.base import keyed
from console.screens.plan import PlanDialog
from tests.functional.console import fake
from tests.functional.console.steps import seen, settle, show, text, wait_for
from tests.functional.console.test_actions import SCREENS

DANGEROUS_HERE = ("R", "L", "S", "Z", "C")


async def test_enter_and_escape_cancel_every_plan() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for key in DANGEROUS_HERE:
            for leave in ("enter", "escape", "q"):
                await pilot.press(key)
                await seen(pilot, PlanDialog)
                await pilot.press(leave)
                await wait_for(pilot, lambda: len(app.screen_stack) == 2, f"{leave} closes {key}")
    assert len(actions.planned) == 3 * len(DANGEROUS_HERE)
    assert actions.executed == []


async def test_only_y_executes_and_exactly_the_plan_shown() -> None:
    app, fleet, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("S")
        await seen(pilot, PlanDialog)
        shown = app.screen.plan  # type: ignore[attr-defined]
        await pilot.press("y")
        await wait_for(pilot, lambda: "stop kimi-k25: done" in text(app), "result")
        assert actions.executed == [shown]
        assert "[ Close ]" in text(app)
        await pilot.press("y")  # a second y does nothing
        await pilot.press("escape")
        assert len(app.screen_stack) == 2
    assert len(actions.executed) == 1
    assert set(fleet.refreshed) == {"ct129"}  # after each step, and at the end
    assert not fleet.running


async def test_kill_after_re_sort_names_the_process_that_was_pointed_at() -> None:
    app, fleet, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await pilot.pause()
        await pilot.press("j")  # bob's training run
        screen = app.screen
        assert screen.table.row.process.id.pid == 900  # type: ignore[attr-defined]
        await pilot.press("K")
        await seen(pilot, PlanDialog)
        view = fleet.views["ct129"]
        assert view.snapshot is not None
        left = tuple(
            replace(p, rss_mib=99_000.0 if p.id.pid == 4723 else p.rss_mib)
            for p in view.snapshot.processes
            if p.id.pid != 900
        )
        fleet.publish(replace(view, snapshot=replace(view.snapshot, processes=left)))
        show(app)
        await pilot.press("y")
        await wait_for(pilot, lambda: bool(actions.executed), "execution")
    wanted = ProcessId(900, 9000, fake.BOOT)
    assert actions.planned[-1] == ("kill", "ct129", None, {"processes": (wanted,)})
    assert [t.process for t in actions.executed[0].steps[0].targets] == [wanted]


async def test_the_cursor_stays_with_its_row_when_the_order_changes() -> None:
    app, fleet, actions = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("j")
        assert app.screen.where() == ("gpu7", "k30")  # type: ignore[attr-defined]
        lost = replace(fleet.views["dflash"], state=HostState.UNREACHABLE, error="gone")
        fleet.publish(lost)
        show(app)
        await pilot.pause()
        assert app.screen.where() == ("gpu7", "k30")  # type: ignore[attr-defined]
        await pilot.press("S")
        await wait_for(pilot, lambda: bool(actions.planned), "plan")
    assert actions.planned[0][:3] == ("stop", "gpu7", "k30")


async def test_several_targets_want_the_hosts_name_typed() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await pilot.pause()
        await pilot.press("space", "space", "space", "K")
        await seen(pilot, PlanDialog)
        assert "type the host's name" in text(app)
        await pilot.press("y", "enter")  # y is typed into the line, Enter cancels
        await wait_for(pilot, lambda: len(app.screen_stack) == 3, "cancelled")
        assert actions.executed == []
        await pilot.press("K")
        await seen(pilot, PlanDialog)
        await pilot.press(*"ct129")
        await pilot.pause()
        assert actions.executed == []
        await pilot.press("y")
        await wait_for(pilot, lambda: len(actions.executed) == 1, "execution")
    assert len(actions.executed[0].steps[0].targets) == 3


async def test_a_preflight_error_locks_the_dialog() -> None:
    actions = fake.FakeActions()
    actions.findings = [fake.WARNING, fake.ERROR]
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("L")
        await wait_for(pilot, lambda: "1 error, 1 warning" in text(app), "findings")
        assert "draft context 131072 against target 262144" in text(app)
        assert "refused: 1 error" in text(app)
        assert "do it" not in text(app)
        await pilot.press("y")
        await wait_for(pilot, lambda: "Nothing done" in text(app), "why not")
        assert ":launch kimi-k25 --skip-preflight" in text(app)
        assert actions.executed == []
        await pilot.press("escape")
        actions.findings = []  # such a plan asks nobody
        await pilot.press(*":launch kimi-k25 --skip-preflight", "enter")
        await wait_for(pilot, lambda: "y  do it" in text(app), "the plan without preflight")
        await pilot.press("y")
        await wait_for(pilot, lambda: bool(actions.executed), "execution")
    assert actions.planned[-1] == ("launch", "ct129", "kimi-k25", {"skip_preflight": True})


async def test_a_long_plan_that_has_ended_shows_every_step() -> None:
    app, *_ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("S")
        dialog = await seen(pilot, PlanDialog)
        first, *_ = dialog.plan.steps
        steps = tuple(replace(first, kind=kind) for kind in StepKind)[:9]
        await pilot.press("escape")
        plan = replace(dialog.plan, steps=steps, summary=tuple(f"changes {n}" for n in range(12)))
        shown = app.made(PlanDialog, plan, None)
        app.push_screen(shown)
        await seen(pilot, PlanDialog)
        await pilot.press("y")
        await wait_for(pilot, lambda: "[ Close ]" in text(app), "the end")
        for number, step in enumerate(steps, 1):
            assert f"{number} {step.kind.value}" in text(app)
        assert text(app).count("✓") == len(steps)
        assert "stop kimi-k25: done" in text(app)


async def test_a_key_that_a_read_only_console_lacks_says_so() -> None:
    app, _, actions = fake.app(read_only=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for key in "RLSZC":
            title = next(a.title for a in TABLE if a.keys == (key,) and "fleet" in a.scopes)
            await pilot.press(key)
            await wait_for(
                pilot, lambda title=title: f"{title}: this console is read-only" in text(app), key
            )
        await pilot.press("slash", "R", "escape")  # a letter of a line is only that
        await pilot.pause()
        assert app.notices.all[-1].text == "clean: this console is read-only"
    assert actions.planned == []


async def test_a_failed_step_is_shown_and_stays_in_the_notices() -> None:
    actions = fake.FakeActions()
    actions.outcome = "failed"
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("S")
        await seen(pilot, PlanDialog)
        await pilot.press("y")
        await wait_for(pilot, lambda: "signal failed" in text(app), "failure")
        await pilot.press("escape", "n")
        await pilot.pause()
        assert "stop kimi-k25: signal failed: as planned" in text(app)


async def test_a_refused_plan_is_one_line() -> None:
    actions = fake.FakeActions()
    actions.refuse = "another console holds the lock"
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("S")
        await wait_for(pilot, lambda: "holds the lock" in text(app), "refusal")
        assert len(app.screen_stack) == 2


@pytest.mark.parametrize("scope", SCREENS)
def test_read_only_has_no_dangerous_binding_at_all(scope: str) -> None:
    keys = KeyMap.make(read_only=True)
    assert [action.id for action in keys.table if action.dangerous] == []
    dangerous = {action.method for action in TABLE if action.dangerous}
    made = keyed(SCREENS[scope], scope, keys).BINDINGS
    bound = {binding.action for binding in made}
    assert bound
    assert not bound & dangerous


def test_a_recording_has_no_shell_on_its_hosts() -> None:
    keys = KeyMap.make(replay=True)
    assert not keys.has("shell")
    assert keys.lacking("fleet", "exclamation_mark") is not None


def test_a_read_only_console_has_no_shell_on_a_host() -> None:
    keys = KeyMap.make(read_only=True)
    assert not keys.has("shell")
    assert keys.lacking("fleet", "exclamation_mark") is not None
    assert KeyMap.make().has("shell")


async def test_a_read_only_console_puts_no_load_on_a_server() -> None:
    app, _, actions = fake.app(read_only=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for line in ("bench k26", "bench k26 --concurrency 8"):
            app.lines.given(line)
            await pilot.pause()
            await pilot.press("b")
            await wait_for(pilot, lambda: "read-only, and measuring" in text(app), line)
            app.notices.all.clear()
            await pilot.press("y")
            await pilot.pause()
    assert actions.benched == []


@pytest.mark.parametrize("read_only", [False, True])
async def test_read_only_has_no_dangerous_entry_in_palette_bar_or_help(read_only: bool) -> None:
    app, _, _ = fake.app(read_only=read_only)
    dangerous = {action.title for action in TABLE if action.dangerous and action.id != "confirm"}
    offered: set[str] = set()
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        for key in ("1", "2", "escape enter", "l", "p", "a", "1 b"):
            await pilot.press(*key.split())
            await pilot.pause()
            entries = list(app.get_system_commands(app.screen))
            offered |= {entry.title.rsplit("  ", 1)[0] for entry in entries}
            bar = text(app).splitlines()[-1]
            assert not (read_only and any(f"  {a.keys[0]} {a.title}" in bar
                                          for a in TABLE if a.dangerous)), bar  # fmt: skip
    assert len(offered) > 20
    assert offered & dangerous == (set() if read_only else dangerous)


@pytest.mark.parametrize("line", ["stop k26", "relaunch kimi-k25", "kill-zombies ct129"])
async def test_read_only_refuses_the_same_by_command_line(line: str) -> None:
    app, _, actions = fake.app(read_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press(*DANGEROUS_HERE)
        await pilot.press(
            "colon", *(("space" if c == " " else "minus" if c == "-" else c) for c in line)
        )
        await pilot.press("enter")
        await wait_for(pilot, lambda: "read-only" in text(app), "refusal")
        assert "READ-ONLY" in text(app)
    assert actions.planned == []


LINES = {
    "kill-zombies": "ct129 --yes", "reset-gpu": "ct129 0 --yes", "launch": "k26 --yes",
    "stop": "k26 --yes", "relaunch": "k26 --preset eagle3-tree --yes", "resume": "kz-1 --yes",
    "undo": "kz-1 --yes", "adopt": "ct129 4711 --yes", "hosts": "", "q": None,
    "doctor": "--purge ct129 --yes",
}  # fmt: skip
"""What to type after a word for it to do its worst; the others only look. ``q`` leaves."""


@pytest.mark.parametrize("word", [word for word in {**CLI_WORDS, **OWN_WORDS} if word != "q"])
@pytest.mark.parametrize("prefix", ["", "specops "])
async def test_no_word_of_the_command_line_changes_anything_when_read_only(
    word: str, prefix: str
) -> None:
    app, _, actions = fake.app(read_only=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        app.lines.given(f"{prefix}{word} {LINES.get(word, 'k26')}".rstrip())
        await pilot.pause()
        await pilot.press("y")
        await pilot.pause()
        if word in LINES:
            assert any("read-only" in notice.text for notice in app.notices.all), word
            assert len(app.screen_stack) == 2, "nothing is even asked"
    assert actions.planned == []
    assert actions.executed == []
    assert actions.benched == []
    assert not [line for line in actions.commands if line.split()[0] in LINES]


async def test_no_palette_entry_of_a_read_only_console_can_do_anything() -> None:
    """By the method that it calls, whatever its words are."""
    app, _, _ = fake.app(read_only=True)
    dangerous = {f"action_{action.method}" for action in TABLE if action.dangerous}
    called: set[str] = set()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for key in ("1", "2", "escape enter", "l", "p", "a", "1 b"):
            await pilot.press(*key.split())
            await pilot.pause()
            entries = app.get_system_commands(app.screen)
            called |= {entry.callback.__name__ for entry in entries}
    assert len(called) > 20
    assert called & dangerous == set()


async def test_leaving_asks_while_a_plan_runs() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        plan = await actions.plan("stop", "ct129", "kimi-k25")
        app.doing.running[plan.id] = plan
        await pilot.press("q")
        await pilot.pause()
        assert app.is_running
        assert "still running: stop on ct129" in text(app)
        app.doing.running.clear()
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 0


async def test_a_read_only_console_resets_nothing() -> None:
    app, _, actions = fake.app(read_only=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("2", "D")
        await pilot.press(*":reset-gpu ct129 3", "enter")
        await wait_for(pilot, lambda: "read-only" in text(app), "refusal")
    assert actions.planned == []
