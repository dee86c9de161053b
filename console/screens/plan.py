"""The plan dialog: exactly what is done, to what; Cancel has the focus and Enter is never yes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from textual import events
from textual.widget import Widget

from console.errors import SpecopsError
from console.model import Finding, Plan, Severity, StepResult
from console.screens.dialog import Dialog
from console.screens.standing import stands
from widgets.paint import Line, Lines, line, wrap
from widgets.plan import (
    compact_lines,
    finding_lines,
    step_lines,
    summary_lines,
    touches,
    word_to_type,
)
from widgets.prompt import Prompt
from widgets.words import safe

Answer = Literal["yes", "presets"]


class PlanDialog(Dialog[Answer | None]):
    """Shows a plan, asks, and then shows how each step ends.

    The plan is the one that is executed: whatever the screen behind shows by then, these are the
    processes. Plans that touch several things want the host's name typed first, others their own
    word (``Plan.confirm``).
    """

    SCOPE = "plan"

    def __init__(self, plan: Plan, findings: AsyncIterator[Finding] | None = None) -> None:
        super().__init__()
        self.plan = plan
        self.state: Literal["asking", "running", "done"] = "asking"
        self.findings: list[Finding] = list(plan.findings)
        self.checking = findings is not None
        self.word = word_to_type(plan)
        self.unlocked = not self.word
        self.whole = False
        self._stream = findings
        self._results: dict[int, StepResult] = {}
        self._at_step: int | None = None
        self._said: Line = ()
        self._bare: Plan | None = None
        """The plan without the stacks that were asked for."""

    # ---- layout

    def heading(self) -> str:
        """What is about to be done."""
        server = f" {safe(self.plan.server)}" if self.plan.server else ""
        return f"{self.plan.action}{server} on {safe(self.plan.host)}"

    def body(self) -> list[Widget]:
        """The steps, and where several things are touched a line for the host's name."""
        parts: list[Widget] = [Lines(id="content")]
        if not self.unlocked:
            parts.append(Prompt("type", placeholder=f"type {self.word} to allow y", id="typed"))
        return parts

    def on_mount(self) -> None:
        """Draw, start preflight, take the keys."""
        self.set_class(any(step.dangerous for step in self.plan.steps), "-dangerous")
        if not self.unlocked:
            self.query_one(Prompt).focus()
        if self._stream is not None:
            self.run_worker(self._preflight(self._stream), exit_on_error=False)
        self.draw()

    async def _preflight(self, stream: AsyncIterator[Finding]) -> None:
        try:
            async for finding in stream:
                self._add(finding)
                self.draw()
        except SpecopsError as error:
            self._said = line((str(error), "bad"))
        finally:
            self.checking = False
            if self.is_attached:
                self.draw()

    def _add(self, finding: Finding) -> None:
        """The host's engine often says what our own rules have said already."""
        said = {(known.rule, known.message) for known in self.findings}
        if (finding.rule, finding.message) not in said:
            self.findings.append(finding)

    # ---- drawing

    def draw(self) -> None:
        """Everything, as it is now."""
        if not stands(self):
            return
        self._draw_foot(cut=False)
        width, height = self.room()
        taken = 0 if self.unlocked else 2
        lines = self._lines(width, 3, 2)
        if len(lines) > height - taken and not self.whole:  # every step before any text in full
            lines = self._lines(width, 1, 1)
            if len(lines) > height - taken and self.state != "asking":
                lines = self._compact(width, height - taken)
        if len(lines) > height - taken:
            self._draw_foot(cut=True)
        room = self.room()[1] - taken
        content = self.query_one("#content", Lines)
        content.styles.height = max(1, min(len(lines), room))
        content.show(lines)

    def _lines(self, width: int, finding_rows: int, step_rows: int) -> list[Line]:
        """The content. How it ends stands first, so that it is seen whatever is below."""
        lines = self._said_lines(width)
        findings, rows = self.findings, finding_rows
        if self.state != "asking" and not self.whole:
            rows = 0
        elif finding_rows == 1 and not self.whole:
            findings = [found for found in findings if found.severity is not Severity.INFO]
        lines += summary_lines(self.plan, width)
        lines += finding_lines(
            findings,
            width,
            running=self.checking,
            rows=0 if rows == 0 else 9 if self.whole else rows,
        )
        lines += step_lines(
            self.plan, width, whole=self.whole, rows=step_rows,
            results=self._results, running=self._at_step,
        )  # fmt: skip
        if not self.plan.steps:
            lines.append(line(("nothing to do", "strong")))
        return lines

    def _said_lines(self, width: int) -> list[Line]:
        text = "".join(part for part, _ in self._said)
        return (
            [line((part, self._said[0][1])) for part in wrap(text, width, limit=3)] if text else []
        )

    def _compact(self, width: int, room: int) -> list[Line]:
        """How it ended and every step, one row each: what it was to change has been read."""
        lines = [*self._said_lines(width), *summary_lines(self.plan, width)[:1]]
        return lines + compact_lines(
            self.plan, width, room - len(lines), results=self._results, running=self._at_step
        )

    def _draw_foot(self, *, cut: bool) -> None:
        more = [("j k", "dim")] if cut else []
        cancel = ("[ Esc: back ]" if self.whole else "[ Cancel ]", "focus")
        if self.whole and self.state != "asking":
            self.foot(cancel, *more)
        elif self.state == "running":
            self.foot(("running…", "accent"), ("[ Esc: to the background ]", "focus"), *more)
        elif self.state == "done":
            self.foot(("[ Close ]", "focus"), *more)
        elif self.unlocked and self.plan.steps:
            yes = ("y  do it", "bad" if self.has_class("-dangerous") else "key")
            if self.errors:
                yes = (f"refused: {self.errors} error{'s' * (self.errors > 1)}", "bad")
            presets = [("p  presets", "key")] if self.plan.action in ("launch", "relaunch") else []
            if self.plan.offered or self._bare:
                presets.append((f"t  {'no ' * bool(self._bare)}stacks first", "key"))
            rest = [("d  dry run", "key"), ("v  in full", "key"), cancel]
            self.foot(yes, *presets, *rest, *more)
        elif self.plan.steps:
            count = f"{touches(self.plan)} targets: type the host's name first"
            if self.plan.confirm:
                count = f"type {safe(self.word)} first"
            self.foot((count, "warn"), cancel, *more)
        else:
            self.foot(("[ Close ]", "focus"))

    # ---- the typed name

    def on_input_changed(self) -> None:
        """The word, letter by letter; when it is right the keys become keys again."""
        typed = self.query_one(Prompt)
        if typed.value == self.word and not self.unlocked:
            self.unlocked = True
            self.set_focus(None)
            typed.remove()
            self.draw()

    def on_prompt_given(self, event: Prompt.Given) -> None:
        """Enter and Esc in the line are Cancel too."""
        event.stop()
        super().action_cancel()

    # ---- keys

    def needs_seeing(self, event: events.Key | events.Paste) -> bool:
        """``y``, and the word that allows it: never for a plan that was not yet seen."""
        if self.state != "asking" or not isinstance(event, events.Key):
            return self.state == "asking"
        what = {key: a.id for a in self.specops.keys.on("plan") for key in a.keys}.get(event.key)
        return what == "confirm" or (what != "cancel" and not self.unlocked)

    def dropped(self) -> None:
        """Say why nothing happens."""
        self._said = line(("typed before this was drawn: read it, then type again", "warn"))
        self.draw()

    def action_confirm(self) -> None:
        """``y``: only when it was unlocked, preflight is through and found no error."""
        if self.state != "asking" or not self.unlocked or not self.plan.steps:
            return
        if self.errors:
            self._said = line((self._refusal(), "bad"))
        elif self.checking:
            self._said = line(("preflight is still asking; y again when it is done", "warn"))
        else:
            self.state = "running"
            self._said = ()
            self.specops.doing.execute(self.plan, self)
        self.draw()

    @property
    def errors(self) -> int:
        """How many of the findings so far are errors: with one there is no yes."""
        return sum(finding.severity is Severity.ERROR for finding in self.findings)

    def _refusal(self) -> str:
        """Why there is no yes, and the way for who means it all the same."""
        first = next(f.message for f in self.findings if f.severity is Severity.ERROR)
        force = f":{self.plan.action} {self.plan.server} --skip-preflight does it all the same"
        return safe(f"Nothing done: this launch would fail: {first}. {force}")

    def action_choose(self) -> None:
        """``p``: back to the choice of presets."""
        if self.state == "asking" and self.plan.action in ("launch", "relaunch"):
            self.dismiss("presets")

    def action_dry_run(self) -> None:
        """``d``: the plan as JSON in a file."""
        if self.state == "asking":
            self._said = line((self.specops.doing.save_plan(self.plan), "accent"))
            self.draw()

    def action_dump(self) -> None:
        """``t``: the stacks of what hangs are kept first, or not."""
        if self.state == "asking" and self.unlocked and (self.plan.offered or self._bare):
            from console.actions.dump import with_dump  # noqa: PLC0415 - only when asked for

            self._bare, self.plan = (
                (self.plan, with_dump(self.plan)) if self._bare is None else (None, self._bare)
            )
            self.draw()

    def action_whole(self) -> None:
        """``v``: every target and the whole command lines."""
        self.whole = not self.whole
        self.draw()

    def action_cancel(self) -> None:
        """Esc: from the full view back to the short one, from that away."""
        if self.whole:
            self.action_whole()
        else:
            super().action_cancel()

    def action_down(self) -> None:
        """Scroll."""
        self.query_one("#content", Lines).scroll_lines(1)

    def action_up(self) -> None:
        """Scroll."""
        self.query_one("#content", Lines).scroll_lines(-1)

    def action_page_down(self) -> None:
        """Scroll."""
        self.query_one("#content", Lines).scroll_lines(10)

    def action_page_up(self) -> None:
        """Scroll."""
        self.query_one("#content", Lines).scroll_lines(-10)

    # ---- while it runs

    def begun(self, step: int) -> None:
        """A step has begun."""
        self._at_step = step
        self.draw()

    def ended(self, result: StepResult) -> None:
        """A step has ended."""
        self._results[result.step] = result
        self._at_step = result.step + 1
        self.draw()

    def finished(self, text: str, role: str) -> None:
        """All is over, well or not."""
        self.state = "done"
        self._at_step = None
        self._said = line((text, role))
        self.draw()


__all__ = ["Answer", "PlanDialog"]
