"""All hosts at a glance: what is wrong first, why second, which key third."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.containers import Container
from textual.widget import Widget

from console.logs.store import LogStore
from console.model import HostState, Phase
from console.screens.base import Rule
from console.screens.filtering import TablePlace
from console.screens.following import Following
from widgets import fleet as rows_of
from widgets.detail import detail_lines
from widgets.fleet import FleetRow
from widgets.log_view import LogView
from widgets.paint import Line, Lines, line
from widgets.table import Table
from widgets.words import safe

_PEEK_LINES = 200
"""Log lines asked for when the cursor comes to rest on a server."""
NO_HOST = "hosts.yaml names no host; :hosts chooses some of ~/.ssh/config"
NO_MATCH = "no host matches; Esc clears the filter"


class Fleet(TablePlace[FleetRow]):
    """The first screen. Every other is reached from here and comes back to here."""

    SCOPE: ClassVar[str] = "fleet"
    SPLIT = True
    SORTS = rows_of.SORTS
    HINT = "memory>80 !ready label:pcie name"

    def __init__(self) -> None:
        super().__init__()
        self._peek = Following(self, last_lines=_PEEK_LINES)
        self._drawn_for = (80, False)

    # ---- layout

    def body(self) -> list[Widget]:
        """Rows, why, and the log of the row."""
        self._table: Table[FleetRow] = Table(
            lambda row: row.key,
            self._cells,
            id="table",
            empty=NO_HOST,
        )
        left = Container(self._table, Rule(), Lines(id="detail"), id="left")
        self._log = LogView(LogStore(), id="log", plain=True)
        return [left, Container(Lines(id="loghead"), self._log, id="right")]

    def _cells(self, row: FleetRow) -> list[Line]:
        width, wide = self._drawn_for  # the columns that the table has, whatever the size is now
        app = self.specops
        name = row.view.host.name
        history = app.trends.line(name, "utilization", rows_of.HISTORY, app.now()) if wide else ()
        return rows_of.cells(row, width, wide=wide, history=history)

    def _left_width(self) -> int:
        width = self.size.width
        return width if width < 160 else width * 5 // 8

    def crumbs(self) -> str:
        """Counts, and what needs the operator."""
        return rows_of.headline(self.specops.views, self.all_rows())

    def where(self) -> tuple[str | None, str | None]:
        """The row of the cursor."""
        row = self._table.row
        if row is None:
            return None, None
        return row.view.host.name, row.server.name if row.server else None

    def aim(self) -> tuple[str | None, str | None]:
        """The server of the row; a stranger's is none that a key could mean."""
        row = self._table.row
        if row is not None and row.unlisted is not None:
            return row.view.host.name, None
        return super().aim()

    @property
    def table(self) -> Table[FleetRow]:
        """The rows."""
        return self._table

    # ---- drawing

    def all_rows(self) -> list[FleetRow]:
        """Every server and bare host, what needs the operator first."""
        app = self.specops
        plans = app.doing.running.values()
        return rows_of.fleet_rows(app.views, app.config.servers, app.now(), plans)

    def facts(self, row: FleetRow) -> dict[str, str | float | None]:
        """For the filter."""
        return rows_of.facts(row)

    def sorted_rows(self, rows: Sequence[FleetRow]) -> Sequence[FleetRow]:
        """By the chosen column."""
        return rows_of.sort_rows(rows, self.order, reverse=self.backwards)

    def views_changed(self) -> None:
        """Draw again; the cursor stays with its row whatever the order becomes."""
        rows = self.shown_rows()
        self._table.empty_text = NO_MATCH if self.wanted else NO_HOST
        width, wide = self._drawn_for = (self._left_width(), self.size.width >= 120)
        self._table.show(rows_of.columns(width, wide=wide), rows)
        self._place(len(rows))
        self._show_detail()
        self.show_head()

    def _place(self, count: int) -> None:
        """Give the rows what they need, and what is wrong and the log their share."""
        height = max(4, self.size.height - 4)
        table = min(count + 1, max(4, height // 2 if height < 40 else height * 2 // 3))
        self._table.styles.height = max(2, table)

    def _show_detail(self) -> None:
        app, row = self.specops, self._table.row
        detail = self.query_one("#detail", Lines)
        if row is None:
            detail.show([])
            return
        height = max(4, self.size.height - 4)
        table = int(self._table.styles.height.value) if self._table.styles.height else 4
        room = height - table - 1
        room = max(2, min(9, room - 3) if self.size.width < 160 else room)
        width = self._left_width()
        detail.show(detail_lines(row, app.config.servers, width, room, app.now()))
        self._follow(row)

    def _follow(self, row: FleetRow) -> None:
        from console.logs.several import name_of  # noqa: PLC0415 - after the first paint
        from console.screens.log import source_of  # noqa: PLC0415

        source = None
        if row.server is not None:
            source = source_of(self.specops, row.view.host.name, row.server.name)
        nothing = " no log yet"
        over = row.server is not None and row.server.phase in (Phase.STOPPED, Phase.FAILED)
        can = row.view.state is HostState.OK and self.specops.keys.has("launch")
        if row.server is not None and over and can:
            nothing += f"; L launches {safe(row.server.name)}"
        head = f" log {safe(name_of(source))}" if source else nothing
        self.query_one("#loghead", Lines).show([line((head, "dim"))])
        self._peek.follow(row.view.host.name if source else None, source, self._log)

    def moved(self) -> None:
        """Another row: say why, show its log."""
        host, server = self.where()
        self.specops.places.selected = (host, server)
        self._show_detail()

    def reread(self) -> None:
        """The log, from its start."""
        self._peek.stop()

    def covered(self) -> None:
        """Nobody sees the log: it is not read."""
        self._peek.pause()

    def on_unmount(self) -> None:
        """End the peek."""
        self._peek.stop()

    # ---- keys

    def action_open(self) -> None:
        """Into the server, or into the host."""
        host, server = self.where()
        if host is not None and server is not None:
            self.specops.places.server(host, server)
        else:
            self.specops.places.host(host)

    def action_kill_zombies(self) -> None:
        """``Z``: on the marked hosts, each with its own plan and answer, or on this one."""
        hosts = list(dict.fromkeys(row.view.host.name for row in self._table.marked))
        here, _ = self.where()
        if here is not None:
            self.specops.doing.propose_on(hosts or [here], "kill-zombies")

    def action_copy(self) -> None:
        """Host, server, state and reasons as text."""
        row = self._table.row
        if row is not None:
            width = 160
            now = self.specops.now()
            lines = detail_lines(row, self.specops.config.servers, width, 40, now)
            self.specops.copy("\n".join("".join(t for t, _ in spans) for spans in lines))
