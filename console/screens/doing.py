"""From a key to a changed host: plan, dialog, execution. The one way anything is ever changed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from console.errors import HostError, SpecopsError
from console.keys import BY_ID
from console.model import Phase, Plan, StepResult
from widgets.bars import duration
from widgets.words import kind_word, safe, total_memory

if TYPE_CHECKING:
    from console.app import SpecopsApp
    from console.screens.making import Making
    from console.screens.plan import Answer, PlanDialog

LAUNCHES = ("launch", "relaunch")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator wants to have planned."""

    action: str
    host: str
    server: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """In words."""
        server = f" {safe(self.server)}" if self.server else ""
        return f"{self.action}{server} on {safe(self.host)}"


@dataclass(slots=True)
class UnderWay:
    """A plan in execution: the step it is at, since when, and the dialog that shows it."""

    dialog: PlanDialog
    begun: float
    step: int = 0


class Doing:
    """What is being done now, and how it is proposed."""

    def __init__(self, app: SpecopsApp) -> None:
        self._app = app
        self.running: dict[str, Plan] = {}
        """Plans in execution by id."""
        self.hosts_of_plans: dict[str, str] = {}
        """Which host each plan of the audit file was for, once it was read."""
        self._under_way: dict[str, UnderWay] = {}
        self._planned_ones = 0

    def propose(
        self, action: str, host: str | None, server: str | None, options: Mapping[str, Any]
    ) -> None:
        """Make a plan and show it. A read-only console refuses before it asks anybody."""
        app = self._app
        known = BY_ID.get(action)
        if app.read_only and (known is None or known.dangerous):
            app.say(f"{action}: this console is read-only", "warn")
            return
        if host is None:
            app.say(f"{action}: no host here", "warn")
            return
        if action in ("stop", *LAUNCHES) and server is None:
            names = ", ".join(safe(name) for name in app.places.servers_of(host))
            which = f"{names}: put the cursor on one of them" if names else "hosts.yaml has none"
            app.say(f"{action}: which server of {safe(host)}? {which}", "warn")
            return
        self._make((Wish(action, host, server, dict(options)),))

    def propose_on(self, hosts: Sequence[str], action: str) -> None:
        """The same on several hosts: one plan, one dialog and one answer for each."""
        if len(hosts) == 1:
            self.propose(action, hosts[0], None, {})
        else:
            self._make([Wish(action, host) for host in hosts])

    def propose_each(self, action: str, host: str, several: Sequence[Mapping[str, Any]]) -> None:
        """Several plans on one host, one dialog and one answer for each."""
        if len(several) == 1:
            self.propose(action, host, None, several[0])
        else:
            self._make([Wish(action, host, None, options) for options in several])

    def _make(self, wishes: Sequence[Wish]) -> None:
        """Have the plan of the first wish made, behind a dialog that takes the keys meanwhile."""
        from console.screens.making import Making  # noqa: PLC0415 - after the first paint

        if not wishes:
            return
        making = Making(wishes[0].title)
        self._app.push_screen(making)
        making.work = self._app.run_worker(
            self._planned(wishes, making), group="plan", exclusive=True, exit_on_error=False
        )

    async def _planned(self, wishes: Sequence[Wish], making: Making) -> None:
        app, wish = self._app, wishes[0]
        show: Callable[[], None] | None = None
        try:
            await app.opened.wait()
            if app.actions is None:
                raise HostError("the console has no connections: it could not be started whole")
            plan = await app.actions.plan(wish.action, wish.host, wish.server, **wish.options)
            self._planned_ones += 1
            show = partial(self._show_plan, plan, wishes)
        except SpecopsError as error:
            why = self._grounds(wish)
            app.say(str(error), "bad", over=lambda: self._grounds(wish) != why)
            if len(wishes) > 1:
                show = partial(self._make, wishes[1:])
        finally:
            making.over(show)

    def _grounds(self, wish: Wish) -> tuple[object, ...]:
        """What a refusal may have been for: while this stays the same, it still holds."""
        view = self._app.views.get(wish.host)
        states = [s for s in view.servers if s.name == wish.server] if view else []
        over = [state.phase in (Phase.STOPPED, Phase.FAILED) for state in states]
        return (self._planned_ones, view and view.state, [s.pid for s in states], over)

    def background(self) -> str:
        """What goes on behind closed dialogs, in a line; empty where nothing does."""
        told = []
        for plan in self.running.values():
            at = self._under_way.get(plan.id)
            if at is None or at.dialog.is_attached:
                continue
            where = f" {safe(plan.server)}" if plan.server else ""
            kind = plan.steps[at.step].kind.value if at.step < len(plan.steps) else "ending"
            took = duration(time.monotonic() - at.begun)
            told.append(f"▶ {plan.action}{where} on {safe(plan.host)}: step {at.step + 1} of "
                        f"{len(plan.steps)}, {kind}, {took} so far")  # fmt: skip
        return "  ".join(told)

    def _show_plan(self, plan: Plan, wishes: Sequence[Wish]) -> None:
        from console.screens.plan import PlanDialog  # noqa: PLC0415 - after the first paint

        app, wish = self._app, wishes[0]
        assert app.actions is not None  # a plan came from it
        if plan.action == "kill-zombies" and not plan.steps:
            plan = replace(plan, summary=(*plan.summary, *self._spared(plan.host)))
        stream = app.actions.preflight_stream(plan) if plan.action in LAUNCHES else None

        def left(answer: Answer | None) -> None:
            if answer == "presets":
                self._choose_again(wish, plan)
            else:
                self._make(wishes[1:])

        app.push_screen(app.made(PlanDialog, plan, stream), left)

    def _choose_again(self, wish: Wish, plan: Plan) -> None:
        """Other presets than those of a plan, then the plan with them."""
        asking = self._app.run_worker(
            self._choose(wish, plan), group="plan", exclusive=True, exit_on_error=False
        )
        self._app.keyboard.opens(asking)

    async def _choose(self, wish: Wish, plan: Plan) -> None:
        from console.screens.choose import ChoosePresets  # noqa: PLC0415 - only when asked for
        from console.screens.standings import standings  # noqa: PLC0415

        presets = await asyncio.to_thread(self._app.presets)

        def chosen(names: dict[str, str] | None) -> None:
            if names is not None:
                self.propose(wish.action, wish.host, wish.server, names)

        runs = (step.params["run"] for step in plan.steps if "run" in step.params)
        run: Mapping[str, Any] = next(runs, {})
        dialog = ChoosePresets(
            f"{wish.action} {safe(wish.server or '')}", presets,
            speculative=run.get("speculative"), nccl=run.get("nccl"),
            standings=await standings(self._app, presets, wish.host, wish.server),
        )  # fmt: skip
        self._app.push_screen(dialog, chosen)

    def execute(self, plan: Plan, dialog: PlanDialog) -> None:
        """Do a confirmed plan. It goes on when its dialog is closed; the end is always said."""
        self.running[plan.id] = plan
        self._under_way[plan.id] = UnderWay(dialog, time.monotonic())
        self._app.run_worker(self._execute(plan, dialog), group="execute", exit_on_error=False)

    async def _execute(self, plan: Plan, dialog: PlanDialog) -> None:
        app, actions = self._app, self._app.actions
        assert actions is not None  # a plan came from it
        what = f"{plan.action} {safe(plan.server or plan.host)}"
        begun = time.monotonic()
        text, role = f"{what}: done", "ok"
        held = self._held(plan)
        last: StepResult | None = None
        dialog.begun(0)
        try:
            async for result in actions.execute(plan):
                app.refresh_host(plan.host, quiet=True)  # what a step has changed is seen at once
                last = result
                self._under_way[plan.id].step = result.step + 1
                if dialog.is_attached:
                    dialog.ended(result)
                if result.outcome in ("failed", "refused"):
                    kind = plan.steps[result.step].kind.value
                    text = f"{what}: {kind} {result.outcome}: {safe(result.detail)}"
                    role = "bad"
        except SpecopsError as error:
            text, role = f"{what}: {error}", "bad"
        finally:
            self.running.pop(plan.id, None)
            self._under_way.pop(plan.id, None)
            app.refresh_host(plan.host, quiet=True)
        if role == "ok" and held:
            text += f": {held}"
        text += f" ({time.monotonic() - begun:.0f} s)"
        app.say(text, role)
        if role == "bad" or plan.action in LAUNCHES:
            app.alert(text)
        if app.config.notify.command and plan.action in LAUNCHES:
            told = self._tell(plan, last)
            app.run_worker(told, group="notify", exit_on_error=False)
        if dialog.is_attached:
            dialog.finished(text, role)

    async def _tell(self, plan: Plan, last: StepResult | None) -> None:
        """Run the operator's own command for a start that is ready or has failed."""
        from console.actions import ended  # noqa: PLC0415 - only when something has ended

        outcome, _ = ended.outcome_of(plan, last)
        if outcome in ended.TOLD:
            command = self._app.config.notify.command
            failed = await ended.run_notify_command(command, plan.server or "", outcome)
            if failed:
                self._app.say(failed, "warn")

    def _spared(self, host: str) -> tuple[str, ...]:
        """Why the zombies on the screen are not in an empty plan."""
        view = self._app.views.get(host)
        return tuple(
            f"{kind_word(z.kind)} {f'pid {z.pid}' if z.pid else safe(z.title)}: "
            + (safe(z.why_not) if z.why_not else "may be removed since this moment: again with Z")
            for z in (view.zombies if view else ())
        )

    def _held(self, plan: Plan) -> str:
        """What the zombies that a plan ends hold now: what is free when all its checks passed."""
        view = self._app.views.get(plan.host)
        doomed = {target.process for step in plan.steps for target in step.targets}
        found = [z for z in view.zombies if z.process in doomed] if view else []
        return f"{len(found)} gone, {total_memory(found)} given back" if found else ""

    def save_plan(self, plan: Plan) -> str:
        """Write a plan as JSON where the operator's state lives; says where, or why not."""
        from console.actions.plan import plan_to_json  # noqa: PLC0415 - only when asked for
        from console.config import state_dir  # noqa: PLC0415
        from console.config.whole import as_name, write_private  # noqa: PLC0415

        folder = state_dir() / "plans"
        path = folder / f"{as_name(plan.id)}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            text = json.dumps(plan_to_json(plan), indent=2, ensure_ascii=False)
            write_private(path, text.encode())
        except OSError as error:
            return f"not written: {error}"
        return f"written, nothing done: {path}"
