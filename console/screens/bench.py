"""What was measured of a server: throughput, first token and accept length, as plots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.widget import Widget

from console.model import Phase
from console.planning.measuring import Bench, Load, history
from console.screens.base import Rule
from console.screens.filtering import TablePlace
from widgets.bars import number, sparkline
from widgets.paint import Line, Lines, fit, line
from widgets.plot import Series, beside, grouped, legend
from widgets.table import Column, Table
from widgets.words import safe

if TYPE_CHECKING:
    from console.bench import Level

MOST = 4
"""Measurements that are drawn together; more would not be told apart."""


class BenchScreen(TablePlace[Bench]):
    """The measurements of one server; the plots compare the cursor's with others."""

    SCOPE: ClassVar[str] = "bench"
    SORTS = ("time", "tokens/s", "accept", "presets")
    HINT = "presets:eagle3 tokens>100"

    def __init__(self, host: str, server: str) -> None:
        super().__init__()
        self._host, self._server = host, server
        self._kept: tuple[Bench, ...] = ()
        self._read = False
        self._was_running = False

    def body(self) -> list[Widget]:
        """The measurements, and the plots."""
        self._table: Table[Bench] = Table(
            lambda one: one.key, self._cells, id="benches", empty="nothing measured yet; b measures"
        )
        return [self._table, Rule(), Lines(id="plots")]

    @property
    def table(self) -> Table[Bench]:
        """The measurements."""
        return self._table

    def crumbs(self) -> str:
        """Where we are, and what is being measured."""
        text = f"fleet > {safe(self._host)} > {safe(self._server)} > bench"
        progress = self.specops.benching.running.get((self._host, self._server))
        if progress is not None:
            text += f", {progress.text()}"
        return text

    def where(self) -> tuple[str | None, str | None]:
        """This server."""
        return self._host, self._server

    def on_mount(self) -> None:
        """Read the history."""
        super().on_mount()
        self.reload()

    def reload(self) -> None:
        """Read it again, off the event loop."""
        self.run_worker(self._reload(), group="history", exclusive=True, exit_on_error=False)

    async def _reload(self) -> None:
        server = self.specops.config.servers.get(self._server)
        state = self.server_state(self._host, self._server)
        model = (state.model if state else "") or (server.model if server else "")
        self._kept = await asyncio.to_thread(history, self._host, self._server, model)
        self._read = True
        if self.drawable:
            self.views_changed()

    # ---- drawing

    def all_rows(self) -> Sequence[Bench]:
        """Newest first."""
        return self.specops.benching.shown(self._host, self._server, self._kept)

    def facts(self, row: Bench) -> dict[str, str | float | None]:
        """For the filter."""
        top = _top(row)
        return {"presets": row.presets, "run": row.run_id, "tokens": _best(row),
                "accept": top.accept_length if top else None, "time": row.at}  # fmt: skip

    def sorted_rows(self, rows: Sequence[Bench]) -> Sequence[Bench]:
        """By the chosen column; what is unknown comes last."""
        if self.order == "time":
            return list(reversed(rows)) if self.backwards else rows
        if self.order == "presets":
            return sorted(rows, key=lambda one: one.presets, reverse=self.backwards)
        name = "tokens" if self.order == "tokens/s" else "accept"
        known = [row for row in rows if self.facts(row)[name] is not None]
        unknown = [row for row in rows if self.facts(row)[name] is None]
        known.sort(key=lambda row: float(self.facts(row)[name] or 0), reverse=not self.backwards)
        return known + unknown

    def views_changed(self) -> None:
        """Draw again; when a measurement has just ended it is in the history."""
        running = (self._host, self._server) in self.specops.benching.running
        if self._was_running and not running:
            self.reload()
        self._was_running = running
        rows = self.shown_rows()
        self._table.show(_columns(self.size.width), rows)
        self._table.styles.height = max(2, min(len(rows) + 1, self.size.height // 3))
        self._show_plots()
        self.show_head()

    def _cells(self, one: Bench) -> list[Line]:
        now = one.running
        when = time.localtime(one.at)
        old = self.specops.now() - one.at > 43_200
        failed = sum(level.failed for level in one.levels)
        top = _top(one)  # every figure of the row is of this load
        ttft = top.ttft_s.get(50) if top else None
        return [
            line(("now" if now else time.strftime("%d %b %H:%M" if old else "%H:%M:%S", when),
                  "accent" if now else "dim")),
            line((safe(one.presets), "strong")),
            line(_load_words(one)),
            line(number(_best(one))),
            line(number(None if ttft is None else ttft * 1000)),
            line(number(top.accept_length if top else None, 2)),
            line((str(failed), "bad" if failed else "dim")),
        ]  # fmt: skip

    def compared(self) -> list[Bench]:
        """The cursor's, then the marked ones, or else the newest of every other preset."""
        here = self._table.row
        if here is None:
            return []
        others = [one for one in self._table.marked if one.key != here.key]
        if not others:
            seen = {here.presets}
            for one in self._kept:
                if one.presets not in seen and one.levels:
                    seen.add(one.presets)
                    others.append(one)
        return [here, *others][:MOST]

    def _show_plots(self) -> None:
        width = self.size.width
        plots = self.query_one("#plots", Lines)
        shown = [one for one in self.compared() if one.levels]
        room = self.size.height - 5 - int(self._table.styles.height.value or 2)  # type: ignore[union-attr]
        lines: list[Line] = []
        if shown:
            loads = {level.concurrency for one in shown for level in one.levels}
            # Every load has its bar before a further measurement has any.
            fits = max(1, (room - 1) // (len(loads) + 1))
            shown, left_out = shown[:fits], shown[fits:]
            names = [f"{safe(one.presets)}  {time.strftime('%d %b %H:%M', time.localtime(one.at))}"
                     for one in shown]  # fmt: skip
            if left_out:
                names[-1] += f"   ({len(left_out)} more in a higher window)"
            lines += legend(names, width)
            half = width // 2
            speeds = grouped("TOKENS/S by requests at a time", _speeds(shown), half - 1)
            firsts = grouped("FIRST TOKEN, ms: p50 / p99", _firsts(shown), half - 1)
            lines += beside(speeds, firsts, width)
            accepts = grouped("ACCEPT LENGTH", _accepts(shown), half - 1, digits=2)
            if len(lines) + len(accepts) > room:
                last = _last_accepts(_accepts(shown))
                accepts = grouped("ACCEPT LENGTH, highest load", last, half - 1, digits=2)
            lines += beside(accepts, self._over_time(half - 1), width)
        elif not self._read:
            lines = [line((" reading the history…", "dim"))]
        else:
            lines = [line((" b measures: tokens/s, time to first token, accept length", "dim"))]
        if len(lines) > room:
            more = line((" … more below; Enter has all", "dim"))
            lines = [*lines[: max(1, room - 1)], more]
        plots.show([_cut(spans, width) for spans in lines])

    def _over_time(self, width: int) -> list[Line]:
        """The throughput of all measurements, oldest first, a line for each load."""
        loads = sorted({level.concurrency for one in self._kept for level in one.levels})
        if len(self._kept) < 2 or not loads:
            return []
        out = [line((fit(" OVER TIME, tokens/s", width), "title"))]
        for load in loads:
            values = [_at(one, load) for one in reversed(self._kept)]
            known = [value for value in values if value is not None]
            text = f" {number(known[0])} to {number(known[-1])}"
            room = max(4, min(len(values), width - len(text) - 8))
            out.append(line((fit(str(load), 5, right=True), "strong"), " ",
                            (sparkline(values, room), "accent"), text))  # fmt: skip
        return out

    def moved(self) -> None:
        """Another measurement."""
        self._show_plots()

    # ---- keys

    def action_open(self) -> None:
        """Every figure of it."""
        from console.screens.reading import Reading  # noqa: PLC0415 - when opened

        one = self._table.row
        if one is not None:
            title = f"{safe(one.presets)}, {one.tokens} tokens a request"
            self.app.push_screen(Reading(title, [(row, "plain") for row in _table_of(one)]))

    def action_bench(self) -> None:
        """``b``: the dialog; while a measurement runs, whether to end it."""
        self.ask_to_measure()

    def ask_to_measure(self, own: Load | None = None) -> None:
        """Show what would be asked of the server, and begin when that is confirmed."""
        from console.screens.bench_dialog import BenchDialog  # noqa: PLC0415 - when opened
        from console.screens.choose import Choose  # noqa: PLC0415

        app, here = self.specops, (self._host, self._server)
        state = self.server_state(*here)
        if here in app.benching.running:
            options = [("go on", "it is kept when it ends"), ("end it", "levels done are kept")]
            self.app.push_screen(
                Choose("a measurement is running", options),
                lambda name: app.benching.stop(*here) if name == "end it" else None,
            )
        elif app.read_only:
            app.say("bench: this console is read-only, and measuring is load on a server", "warn")
        elif app.actions is None:
            app.say("not connected yet; a moment", "warn", over=lambda: app.actions is not None)
        elif state is None or not self._serves(*here):
            told = f"{safe(self._server)} does not serve now: nothing to measure"
            app.say(told, "warn", over=lambda: self._serves(*here))
        else:
            dialog = BenchDialog(self._host, state, self._kept, own)
            self.app.push_screen(dialog, self._measure)

    def _serves(self, host: str, server: str) -> bool:
        state = self.server_state(host, server)
        return state is not None and state.phase is Phase.READY

    def _measure(self, load: Load | None) -> None:
        if load is not None:
            self.specops.benching.start(self._host, self._server, load)
            self._table.move_to(0)
            self.views_changed()

    def action_refresh(self) -> None:
        """``r``: the history again, and the host."""
        self.reload()
        super().action_refresh()

    def action_copy(self) -> None:
        """Every figure as text."""
        one = self._table.row
        if one is not None:
            self.specops.copy("\n".join([one.presets, *_table_of(one)]))


def _columns(width: int) -> list[Column]:
    name = max(12, min(44, width - 13 - 19 - 9 - 10 - 8 - 8 - 1))
    return [
        Column("WHEN", 12), Column("PRESETS", name), Column("AT A TIME", 18),
        Column("TOK/S", 8, right=True), Column("TTFT ms", 9, right=True),
        Column("ACCEPT", 7, right=True), Column("FAILED", 6, right=True),
    ]  # fmt: skip


def _top(one: Bench) -> Level | None:
    """The load at which it made most tokens."""
    return max(one.levels, key=lambda level: level.tokens_per_s, default=None)


def _load_words(one: Bench) -> str:
    """``32 of 1,8,32``: the load that the row's figures are of, among those measured."""
    top = _top(one)
    if top is None:
        return "-"
    loads = ",".join(str(level.concurrency) for level in one.levels)
    return loads if len(one.levels) == 1 else f"{top.concurrency} of {loads}"


def _best(one: Bench) -> float | None:
    return max((level.tokens_per_s for level in one.levels), default=None)


def _at(one: Bench, load: int) -> float | None:
    return next((x.tokens_per_s for x in one.levels if x.concurrency == load), None)


def _speeds(shown: Sequence[Bench]) -> list[Series]:
    return [Series(one.presets, {x.concurrency: x.tokens_per_s for x in one.levels}, {})
            for one in shown]  # fmt: skip


def _firsts(shown: Sequence[Bench]) -> list[Series]:
    out = []
    for one in shown:
        known = [level for level in one.levels if 50 in level.ttft_s]
        notes = {
            x.concurrency: f" / {number(x.ttft_s[99] * 1000)}" for x in known if 99 in x.ttft_s
        }
        out.append(Series(one.presets, {x.concurrency: x.ttft_s[50] * 1000 for x in known}, notes))
    return out


def _accepts(shown: Sequence[Bench]) -> list[Series]:
    return [Series(one.presets, {x.concurrency: x.accept_length for x in one.levels
                                 if x.accept_length is not None}, {})
            for one in shown]  # fmt: skip


def _last_accepts(series: Sequence[Series]) -> list[Series]:
    """One bar a measurement, where there is no room for one a load: under its highest."""
    return [replace(one, values=dict([max(one.values.items())] if one.values else []))
            for one in series]  # fmt: skip


def _cut(spans: Line, width: int) -> Line:
    used = sum(len(text) for text, _ in spans)
    if used <= width:
        return spans
    text, role = spans[-1]
    return (*spans[:-1], (fit(text, max(1, len(text) - (used - width))), role))


def _table_of(one: Bench) -> list[str]:
    head = f"{'AT A TIME':>9} {'TOK/S':>9} {'TTFT50':>8} {'TTFT90':>8} {'TTFT99':>8}"
    rows = [head + f" {'ITL50':>7} {'ITL99':>7} {'ACCEPT':>7} {'FAILED':>7}  (times in ms)"]
    for x in one.levels:
        ttft = " ".join(f"{_ms(x.ttft_s.get(p)):>8}" for p in (50, 90, 99))
        itl = " ".join(f"{_ms(x.itl_s.get(p)):>7}" for p in (50, 99))
        rows.append(f"{x.concurrency:>9} {number(x.tokens_per_s, 1):>9} {ttft} {itl} "
                    f"{number(x.accept_length, 2):>7} {x.failed:>7}")  # fmt: skip
        if x.error:
            rows.append(f"          {safe(x.error)}")
    return [*rows, "", f"run {safe(one.run_id) or '?'}, model {safe(one.model) or '?'}"]


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else seconds * 1000, 1)
