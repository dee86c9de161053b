"""One host: its devices, its processes and zombies with evidence, what lies around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.widget import Widget

from console.model import HostView
from console.screens.base import Rule
from console.screens.filtering import TablePlace
from widgets import process as rows_of
from widgets.bars import age, counted
from widgets.paint import Line, Lines, line
from widgets.process import ProcessRow
from widgets.table import Table
from widgets.words import SHOWN_ONLY, host_word, remains, safe


class HostScreen(TablePlace[ProcessRow]):
    """Devices above, processes below, why at the foot."""

    SCOPE: ClassVar[str] = "host"
    SORTS = rows_of.SORTS
    HINT = "gpu>10 user:root !python what:orphan"

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    def body(self) -> list[Widget]:
        """Devices, processes, why."""
        self._table: Table[ProcessRow] = Table(
            lambda row: row.key, rows_of.cells, id="processes", empty="no process matches"
        )
        return [Lines(id="devices"), Rule(), self._table, Rule(), Lines(id="detail")]

    @property
    def table(self) -> Table[ProcessRow]:
        """The processes."""
        return self._table

    def crumbs(self) -> str:
        """The host, its state, and how old all this is."""
        view = self.view(self._host)
        if view is None:
            return f"fleet > {safe(self._host)}"
        word = host_word(view).text
        old = view.age_s(self.specops.now())
        seen = "never seen" if old is None else f"seen {age(old)} ago"
        text = f"fleet > {safe(self._host)}  {word}, {seen}"
        acute = sum(z.kind not in SHOWN_ONLY for z in view.zombies)
        parts = [counted(acute, "zombie")] * bool(acute) + [remains(view.zombies)]
        text += "".join(f" · {part}" for part in parts if part)
        if view.error:
            text += f": {safe(view.error)}"
        return text

    def where(self) -> tuple[str | None, str | None]:
        """This host; the server that the cursor's process belongs to, or the only one."""
        row = self._table.row
        if row is not None and row.server:
            return self._host, row.server
        names = self.specops.places.servers_of(self._host)
        return self._host, names[0] if len(names) == 1 else None

    # ---- drawing

    def all_rows(self) -> Sequence[ProcessRow]:
        """All processes."""
        view = self.view(self._host)
        return rows_of.process_rows(view) if view else []

    def facts(self, row: ProcessRow) -> dict[str, str | float | None]:
        """For the filter."""
        return rows_of.facts(row)

    def sorted_rows(self, rows: Sequence[ProcessRow]) -> Sequence[ProcessRow]:
        """By the chosen column."""
        return rows_of.sort_rows(rows, self.order, reverse=self.backwards)

    def views_changed(self) -> None:
        """Draw again."""
        view = self.view(self._host)
        width = self.size.width
        if view is not None:
            self.query_one("#devices", Lines).show(self._devices(view, width))
        self._table.show(rows_of.columns(width), self.shown_rows())
        self._show_why()
        self.show_head()

    def _devices(self, view: HostView, width: int) -> list[Line]:
        app = self.specops
        history = app.trends.line(self._host, "utilization", max(1, width - 20), app.now())
        room = max(2, min(8, (self.size.height - 12) // 2))
        lines = rows_of.device_lines(view, width, room, history)
        if view.snapshot is not None:
            ports = list(view.snapshot.listening)
            lines.append(rows_of.leftover_line(view.snapshot.artefacts, ports))
            if not view.snapshot.processes_complete:
                lines.append(line((" not every process could be read", "warn")))
        return lines

    def _show_why(self) -> None:
        row = self._table.row
        height = 4 if self.size.height < 30 else 8
        lines = rows_of.why_lines(row, self.size.width, height) if row else []
        detail = self.query_one("#detail", Lines)
        detail.styles.height = height
        detail.show(lines)

    def moved(self) -> None:
        """Another process."""
        self._show_why()

    # ---- keys

    def action_open(self) -> None:
        """The process whole: evidence, command line, environment."""
        from console.screens.reading import Reading  # noqa: PLC0415 - when opened

        row = self._table.row
        if row is None:
            return
        text = ["".join(t for t, _ in spans) for spans in rows_of.why_lines(row, 10_000, 60)]
        if row.process is not None:
            from console.text import mask_env  # noqa: PLC0415

            env = mask_env(row.process.env)
            text += ["", *(safe(f"{name}={value}") for name, value in sorted(env.items()))]
        title = f"{safe(self._host)} {rows_of.cells(row)[0][0][0]}"
        self.app.push_screen(Reading(title, [(part, "plain") for part in text]))

    def action_kill(self) -> None:
        """``K``: exactly the processes that were marked, or the cursor's, as they were seen."""
        rows = self._table.marked or ((self._table.row,) if self._table.row else ())
        found = tuple(row.identity for row in rows if row.identity is not None)
        if not found:
            self.specops.say("nothing here that a signal could go to", "warn")
            return
        self.specops.propose("kill", self._host, None, processes=found)

    def action_reset_gpu(self) -> None:
        """``D``: the device of the cursor's row where it asks, else every one that asks."""
        view, row = self.view(self._host), self._table.row
        gpus = view.snapshot.gpus if view is not None and view.snapshot else ()
        asking = [gpu.index for gpu in gpus if gpu.asks]
        where = row.zombie.resource if row is not None and row.zombie is not None else None
        if where is not None and where.gpu in asking:
            asking = [where.gpu]
        if not asking:
            self.specops.say("no driver of a device here asks for a reset", "warn")
            return
        self.specops.doing.propose_each("reset-gpu", self._host, [{"gpu": i} for i in asking])

    def action_copy(self) -> None:
        """The command line."""
        row = self._table.row
        if row is not None:
            self.specops.copy(row.title)
