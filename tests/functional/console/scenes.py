"""Every screen of the console, each reached by the keys that an operator presses.

The walk looks at them in all sizes and colourings, and the pictures are taken of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from console.app import SpecopsApp
from console.model import Plan, Step, StepKind
from console.notices import Notice
from console.planning.measuring import Bench, Load
from console.screens.base import Place
from console.screens.bench import BenchScreen
from console.screens.making import Making
from console.screens.plan import PlanDialog
from console.screens.prompts import SecretDialog, TrustDialog
from console.screens.wizard import Wizard
from tests.functional.console import fake
from tests.functional.console.steps import settle, show, text, wait_for
from widgets.log_view import LogView

SSH = "Host gate\nHost gpu1 gpu2\n    HostName %h.example\n    ProxyJump gate\n"
LOAD = Load((1, 8, 32), 4, 128)


@dataclass
class Desk:
    """A console over the fakes, and who types at it."""

    pilot: Pilot[None]
    app: SpecopsApp
    fleet: fake.FakeFleet
    actions: fake.FakeActions

    async def keys(self, *keys: str) -> None:
        """Press, one after the other; what a dialog comes over has its log by then."""
        for key in keys:
            await self.logs()
            await self.pilot.press(key)

    async def logs(self) -> None:
        """Until the log on the screen has come."""
        views = list(self.app.screen.query(LogView))
        await wait_for(self.pilot, lambda: all(len(view.store) for view in views), "the log")

    async def on(self, host: str) -> None:
        """Put the cursor of the fleet on a host."""
        screen: Any = self.app.screen
        row = next(row for row in screen.table.rows if row.view.host.name == host)
        screen.table.select(row.key)
        await self.pilot.pause()

    async def still(self) -> None:
        """Until logs have come and two looks in a row see the same, each after a tick."""
        await self.logs()
        before = ""
        for _ in range(500):
            show(self.app)
            await self.pilot.pause(0.02)
            shown = self.app.export_screenshot()
            if shown == before:
                return
            before = shown
        raise AssertionError(f"never still: {text(self.app)}")

    async def home(self) -> None:
        """To the fleet as it is at the start: no dialog, no filter, the first row."""
        while len(self.app.screen_stack) > 2:
            self.app.pop_screen()
            await self.pilot.pause()
        screen: Any = self.app.screen
        screen.dismiss_prompt()
        screen.table.unmark()
        screen.wanted = ""
        self.app.notices.all.clear()
        self.actions.findings = []
        await self.keys("g")
        screen.views_changed()
        screen.show_notice()
        await self.pilot.pause()


@dataclass(frozen=True)
class Scene:
    """One screen: its name, how it is reached from the fleet, and words that have to be on it."""

    name: str
    go: Callable[[Desk], Awaitable[None]]
    words: tuple[str, ...]

    async def show(self, desk: Desk) -> None:
        """Go there from the fleet, and wait for its words."""
        await desk.home()
        await self.go(desk)
        app = desk.app
        await wait_for(
            desk.pilot,
            lambda: all(word in text(app) for word in self.words),
            f"{self.name}: {[word for word in self.words if word not in text(app)]}",
        )
        if not isinstance(app.screen, Place):  # a dialog is drawn in two steps: size, then text
            await desk.pilot.pause()


def _keys(*keys: str) -> Callable[[Desk], Awaitable[None]]:
    async def go(desk: Desk) -> None:
        await desk.keys(*keys)

    return go


def _on(host: str, *keys: str) -> Callable[[Desk], Awaitable[None]]:
    async def go(desk: Desk) -> None:
        await desk.on(host)
        await desk.keys(*keys)

    return go


def benches() -> tuple[Bench, ...]:
    """Two measurements of one server, newest first."""
    return tuple(
        Bench(
            "dflash", "k26", fake.NOW - 3600 * at, "", preset, f"7d1{at}", LOAD.tokens,
            tuple(fake.level(count, factor * 100 * count, accept) for count in LOAD.concurrency),
        )
        for at, (preset, factor, accept) in enumerate(
            (("eagle3-3step + default", 1.0, 2.4), ("eagle3-1step + default", 0.5, 1.7))
        )
    )  # fmt: skip


async def _benches(desk: Desk) -> None:
    await desk.on("dflash")
    await desk.keys("b")
    screen = desk.app.screen
    await wait_for(desk.pilot, lambda: isinstance(desk.app.screen, BenchScreen), "bench")
    await wait_for(desk.pilot, lambda: "reading the history" not in text(desk.app), "read")
    screen = desk.app.screen
    assert isinstance(screen, BenchScreen)
    screen._kept = benches()
    screen.views_changed()
    await desk.pilot.pause()


async def _measuring(desk: Desk) -> None:
    await _benches(desk)
    await desk.keys("b")


async def _form(desk: Desk) -> None:
    await desk.keys("p", "slash", *"name:eagle3-3step", "enter", "e")
    await wait_for(desk.pilot, lambda: getattr(desk.app.screen, "known", False), "the form")


async def _plan(desk: Desk) -> None:
    desk.actions.findings = [fake.WARNING, fake.ERROR]
    await desk.on("ct129")
    await desk.keys("L")


async def _typed(desk: Desk) -> None:
    target = (await desk.actions.plan("kill", "ct129")).steps[0].targets[0]
    many = tuple(
        replace(target, process=replace(target.process, pid=4711 + at), title="python3 -m sglang")
        for at in range(3)
    )
    step = Step(StepKind.SIGNAL, "ct129", "end them", signal="KILL", targets=many, dangerous=True)
    plan = Plan("p-9", "kill", "ct129", (step,), None, fake.NOW)
    desk.app.push_screen(desk.app.made(PlanDialog, plan, None))


async def _done(desk: Desk) -> None:
    await desk.keys("S")
    await wait_for(desk.pilot, lambda: "[ Cancel ]" in text(desk.app), "plan")
    await desk.keys("y")


async def _notices(desk: Desk) -> None:
    """Old ones: none is on the line behind."""
    desk.app.notices.add(Notice(fake.NOW - 60, f"lost: no answer in 5 s {fake.HOSTILE}", "bad"))
    desk.app.notices.add(Notice(fake.NOW - 40, "launch k26: done (9 s)", "ok"))
    await desk.keys("n")


async def _notice(desk: Desk) -> None:
    desk.app.say("hosts.yaml not taken over: hosts.yaml:3 servers.k99.hots: unknown key", "bad")
    await desk.pilot.pause()


async def _making(desk: Desk) -> None:
    desk.app.push_screen(desk.app.made(Making, "relaunch kimi-k25 on ct129"))


async def _trust(desk: Desk) -> None:
    key = "SHA256:uNiVztksCsDhcc0u9e8BgrJXVGLlyTFXHqjt6sLWUlM"
    desk.app.push_screen(TrustDialog("gpu7", "ssh-ed25519", key))


async def _secret(desk: Desk) -> None:
    desk.app.push_screen(SecretDialog("gpu7", "passphrase", f"Enter {fake.HOSTILE}:"))


async def _wizard(desk: Desk) -> None:
    ssh = Path.home() / ".ssh" / "config"
    ssh.parent.mkdir(parents=True, exist_ok=True)
    ssh.write_text(SSH, encoding="utf-8")
    desk.app.push_screen(Wizard(Path("/nowhere/hosts.yaml")))


STATES = ("NEVER READY", "FAILED", "UNREACHABLE", "ready 2.4⇥", "ok")

SCENES = (
    Scene("fleet", _keys(), (*STATES, "kimi-k25", "weights loaded 8 h 09 min ago", "✖ ValueError")),
    Scene("fleet-filtered", _keys("slash", *"memory>80", "enter"), ("/memory>80", "NEVER READY")),
    Scene("fleet-marked", _keys("asterisk"), STATES),
    Scene("fleet-notice", _notice, ("not taken over", *STATES)),
    Scene("line-command", _keys("colon"), ("status", "any command; Tab completes")),
    Scene("line-filter", _keys("slash"), ("!word none", "memory>80")),
    Scene("host", _keys("2"), ("PID", "4711", "NEVER READY", "score 0.97", "ok, seen 1s ago")),
    Scene("server", _keys("enter"), ("NEVER READY", "graph_target", "4/23", "tok/s")),
    Scene("server-failed", _on("gpu7", "enter"), ("FAILED", "AssertionError", "F applies")),
    Scene("server-ready", _on("dflash", "enter"), ("ready 2.4⇥", "health ok", "load_target")),
    Scene("log", _keys("l"), ("FOLLOW", "ValueError", "⋯ 2 frames", "dropped 0", " Fix ")),
    Scene("bench-empty", _keys("b"), ("kimi-k25 > bench", "nothing measured yet")),
    Scene("bench", _benches, ("TOKENS/S", "● eagle3-3step", "○ eagle3-1step")),
    Scene("bench-dialog", _measuring, ("at a time", "[ Cancel ]")),
    Scene("presets", _keys("p"), ("eagle3-3step", "pcie-ll-ring", "untried")),
    Scene("preset-form", _form, ("--speculative-num-steps", "0 errors, 0 warnings", "F2  save")),
    Scene("activity", _keys("a"), ("kill-zombies", "ops@laptop", "failed")),
    Scene("process", _keys("2", "enter"), ("ct129 4711", "[ Close ]", "score 0.97")),
    Scene("command-whole", _keys("enter", "v"), ("sglang.launch_server", "[ Close ]")),
    Scene("difference", _keys("enter", "d"), ("--speculative-algorithm", "[ Close ]")),
    Scene("output", _keys("colon", *"status", "enter"), ("output of status", "(exit 0)")),
    Scene("help", _keys("question_mark"), ("keys of fleet", "every key of this screen", "Esc")),
    Scene("sort", _keys("o"), ("sort by", "▸ urgency", "Esc  leave")),
    Scene("notices", _notices, ("what happened", "launch k26: done", "[ Close ]")),
    Scene("plan", _plan, ("[ Cancel ]", "SIGTERM to 4711", "1 error, 1 warning")),
    Scene("plan-presets", _keys("R", "p"), ("with which presets?", "▸ eagle3-3step", "Esc")),
    Scene("plan-typed", _typed, ("SIGKILL", "type ct129 to allow y", "[ Cancel ]")),
    Scene("making", _making, ("making the plan", "[ Give up ]")),
    Scene("trust", _trust, ("gpu7: first contact", "SHA256:")),
    Scene("secret", _secret, ("gpu7 asks", "Esc  do not log in")),
    Scene("wizard", _wizard, ("gpu1.example through gate", "Esc  later")),
    Scene("plan-done", _done, ("✓", "[ Close ]")),
)
"""What is done comes last: its notice stays."""

BY_NAME = {scene.name: scene for scene in SCENES}


async def open_desk(pilot: Pilot[None], made: Any) -> Desk:
    """The console that was made, at its first views."""
    app, fleet, actions = made
    await settle(pilot)
    return Desk(pilot, app, fleet, actions)
