"""``notify.command`` is run for what the console launches, and nothing waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from console.config import load
from console.model import Plan, Step, StepKind, StepResult
from console.screens.help import Help
from console.screens.plan import PlanDialog
from tests.functional.console import fake
from tests.functional.console.steps import seen, settle, wait_for


class Watched(fake.FakeActions):
    """A launch whose watch ends as it is told."""

    ending = "ready"

    async def plan(self, action: str, host: str, server: str | None = None, **options: Any) -> Plan:
        """With a watch at its end."""
        plan = await super().plan(action, host, server, **options)
        return replace(plan, steps=(*plan.steps, Step(StepKind.WATCH, host, "")))

    async def execute(self, plan: Plan) -> AsyncIterator[StepResult]:
        """All steps; the last is the watch."""
        self.executed.append(plan)
        for at in range(len(plan.steps) - 1):
            yield StepResult(at, "ok", 0.1, "as planned")
        ended: Literal["ok", "failed"] = "ok" if self.ending == "ready" else "failed"
        yield StepResult(len(plan.steps) - 1, ended, 0.1, "", {"outcome": self.ending})


@pytest.mark.parametrize("ending", ["ready", "failed", "stalled"])
async def test_the_operators_command_is_told_how_a_launch_ended(
    ending: str, tmp_path: Path
) -> None:
    told, waits = tmp_path / "told", tmp_path / "go on"
    hook = tmp_path / "n.sh"
    wait = f'while ! [ -e "{waits}" ]; do sleep 0.05; done'
    hook.write_text(f'echo "$@" > "{told}"\n{wait}\nexit 3\n')
    file = tmp_path / "hosts.yaml"
    file.write_text(f"notify: {{command: 'sh {hook}'}}\nhosts: {{ct129: {{address: a.example}}}}\n"
                    "servers: {kimi-k25: {host: ct129, model: /m, port: 8000}}\n")  # fmt: skip
    actions = Watched()
    actions.ending = ending
    app, _, _ = fake.app(config=load(file), actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        app.propose("relaunch", "ct129", "kimi-k25")
        await seen(pilot, PlanDialog)
        await pilot.press("y")
        await wait_for(pilot, lambda: told.exists() and told.read_text() != "", "the command")
        assert told.read_text() == f"kimi-k25 {ending}\n"
        await pilot.press("escape", "question_mark")
        await wait_for(pilot, lambda: isinstance(app.screen, Help), "keys meanwhile")
        waits.touch()
        await wait_for(pilot, lambda: any("notify.command: sh: exit 3" in one.text
                                          for one in app.notices.all), "its failure")  # fmt: skip
