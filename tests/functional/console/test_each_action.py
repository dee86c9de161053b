"""Every action of the table, by every one of its keys, done for real: a new one needs an effect.

An effect is a function named after what is to be seen; it begins on a screen, presses the key and
asserts what that did. The walk fails for an action that has none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from console.app import SpecopsApp
from console.keys import REPLAY, SCOPES, TABLE, Action
from console.model import ProcessId, Step, StepKind
from console.screens.activity import ActivityScreen
from console.screens.bench import BenchScreen
from console.screens.fleet import Fleet
from console.screens.host import HostScreen
from console.screens.log import LogScreen
from console.screens.opening import Prepared
from console.screens.plan import PlanDialog
from console.screens.ports import ActionsPort, FleetPort
from console.screens.presets import PresetsScreen
from console.screens.prompts import ScreenPrompts
from console.screens.server import ServerScreen
from tests.functional.console import fake
from tests.functional.console.steps import settle, text, wait_for
from widgets.log_view import LogView
from widgets.prompt import Prompt

ROWS = ("ct129", "gpu7", "lost", "dflash", "evil")
"""The fleet of the fakes from top to bottom: what needs somebody first."""


@dataclass
class FakePlayer:
    """A recording that is only its controls."""

    position: float = 60.0
    speed: float = 1.0
    paused: bool = False

    def now(self) -> float:
        return fake.NOW

    def status(self) -> str:
        return f"{self.position:.0f} s {self.speed:g}x"

    def pause(self, paused: bool) -> None:
        self.paused = paused

    def seek(self, position: float) -> None:
        self.position = position


@dataclass
class Desk:
    """A console, and the key whose effect is looked for."""

    app: SpecopsApp
    pilot: Pilot[None]
    fleet: fake.FakeFleet
    actions: fake.FakeActions
    key: str
    folder: Path
    player: FakePlayer = field(default_factory=FakePlayer)

    @property
    def screen(self) -> Any:
        return self.app.screen

    @property
    def log(self) -> LogView:
        return self.app.screen.query_one(LogView)

    @property
    def host(self) -> str | None:
        """The host at the cursor."""
        where: tuple[str | None, str | None] = self.screen.where()
        return where[0]

    async def tap(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await self.pilot.pause()

    async def press(self) -> None:
        await self.tap(self.key)

    async def until(self, what: str) -> None:
        await wait_for(self.pilot, lambda: what in text(self.app), what)

    async def on(self, screen: type[Any]) -> None:
        await wait_for(self.pilot, lambda: isinstance(self.app.screen, screen), screen.__name__)

    async def asked(self, what: str) -> None:
        """An input line is open."""
        await wait_for(self.pilot, lambda: bool(self.screen.query(Prompt)), "an input line")
        assert self.screen.query_one(Prompt).what == what

    async def in_log(self) -> None:
        await self.tap("l")
        await self.until("ValueError")

    async def in_plan(self) -> None:
        await self.tap("S")
        await self.on(PlanDialog)


Effect = Callable[[Desk], Awaitable[None]]
EFFECTS: dict[str, Effect] = {}


def effect(*ids: str) -> Callable[[Effect], Effect]:
    """The effect of these actions."""

    def keep(function: Effect) -> Effect:
        for name in ids:
            assert name not in EFFECTS, name
            EFFECTS[name] = function
        return function

    return keep


def _opens(action: str, before: tuple[str, ...], screen: type[Any]) -> None:
    async def seen(desk: Desk) -> None:
        await desk.tap(*before)
        assert not isinstance(desk.screen, screen)
        await desk.press()
        await desk.on(screen)

    effect(action)(seen)


_opens("open", (), ServerScreen)
_opens("logs", (), LogScreen)
_opens("go-log", (), LogScreen)
_opens("go-host", (), HostScreen)
_opens("presets", (), PresetsScreen)
_opens("activity", (), ActivityScreen)
_opens("bench", ("enter",), BenchScreen)
_opens("go-fleet", ("enter",), Fleet)
_opens("back", ("2",), Fleet)


def _proposes(action: str, *before: str, **options: object) -> None:
    async def seen(desk: Desk) -> None:
        await desk.tap(*before)
        await desk.press()
        await desk.on(PlanDialog)
        name, host, _, given = desk.actions.planned[-1]
        assert (name, host) == (action, "ct129")
        assert {key: given.get(key) for key in options} == options
        assert desk.actions.executed == []

    effect(action)(seen)


_proposes("launch")
_proposes("stop")
_proposes("clean")
_proposes("kill-zombies")
_proposes("kill", "2", processes=(ProcessId(4711, 47110, fake.BOOT),))


@effect("undo", "resume")
async def of_the_plan_at_the_cursor(desk: Desk) -> None:
    await desk.tap("a")
    await desk.until("kill-zombies")
    await wait_for(desk.pilot, lambda: "kz-1" in desk.app.doing.hosts_of_plans, "audit")
    desk.screen.table.select(desk.screen.table.rows[0].key)
    await desk.press()
    await desk.on(PlanDialog)
    (made,) = desk.actions.planned
    assert made[0] in ("undo", "resume")
    assert made[3] == {"plan_id": "kz-1"}


@effect("relaunch")
async def shows_the_plan_with_the_presets_that_it_has(desk: Desk) -> None:
    await desk.press()
    await desk.on(PlanDialog)
    assert desk.actions.planned[0][:3] == ("relaunch", "ct129", "kimi-k25")


@effect("fix")
async def relaunches_with_the_change(desk: Desk) -> None:
    await desk.tap(
        "j",
        "enter",
    )
    await desk.on(ServerScreen)
    await desk.press()
    await desk.on(PlanDialog)
    name, host, server, options = desk.actions.planned[0]
    assert (name, host, server) == ("relaunch", "gpu7", "k30")
    assert options["change"].flags == {"speculative-num-steps": 3}


@effect("help")
async def shows_the_keys(desk: Desk) -> None:
    await desk.press()
    await desk.until("keys of fleet")


@effect("command")
async def opens_the_command_line(desk: Desk) -> None:
    await desk.press()
    await desk.asked(":")


@effect("shell")
async def runs_ssh(desk: Desk) -> None:
    await desk.press()
    await desk.until("would run: ssh -p 22 -l root -- ct129.example")


def _moves(action: str, before: tuple[str, ...], to: str) -> None:
    async def seen(desk: Desk) -> None:
        await desk.tap(*before)
        assert desk.host != to
        await desk.press()
        assert desk.host == to

    effect(action)(seen)


_moves("down", (), ROWS[1])
_moves("up", ("G",), ROWS[3])
_moves("bottom", (), ROWS[4])
_moves("top", ("G",), ROWS[0])
_moves("page-down", (), ROWS[4])
_moves("page-up", ("G",), ROWS[0])


@effect("filter")
async def keeps_matching_rows(desk: Desk) -> None:
    await desk.press()
    await desk.asked("/")
    await desk.tap(*"gpu7", "enter")
    assert [row.view.host.name for row in desk.screen.table.rows] == ["gpu7"]


@effect("sort")
async def sorts_by_the_chosen_column(desk: Desk) -> None:
    await desk.press()
    await desk.tap("j", "enter")
    assert desk.screen.order is not None


@effect("mark")
async def marks_the_row(desk: Desk) -> None:
    await desk.press()
    assert [row.view.host.name for row in desk.screen.table.marked] == ["ct129"]


@effect("mark-all")
async def marks_all(desk: Desk) -> None:
    await desk.press()
    assert len(desk.screen.table.marked) == len(ROWS)


@effect("unmark")
async def takes_marks_away(desk: Desk) -> None:
    await desk.tap("asterisk")
    await desk.press()
    assert list(desk.screen.table.marked) == []


@effect("refresh")
async def asks_the_host_again(desk: Desk) -> None:
    await desk.press()
    assert desk.fleet.refreshed == ["ct129"]


@effect("copy")
async def goes_to_the_clipboard(desk: Desk) -> None:
    await desk.press()
    assert "NEVER READY" in desk.app.clipboard


@effect("notices")
async def shows_what_happened(desk: Desk) -> None:
    desk.app.say("something happened")
    await desk.press()
    await desk.until("what happened")
    assert "something happened" in text(desk.app)


@effect("diff")
async def compares_launch_and_presets(desk: Desk) -> None:
    await desk.tap("enter")
    await desk.press()
    await desk.until("--speculative-algorithm")


@effect("whole")
async def shows_the_whole_line(desk: Desk) -> None:
    await desk.in_plan()
    assert "pid 4711  root" not in text(desk.app)
    await desk.press()
    await desk.until("pid 4711  root  python3 -m sglang")


# ---- log


@effect("next-error", "previous-error")
async def goes_to_the_error(desk: Desk) -> None:
    await desk.in_log()
    await desk.press()
    assert desk.log.store.text(desk.log.cursor).startswith("ValueError")


@effect("follow")
async def pauses_and_follows(desk: Desk) -> None:
    await desk.in_log()
    assert "FOLLOW" in text(desk.app)
    await desk.press()
    await desk.until("PAUSED")


@effect("search")
async def finds_text(desk: Desk) -> None:
    await desk.in_log()
    await desk.press()
    await desk.tap(*"avail", "enter")
    await desk.until("/avail hit ")


@effect("next-hit", "previous-hit")
async def goes_to_another_hit(desk: Desk) -> None:
    await desk.in_log()
    await desk.tap("g", "slash", *"avail", "enter")
    await desk.until("/avail hit ")
    before = desk.log.cursor
    await desk.press()
    assert desk.log.cursor != before
    assert "avail" in desk.log.store.text(desk.log.cursor)


@effect("narrow")
async def shows_only_matching_lines(desk: Desk) -> None:
    await desk.in_log()
    await desk.press()
    await desk.tap(*"!TP", "enter")
    await desk.until("filter !TP")
    assert "Init torch distributed" not in text(desk.app)


@effect("fold")
async def unfolds_frames(desk: Desk) -> None:
    await desk.in_log()
    assert "frames" in text(desk.app)
    await desk.tap("e")
    await desk.press()
    await desk.until("scheduler.py")


@effect("timestamps")
async def hides_times(desk: Desk) -> None:
    await desk.in_log()
    assert "2026-11-29" in text(desk.app)
    await desk.press()
    assert "2026-11-29" not in text(desk.app)


@effect("wrap")
async def shows_long_lines_whole(desk: Desk) -> None:
    await desk.in_log()

    def whole() -> bool:  # however the line is cut into rows
        rows = [row.rstrip(" │✖┃").removeprefix("  ") for row in text(desk.app).splitlines()]
        return 'model_config.py", line 541, in derive' in "".join(rows)

    assert not whole()
    await desk.press()
    await wait_for(desk.pilot, whole, "the whole line")


@effect("right", "left")
async def moves_sideways(desk: Desk) -> None:
    await desk.in_log()
    if desk.key == "left":
        await desk.tap("right")
    before = "[2026-11-29" in text(desk.app)
    await desk.press()
    assert ("[2026-11-29" in text(desk.app)) is not before


@effect("save")
async def writes_a_private_file(desk: Desk) -> None:
    await desk.in_log()
    await desk.press()
    await desk.until("saved")
    (saved,) = (desk.folder / "state" / "specops" / "logs").iterdir()
    assert saved.stat().st_mode & 0o777 == 0o600


# ---- presets


@effect("edit")
async def opens_the_form(desk: Desk) -> None:
    await desk.tap("4")
    await desk.on(PresetsScreen)
    await desk.press()
    await wait_for(desk.pilot, lambda: bool(desk.screen.query("#text")), "form")


@effect("use")
async def asks_before_it_is_the_servers_own(desk: Desk) -> None:
    await desk.tap("4", "slash", *"name:eagle3-1step", "enter")
    await desk.press()
    await desk.until("speculative: eagle3-3step → eagle3-1step")
    await desk.until("▸ leave it")


@effect("reset-gpu")
async def resets_the_devices_that_ask(desk: Desk) -> None:
    await desk.tap("2")
    await desk.on(HostScreen)
    await desk.press()
    await desk.until("no driver of a device here asks for a reset")
    view = desk.fleet.views["ct129"]
    assert view.snapshot is not None
    first, *rest = view.snapshot.gpus
    gpus = (replace(first, recovery_action="reset"), *rest)
    desk.fleet.publish(replace(view, snapshot=replace(view.snapshot, gpus=gpus)))
    await desk.until("D reset gpu")  # it is offered now
    await desk.press()
    await wait_for(desk.pilot, lambda: bool(desk.actions.planned), "a plan")
    action, host, _, options = desk.actions.planned[-1]
    assert (action, host, options) == ("reset-gpu", "ct129", {"gpu": 0})


@effect("history")
async def shows_the_runs_of_a_preset(desk: Desk) -> None:
    await desk.tap("4", "slash", *"name:eagle3-3step", "enter")
    await desk.press()
    await desk.until("run 7d10")


# ---- the plan dialog


@effect("confirm")
async def does_exactly_the_plan(desk: Desk) -> None:
    await desk.in_plan()
    await desk.press()
    await wait_for(desk.pilot, lambda: len(desk.actions.executed) == 1, "executed")
    assert desk.actions.executed[0].action == "stop"


@effect("dry-run")
async def writes_the_plan(desk: Desk) -> None:
    await desk.in_plan()
    await desk.press()
    await desk.until("nothing done")
    assert len(list((desk.folder / "state" / "specops" / "plans").iterdir())) == 1
    assert desk.actions.executed == []


@effect("dump")
async def puts_the_stacks_before_the_rest(desk: Desk) -> None:
    plan = await desk.actions.plan("stop", "ct129", "kimi-k25")
    stacks = Step(StepKind.DUMP, "ct129", "take the stacks of 8 processes")
    desk.app.push_screen(desk.app.made(PlanDialog, replace(plan, offered=(stacks,)), None))
    await desk.on(PlanDialog)
    await desk.until("stacks first")
    await desk.press()
    await desk.until("1 dump")
    assert desk.screen.plan.steps == (stacks, *plan.steps)
    await desk.press()
    await desk.until("1 signal")
    assert desk.screen.plan.steps == plan.steps


@effect("choose")
async def asks_for_presets_instead(desk: Desk) -> None:
    await desk.tap("L")
    await desk.on(PlanDialog)
    await desk.press()
    await desk.until("with which presets?")
    assert desk.actions.executed == []


@effect("cancel")
async def does_nothing(desk: Desk) -> None:
    await desk.in_plan()
    await desk.press()
    await desk.on(Fleet)
    assert desk.actions.executed == []


@effect("quit")
async def leaves(desk: Desk) -> None:
    await desk.press()
    await wait_for(desk.pilot, lambda: not desk.app.is_running, "the end")


# ---- a recording


@effect("pause")
async def holds_and_goes_on(desk: Desk) -> None:
    await desk.press()
    assert desk.player.paused
    await desk.press()
    assert not desk.player.paused


@effect("earlier", "later")
async def goes_ten_seconds(desk: Desk) -> None:
    await desk.press()
    assert desk.player.position == (50.0 if desk.key == "left" else 70.0)


@effect("much-earlier", "much-later")
async def goes_ten_minutes(desk: Desk) -> None:
    before = desk.player.position
    await desk.press()
    wanted = before + (-600 if desk.key == "left_curly_bracket" else 600)
    assert desk.player.position == wanted


@effect("slower", "faster")
async def changes_the_speed(desk: Desk) -> None:
    await desk.press()
    assert desk.player.speed == (0.5 if desk.key == "less_than_sign" else 2.0)


# ---- the walk


def _walk() -> list[Any]:
    return [
        pytest.param(action, key, action in REPLAY, id=f"{action.id}-{key}")
        for action in (*TABLE, *REPLAY)
        for key in action.keys
    ]


@pytest.mark.parametrize(("action", "key", "replay"), _walk())
async def test_the_action_does_what_it_is_for(
    action: Action, key: str, replay: bool, tmp_path: Path
) -> None:
    assert action.id in EFFECTS, f"{action.id}: write its effect here"
    fleet, actions, player = fake.FakeFleet(), fake.FakeActions(), FakePlayer()

    async def opener(prompts: ScreenPrompts) -> tuple[FleetPort, ActionsPort]:
        return fleet, actions

    prepared = Prepared(fake.config(), opener, player if replay else None)
    app = SpecopsApp(lambda: prepared, clock=lambda: fake.NOW)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        if not replay:
            await pilot.press("g")
            await pilot.pause()
        desk = Desk(app, pilot, fleet, actions, key, tmp_path, player)
        await EFFECTS[action.id](desk)


@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope != "help"])
async def test_every_screen_has_a_method_for_each_of_its_actions(scope: str) -> None:
    """A key that does nothing on one of its screens breaks a promise; help has keys of its own."""
    app, *_ = fake.app()
    keys = {"fleet": (), "host": ("2",), "server": ("enter",), "log": ("l",), "presets": ("4",),
            "activity": ("5",), "bench": ("b",), "plan": ("S",)}[scope]  # fmt: skip
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("g", *keys)
        await wait_for(pilot, lambda: getattr(app.screen, "SCOPE", "") == scope, scope)
        for action in app.keys.on(scope):
            assert hasattr(app.screen, f"action_{action.method}"), action.id
            assert set(action.keys) <= set(app.screen._bindings.key_to_bindings), action.id


def test_no_effect_is_left_without_its_action() -> None:
    assert set(EFFECTS) == {action.id for action in (*TABLE, *REPLAY)}
