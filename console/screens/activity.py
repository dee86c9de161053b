"""What was run and what was done: run records of all hosts, the audit file of this operator."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.widget import Widget

from console.errors import SpecopsError
from console.history.deeds import BAD, Deed, deeds, raw
from console.model import Run
from console.screens.filtering import TablePlace
from console.text import mask
from widgets.bars import age, duration
from widgets.paint import Line, line, width_of
from widgets.table import Column, Table
from widgets.words import safe

GOOD = ("ok", "ready")
REREAD_S = 2.0
"""How often the audit file is read again while a plan runs."""


def run_text(run: Run, now: float) -> str:
    """A run on one line."""
    presets = " + ".join(name for name in (run.speculative, run.nccl) if name) or "no preset"
    total = sum(seconds for _, seconds in run.phases)
    took = f", {duration(total)} to {run.phases[-1][0]}" if run.phases else ""
    return safe(
        f"{age(now - run.launched_at):>6} ago  {run.host}  {run.server}  {presets}  "
        f"run {run.run_id}  {run.outcome or 'no end recorded'}{took}"
    )


def deed_of_run(run: Run) -> Deed:
    """A launch."""
    presets = " + ".join(name for name in (run.speculative, run.nccl) if name)
    told = run.failure or presets or "no preset"
    detail = f"{run.server}: {told}, run {run.run_id}"
    return Deed(
        run.launched_at, run.launched_by, run.host, "run", run.outcome or "?", detail, run=run
    )


def _column(title: str, most: int, texts: Iterable[str]) -> Column:
    widest = max((width_of(safe(text)) for text in texts), default=0)
    return Column(title, max(len(title), min(most, widest)))


class ActivityScreen(TablePlace[Deed]):
    """Newest first; ``U`` undoes and ``M`` resumes the plan under the cursor."""

    SCOPE: ClassVar[str] = "activity"
    SORTS = ("time", "host", "who", "what", "outcome")
    HINT = "host:ct129 failed who:me"

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[Deed] = []
        self._read_at = 0.0
        self._was_running: set[str] = set()

    def body(self) -> list[Widget]:
        """One table."""
        self._table: Table[Deed] = Table(
            lambda deed: deed.key, self._cells, id="activity", empty="nothing was done yet"
        )
        return [self._table]

    @property
    def table(self) -> Table[Deed]:
        """What was done."""
        return self._table

    def crumbs(self) -> str:
        """Where we are."""
        text = "fleet > activity"
        if self.size.width >= 100:
            text += ": runs of the hosts, deeds of this console"
        return text

    def where(self) -> tuple[str | None, str | None]:
        """Host and server of the row."""
        deed = self._table.row
        if deed is None:
            return None, None
        known = deed.host if deed.host in self.specops.config.hosts else None
        return known, deed.run.server if deed.run else None

    def on_mount(self) -> None:
        """Read the audit file."""
        super().on_mount()
        self._read_again()

    def _read_again(self) -> None:
        self._read_at = time.monotonic()
        self.run_worker(self._read(), group="audit", exit_on_error=False)

    async def _read(self) -> None:
        actions = self.specops.actions
        if actions is None:
            return
        try:
            self._entries = deeds(await actions.audit())
        except SpecopsError as error:
            self.report(error)
        plans = self.specops.doing.hosts_of_plans
        plans.update({deed.plan: deed.host for deed in self._entries if deed.plan})
        if self.drawable:
            self.views_changed()

    def all_rows(self) -> Sequence[Deed]:
        """Newest first."""
        runs = [deed_of_run(run) for view in self.specops.views.values() for run in view.runs]
        return sorted([*runs, *self._entries], key=lambda deed: -deed.at)

    def facts(self, row: Deed) -> dict[str, str | float | None]:
        """For the filter."""
        return {"host": row.host, "who": row.who, "what": row.what, "outcome": row.outcome,
                "detail": row.detail, "plan": row.plan, "time": row.at}  # fmt: skip

    def sorted_rows(self, rows: Sequence[Deed]) -> Sequence[Deed]:
        """By the chosen column."""
        if self.order == "time":
            return list(reversed(rows)) if self.backwards else rows
        return sorted(rows, key=lambda d: str(self.facts(d)[self.order]), reverse=self.backwards)

    def views_changed(self) -> None:
        """Draw; what a plan does meanwhile is in the audit file."""
        running = set(self.specops.doing.running)
        due = time.monotonic() - self._read_at > REREAD_S
        if (running and due) or running != self._was_running:
            self._read_again()
        self._was_running = running
        rows = self.shown_rows()
        self._table.show(self._columns(rows), rows)
        self.show_head()

    def _columns(self, rows: Sequence[Deed]) -> list[Column]:
        """As wide as what is in them, so that the sentence gets the rest."""
        columns = [
            Column("TIME", 8),
            _column("HOST", 12, (deed.host for deed in rows)),
            _column("WHO", 12, (deed.who for deed in rows)),
            _column("WHAT", 14, (deed.what for deed in rows)),
            Column("OUTCOME", 9),
        ]
        used = sum(column.width + 1 for column in columns) + 2
        return [*columns, Column("DETAIL", max(10, self.size.width - used))]

    def _cells(self, deed: Deed) -> list[Line]:
        outcome = "▶ running" if deed.plan in self.specops.doing.running else deed.outcome
        when = time.localtime(deed.at)
        old = self.specops.now() - deed.at > 86_400
        return [
            line((time.strftime("%d %b" if old else "%H:%M:%S", when) if deed.at else "?", "dim")),
            line((safe(deed.host), "strong")),
            line(safe(deed.who)),
            line(safe(deed.what)),
            line(
                (
                    safe(outcome),
                    "bad" if outcome in BAD else "ok" if outcome in GOOD else "dim",
                )
            ),
            line(safe(deed.detail)),
        ]

    # ---- keys

    def action_open(self) -> None:
        """All of it."""
        from console.screens.reading import Reading  # noqa: PLC0415 - when opened

        deed = self._table.row
        if deed is None:
            return
        if deed.run is not None:
            text = [run_text(deed.run, self.specops.now())]
            text += [f"  {phase:<16} {duration(took)}" for phase, took in deed.run.phases]
            if deed.run.failure:
                text += ["", safe(deed.run.failure)]
            rows = [(row, "plain") for row in text]
        else:
            when = time.strftime("%d %b %H:%M:%S", time.localtime(deed.at))
            head = f"{when}  {safe(deed.who)}  {safe(deed.outcome)}: {safe(deed.detail)}"
            rows = [(head, "strong"), ("", "plain")]
            rows += [(safe(row), "plain") for row in deed.story]
            rows += [("", "plain"), ("as it stands in the audit file:", "dim")]
            rows += [(safe(mask(row)), "dim") for row in raw(deed)]
        title = f"{safe(deed.what)} on {safe(deed.host)} {safe(deed.plan)}".rstrip()
        self.app.push_screen(Reading(title, rows))

    def action_undo(self) -> None:
        """``U``."""
        self._about_plan("undo")

    def action_resume(self) -> None:
        """``M``."""
        self._about_plan("resume")

    def _about_plan(self, action: str) -> None:
        deed = self._table.row
        if deed is None or not deed.plan:
            self.specops.say(f"{action}: put the cursor on a plan's entry", "warn")
            return
        self.specops.propose(action, deed.host, None, plan_id=deed.plan)

    def action_refresh(self) -> None:
        """``r``: the audit file again, and every host."""
        self._read_again()
        super().action_refresh()

    def action_copy(self) -> None:
        """The row."""
        deed = self._table.row
        if deed is not None:
            self.specops.copy(
                safe(f"{deed.host} {deed.what} {deed.outcome} {deed.detail} {deed.plan}")
            )
