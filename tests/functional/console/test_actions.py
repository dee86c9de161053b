"""Every action of the table does what it says, on the screens that have it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from console.app import SpecopsApp
from console.keys import BY_ID, TABLE, KeyMap, document
from console.model import HostState, Step, StepKind
from console.screens.activity import ActivityScreen
from console.screens.bench import BenchScreen
from console.screens.fleet import Fleet
from console.screens.host import HostScreen
from console.screens.log import LogScreen
from console.screens.plan import PlanDialog
from console.screens.presets import PresetsScreen
from console.screens.server import ServerScreen
from tests.functional.console import fake
from tests.functional.console.steps import entry_of, seen, settle, show, text, wait_for
from widgets.log_view import LogView

SCREENS: dict[str, type[Any]] = {
    "fleet": Fleet, "host": HostScreen, "server": ServerScreen, "log": LogScreen,
    "presets": PresetsScreen, "activity": ActivityScreen, "bench": BenchScreen,
    "plan": PlanDialog,
}  # fmt: skip


def test_every_action_has_a_method_on_every_screen_that_has_it() -> None:
    for action in TABLE:
        for scope in action.scopes:
            if scope != "help":
                method = getattr(SCREENS[scope], f"action_{action.method}", None)
                assert method is not None, f"{scope} lacks {action.id}"


def test_no_key_means_two_things_on_a_screen() -> None:
    keys = KeyMap.make()
    assert keys.clashes() == {}


def test_upper_case_changes_and_lower_case_looks() -> None:
    moves = {"bottom", "previous-error", "previous-hit"}
    for action in TABLE:
        for key in action.keys:
            if len(key) == 1 and key.isalpha() and action.id != "confirm":
                assert key.isupper() == (action.dangerous or action.id in moves), action.id


def test_the_keys_page_is_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "keys.md"
    assert page.read_text(encoding="utf-8") == document(), "run: make docs"


Check = Callable[[SpecopsApp, Pilot[None], fake.FakeActions], Awaitable[None]]


async def press(pilot: Pilot[None], *ids: str) -> None:
    """Press the first key of each action."""
    for name in ids:
        await pilot.press(BY_ID[name].keys[0])
        await pilot.pause()


def log_of(app: SpecopsApp) -> LogView:
    return app.screen.query_one(LogView)


async def test_places() -> None:
    app, fleet, _ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for name, kind in (
            ("go-host", HostScreen), ("go-log", LogScreen), ("presets", PresetsScreen),
            ("activity", ActivityScreen), ("go-fleet", Fleet), ("open", ServerScreen),
            ("logs", LogScreen), ("back", ServerScreen), ("back", Fleet), ("back", Fleet),
        ):  # fmt: skip
            await press(pilot, name)
            assert isinstance(app.screen, kind), name
        await press(pilot, "help")
        assert "keys of fleet" in text(app)
        await pilot.press(*"relaunch")
        assert "search: relaunch" in text(app)
        assert "p takes others" in text(app)
        await pilot.press("escape")
        await press(pilot, "notices")
        assert "what happened" in text(app)
        await pilot.press("escape")
        await press(pilot, "refresh")
        assert fleet.refreshed == ["ct129"]
        await press(pilot, "shell")
        assert "would run: ssh -p 22 -l root -- ct129.example" in text(app)
        await press(pilot, "quit")
    assert app.return_code == 0


async def test_moving_marking_sorting_filtering() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        screen: Any = app.screen
        await press(pilot, "bottom")
        assert screen.where()[0] == "evil"
        await press(pilot, "up", "up")
        assert screen.where()[0] == "lost"
        await press(pilot, "top", "down")
        assert screen.where()[0] == "gpu7"
        await press(pilot, "page-down", "page-up")
        assert screen.where()[0] == "ct129"
        await press(pilot, "mark-all")
        assert len(screen.table.marked) == 5
        await press(pilot, "unmark", "mark")
        assert [row.view.host.name for row in screen.table.marked] == ["ct129"]
        await press(pilot, "top", "copy")
        assert "NEVER READY" in app.clipboard
        await press(pilot, "sort")
        await pilot.press("j", "enter")
        await pilot.pause()
        assert screen.table.rows[0].view.host.name == "ct129"
        assert screen.table.rows[-1].view.host.name == "lost"
        await press(pilot, "filter")
        await pilot.press(*"memory>80", "enter")
        await pilot.pause()
        assert [row.view.host.name for row in screen.table.rows] == ["ct129"]
        await press(pilot, "filter")
        await pilot.press(*"x>1", "enter")
        await pilot.pause()
        assert "is not a number" in text(app)
        await press(pilot, "back")
        assert len(screen.table.rows) == 5
    assert actions.planned == []


async def test_dangerous_ones_make_their_plan() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for name in ("launch", "stop", "kill-zombies", "clean"):
            await press(pilot, name)
            await seen(pilot, PlanDialog)
            await press(pilot, "cancel")
        await press(pilot, "relaunch")
        await seen(pilot, PlanDialog)
        await press(pilot, "choose")
        assert "with which presets?" in text(app)
        await pilot.press("j", "tab", "j", "enter")
        await seen(pilot, PlanDialog)
        await press(pilot, "choose")
        assert "with which presets?" in text(app)
        await pilot.press("escape")
        await press(pilot, "go-host")
        await press(pilot, "kill")
        await seen(pilot, PlanDialog)
        await pilot.press("escape")
        await press(pilot, "activity")
        await wait_for(pilot, lambda: "kz-1" in str(app.doing.hosts_of_plans), "audit")
        app.screen.table.select(app.screen.table.rows[0].key)  # type: ignore[attr-defined]
        for name in ("undo", "resume"):
            await press(pilot, name)
            await seen(pilot, PlanDialog)
            await pilot.press("escape")
    made = [(action, host, server) for action, host, server, _ in actions.planned]
    on = ("ct129", "kimi-k25")
    assert made == [
        ("launch", *on), ("stop", *on), ("kill-zombies", "ct129", None), ("clean", "ct129", None),
        ("relaunch", *on), ("relaunch", *on), ("kill", "ct129", None), ("undo", "ct129", None),
        ("resume", "ct129", None),
    ]  # fmt: skip
    assert actions.planned[4][3] == {"present": True}
    assert actions.planned[5][3] == {"speculative": "eagle3-tree", "nccl": "pcie-ll-ring"}
    assert actions.planned[7][3] == {"plan_id": "kz-1"}


async def test_the_fix_of_a_diagnosis_is_one_key() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await press(pilot, "down", "open")
        shown = text(app)
        assert "AssertionError" in shown
        assert "server_args.py:3809" in shown
        assert "F applies --speculative-num-steps 3" in shown
        await press(pilot, "fix")
        await seen(pilot, PlanDialog)
    action, host, server, options = actions.planned[0]
    assert (action, host, server) == ("relaunch", "gpu7", "k30")
    assert options["change"].flags == {"speculative-num-steps": 3}


async def test_a_device_is_reset_only_when_it_is_typed_and_only_where_it_asks() -> None:
    actions = fake.FakeActions()
    actions.confirm = "ct129:3"
    app, fleet, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await press(pilot, "go-host", "reset-gpu")
        await wait_for(pilot, lambda: "no driver of a device here asks" in text(app), "refusal")
        view = fleet.views["ct129"]
        assert view.snapshot is not None
        gpus = [
            replace(gpu, recovery_action="gpu reset" if gpu.index in (3, 5) else "none")
            for gpu in view.snapshot.gpus
        ]
        fleet.publish(replace(view, snapshot=replace(view.snapshot, gpus=tuple(gpus))))
        show(app)
        await pilot.pause()
        assert text(app).count("needs gpu reset") == 2
        assert "needs none" not in text(app)
        await press(pilot, "reset-gpu")
        await seen(pilot, PlanDialog)
        assert actions.planned[-1] == ("reset-gpu", "ct129", None, {"gpu": 3})
        assert "type ct129:3 first" in text(app)
        await pilot.press(*"ct129")
        await pilot.pause()
        await pilot.press("enter")  # the host's name is not enough; Enter leaves it
        await wait_for(pilot, lambda: len(actions.planned) == 2, "the plan of the next device")
        assert actions.executed == []
        assert actions.planned[-1][3] == {"gpu": 5}
        await seen(pilot, PlanDialog)
        await pilot.press(*"ct129:3")
        await pilot.pause()
        await pilot.press("y")
        await wait_for(pilot, lambda: len(actions.executed) == 1, "execution")


async def test_stacks_are_offered_before_what_hangs_is_ended() -> None:
    actions = fake.FakeActions()
    actions.offered = (
        Step(StepKind.DUMP, "ct129", "take the stacks", argv=("py-spy", "dump", "--pid", "4711")),
    )
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await press(pilot, "kill-zombies")
        await seen(pilot, PlanDialog)
        assert "t  stacks first" in text(app)
        assert "py-spy dump" not in text(app)
        await press(pilot, "dump")
        await pilot.pause()
        assert "py-spy dump --pid 4711" in text(app)
        await press(pilot, "dump")
        await pilot.pause()
        assert "py-spy dump" not in text(app)
        await press(pilot, "dump")
        await pilot.press("y")
        await wait_for(pilot, lambda: len(actions.executed) == 1, "execution")
    assert actions.executed[0].steps[0].kind is StepKind.DUMP


async def test_server_screen_keys() -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await press(pilot, "open", "whole")
        assert "sglang.launch_server" in text(app)
        await pilot.press("escape")
        await press(pilot, "diff")
        assert "--speculative-algorithm" in text(app)
        await pilot.press("escape")
        await press(pilot, "bench")
        await wait_for(pilot, lambda: isinstance(app.screen, BenchScreen), "bench")
        await press(pilot, "bench")
        assert "kimi-k25 does not serve now" in text(app)
        await press(pilot, "back")
        await press(pilot, "copy")
        assert "python3 -m sglang.launch_server" in app.clipboard
        await press(pilot, "next-error")
        await wait_for(pilot, lambda: isinstance(app.screen, LogScreen), "log")
        await wait_for(pilot, lambda: "PAUSED" in text(app), "at the error")
    assert actions.benched == []


async def test_log_keys(tmp_path: Path) -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await press(pilot, "logs")
        await wait_for(pilot, lambda: "ValueError" in text(app), "log")
        view = log_of(app)
        await press(pilot, "previous-error")
        assert view.store.text(view.cursor).startswith("ValueError")
        await press(pilot, "next-error")  # the only error: round the end
        assert view.store.text(view.cursor).startswith("ValueError")
        await press(pilot, "copy")
        assert app.clipboard.startswith("[2026-11-29 05:58:22 TP3] Scheduler hit an exception")
        assert app.clipboard.splitlines()[-1].startswith("ValueError: Target")
        await press(pilot, "fold")
        assert "scheduler.py" in text(app)
        await press(pilot, "fold", "timestamps")
        assert "2026-11-29" not in text(app)
        await press(pilot, "timestamps", "follow")
        assert "FOLLOW" in text(app)
        await press(pilot, "follow", "wrap")
        assert "is greater than the derived context_length" in text(app)
        await press(pilot, "wrap", "right")
        assert "[2026-11-29" not in text(app)
        await press(pilot, "left", "top", "search")
        await pilot.press(*"avail", "enter")
        await wait_for(pilot, lambda: "/avail hit " in text(app), "hits")
        first = view.cursor
        await press(pilot, "next-hit")
        assert view.cursor > first
        await press(pilot, "previous-hit")
        assert view.cursor == first
        await press(pilot, "narrow")
        await pilot.press(*"!TP", "enter")
        await wait_for(pilot, lambda: "filter !TP" in text(app), "filter")
        assert "TP0" not in text(app).split("FOLLOW")[0].split("PAUSED")[0].split("specops")[1][60:]
        await press(pilot, "save")
        await wait_for(pilot, lambda: "saved" in text(app), "saved")
        (saved,) = (tmp_path / "state" / "specops" / "logs").iterdir()
        assert b"TP0" not in saved.read_bytes()
        assert saved.stat().st_mode & 0o777 == 0o600
        await press(pilot, "back", "back")
        assert isinstance(app.screen, LogScreen)
        await press(pilot, "mark")
        assert len(view.marks) == 1
        await press(pilot, "unmark")
        assert not view.marks


async def test_presets_browse_diff_history_and_edit_a_copy(tmp_path: Path) -> None:
    app, _, _ = fake.app(hosts_file=tmp_path / "hosts.yaml")
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "presets", "filter")
        await pilot.press(*"name:eagle3-3step", "enter")
        await pilot.pause()
        await press(pilot, "open")
        assert "--speculative-num-steps" in text(app)
        await pilot.press("escape")
        await press(pilot, "diff")
        await pilot.press("enter")
        await pilot.pause()
        assert "→" in text(app)
        await pilot.press("escape")
        await press(pilot, "history")
        assert "run 7d10" in text(app)
        await pilot.press("escape")
        await press(pilot, "edit")
        form: Any = app.screen
        steps = entry_of(form, "speculative-num-steps")
        steps.value = "[1"
        await pilot.pause()
        await pilot.press("f2")
        await pilot.pause()
        assert app.screen is form  # what is wrong is said, nothing is saved
        assert "a list ends with ]" in text(app)
        assert not (tmp_path / "presets").exists()
        steps.value = "5"
        await pilot.pause()
        assert "was 3" in text(app)
        await pilot.press("f2")
        await wait_for(pilot, lambda: isinstance(app.screen, PresetsScreen), "saved")
        await press(pilot, "copy")
    saved = tmp_path / "presets" / "speculative" / "my-eagle3-3step.yaml"
    assert "speculative-num-steps: 5" in saved.read_text(encoding="utf-8")


async def test_plan_keys(tmp_path: Path) -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("S")
        await seen(pilot, PlanDialog)
        await press(pilot, "whole")
        assert "pid 4711  root  python3 -m sglang" in text(app)
        await press(pilot, "dry-run")
        assert "nothing done" in text(app)
        (written,) = (tmp_path / "state" / "specops" / "plans").iterdir()
        assert json.loads(written.read_text(encoding="utf-8"))["action"] == "stop"
        assert written.stat().st_mode & 0o777 == 0o600
        await press(pilot, "confirm")
        await wait_for(pilot, lambda: "done" in text(app), "result")
    assert len(actions.executed) == 1


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("status", "output of status"),
        ("host gpu7", "fleet > gpu7"),
        ("server k26", "fleet > dflash > k26"),
        ("logs k26", "FOLLOW"),
        ("stop k26", "[ Cancel ]"),
        ("relaunch kimi-k25 --preset eagle3-tree", "[ Cancel ]"),
        ("kill-zombies ct129", "[ Cancel ]"),
        ("stat", "no command 'stat'"),
        ("host ct12", "no host 'ct12'"),
        ("stop nobody", "no server 'nobody'"),
        ("theme nope", "no theme 'nope'"),
        ('stop "', "No closing quotation"),
    ],
)
async def test_command_line(line: str, shown: str) -> None:
    app, _, actions = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await press(pilot, "command")
        app.screen.query_one("Prompt").value = line  # type: ignore[attr-defined]
        await pilot.press("enter")
        await wait_for(pilot, lambda: shown in text(app), shown)
    assert actions.executed == []


async def test_command_completion_and_history() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await press(pilot, "command")
        prompt: Any = app.screen.query_one("Prompt")
        await pilot.press(*"relaunch")
        prompt.value = "relaunch ki"
        await pilot.press("tab")
        assert prompt.value == "relaunch kimi-k25"
        await pilot.press("escape")
        await press(pilot, "command")
        await pilot.press(*"stat", "enter")
        await pilot.pause()
        await press(pilot, "command")
        await pilot.press("up")
        assert app.screen.query_one("Prompt").value == "stat"  # type: ignore[attr-defined]


async def test_remapped_keys_and_a_wrong_one() -> None:
    app, _, _ = fake.app(config=fake.config(keys={"open": "x"}))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("enter")
        assert len(app.screen_stack) == 2
        await pilot.press("x")
        await pilot.pause()
        assert isinstance(app.screen, ServerScreen)
    for keys, said in (({"open": "j"}, "key j is both"), ({"opne": "j"}, "no action 'opne'")):
        app, *_ = fake.app(config=fake.config(keys=keys))
        async with app.run_test() as pilot:
            await wait_for(pilot, lambda: app.failure is not None, said)  # noqa: B023
        assert said in str(app.failure)
        assert app.return_code == 2


async def test_a_lost_host_keeps_its_last_values_and_says_how_old() -> None:
    app, fleet, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        gone = replace(
            fleet.views["dflash"], state=HostState.UNREACHABLE, error="no answer in 5 s",
            seen_at=fake.NOW - 65,
        )  # fmt: skip
        fleet.publish(gone)
        show(app)
        await pilot.pause()
        row = next(part for part in text(app).splitlines() if "dflash" in part)
        assert "72 %" in row
        assert "UNREACHABLE" in row
        assert "1m05" in row
