"""One log, whole: follow, search, filter, jump from error to error."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.widget import Widget

from console.errors import SpecopsError
from console.logs import follower
from console.logs.search import Matcher
from console.logs.several import name_of
from console.logs.store import LogStore
from console.model import Change
from console.remote import LogSource
from console.screens.fixing import Fixing
from console.screens.following import Following, Tail
from console.screens.judging import Judging, cause_lines
from console.screens.moving import Movable
from widgets.bars import size
from widgets.log_view import LogView
from widgets.paint import Lines, fit, line, width_of
from widgets.prompt import Prompt
from widgets.words import safe

if TYPE_CHECKING:
    from console.app import SpecopsApp


LOW = 20
"""Rows below which the log itself needs them more than what its error means."""


def source_of(app: SpecopsApp, host: str, server: str) -> LogSource | None:
    """Where the log of a server is: of its newest run, else as configured."""
    view, configured = app.views.get(host), app.config.servers.get(server)
    runs = [run for run in view.runs if run.server == server and run.log] if view else []
    run = max(runs, key=lambda run: run.launched_at, default=None)
    if configured is None:
        return LogSource(path=run.log) if run else None
    return follower.source_of(configured, run)


class LogScreen(Fixing):
    """The log of one server (or a file of this machine)."""

    SCOPE: ClassVar[str] = "log"

    def __init__(
        self,
        host: str,
        server: str,
        source: LogSource,
        *,
        at_error: bool = False,
        tail: Tail | None = None,
    ) -> None:
        super().__init__()
        self._host, self._server, self._source = host, server, source
        self._at_error = at_error
        self._jumped: int | None = None
        self._following = Following(self, tail=tail)

    # ---- layout

    def body(self) -> list[Widget]:
        """The log and its status line."""
        self._view = LogView(LogStore(), id="log")
        self._judging = Judging(self, self._view)
        return [self._view, Lines(id="cause"), Lines(id="status")]

    def crumbs(self) -> str:
        """Host, server, log."""
        name = safe(name_of(self._source))
        if self.size.width < 120:  # the end of the path tells it from the server's others
            name = name.rpartition("/")[2]
        return f"fleet > {safe(self._host)} > {safe(self._server)} > {name}"

    def where(self) -> tuple[str | None, str | None]:
        """The server whose log it is."""
        known = self._host in self.specops.config.hosts  # not so for a file of this machine
        return (self._host, self._server) if known else (None, None)

    def change(self) -> Change | None:
        """What this very log asks for, else what the server's diagnosis does."""
        verdict = self._view.judged
        own = verdict.diagnosis.change if verdict else None
        return own or super().change()

    def movable(self) -> Movable:
        """The log."""
        return self._view

    def views_changed(self) -> None:
        """The head; and follow, as soon as there is a connection."""
        self.show_head()
        self._following.follow(self._host, self._source, self._view)
        self.show_status()

    def reread(self) -> None:
        """The log, from its start."""
        self._following.stop()

    def on_unmount(self) -> None:
        """Stop following."""
        self._following.stop()

    def on_log_view_status(self) -> None:
        """The view's state has changed."""
        if not self.drawable:
            return
        verdict = self._view.judged
        if self._at_error and self._view.store.errors:
            self._at_error = False
            self._view.next_error(-1)
            self._jumped = self._view.cursor if verdict is None else None
        elif verdict is not None and self._jumped is not None:
            at, self._jumped = self._jumped, None
            if verdict.root is not None and self._view.cursor == at:  # nobody has moved on
                self._view.go_to(verdict.root, centre=True)
        self._judging.look()
        self.query_one("#cause", Lines).show(
            cause_lines(verdict, self.size.width, low=self.size.height < LOW)
        )
        self.show_keys()
        self.show_status()

    def show_status(self) -> None:
        """Follow, filter, position; lag and what was dropped."""
        store, lag = self._view.store, self._following.lag_bytes
        left = f" {self._view.status()}"
        right = (
            f"lag {size(lag)} · dropped {size(store.skipped_bytes) if store.skipped_bytes else 0} "
        )
        room = max(0, self.size.width - width_of(right))
        role = "warn" if store.skipped_bytes else "dim"
        self.query_one("#status", Lines).show([line((fit(left, room), "strong"), (right, role))])

    # ---- keys

    def action_follow(self) -> None:
        """``f``."""
        self._view.toggle_follow()

    def action_next_error(self) -> None:
        """``e``."""
        if not self._view.next_error(1):
            self.specops.say("no error in this log so far")

    def action_previous_error(self) -> None:
        """``E``."""
        if not self._view.next_error(-1):
            self.specops.say("no error in this log so far")

    def action_search(self) -> None:
        """``/``."""
        self.ask(
            Prompt("/", placeholder="text or /regex/", history=self.specops.lines.history("log/"))
        )

    def action_narrow(self) -> None:
        """``&``."""
        history = self.specops.lines.history("log&")
        self.ask(Prompt("&", placeholder="only lines with text, /regex/ or !text", history=history))

    def given(self, what: str, text: str | None) -> None:
        """A search or a filter."""
        if text is None:
            return
        try:
            matcher = Matcher(text) if text else None
        except SpecopsError as error:
            self.report(error)
            return
        if text:
            self.specops.lines.history(f"log{what}").insert(0, text)
        if what == "/":
            self._view.find(matcher)
        else:
            self._view.narrow_to(matcher)

    def action_next_hit(self) -> None:
        """``n``."""
        self._hit(1)

    def action_previous_hit(self) -> None:
        """``N``."""
        self._hit(-1)

    def _hit(self, step: int) -> None:
        if self._view.search is None:
            self.action_search()
        elif not self._view.next_hit(step) and self._view.search.done:
            self.specops.say(f"no line with {self._view.search.matcher.text}")

    def action_back(self) -> None:
        """End the search, then the filter, then leave."""
        if self._view.search is not None:
            self._view.find(None)
        elif self._view.rows.narrow is not None:
            self._view.narrow_to(None)
        else:
            super().action_back()

    def action_top(self) -> None:
        """``g``."""
        self._view.top()

    def action_bottom(self) -> None:
        """``G``: the end, and follow."""
        self._view.bottom()

    def action_fold(self) -> None:
        """``o``."""
        self._view.toggle_fold()

    def action_timestamps(self) -> None:
        """``t``."""
        self._view.toggle_times()

    def action_wrap(self) -> None:
        """``w``."""
        self._view.toggle_wrap()

    def action_left(self) -> None:
        """``←``."""
        self._view.shift(-20)

    def action_right(self) -> None:
        """``→``."""
        self._view.shift(20)

    def action_mark(self) -> None:
        """Space."""
        self._view.toggle_mark()

    def action_unmark(self) -> None:
        r"""``\``."""
        self._view.marks.clear()
        self._view.refresh()

    def action_copy(self) -> None:
        """``c``."""
        self.specops.copy(self._view.chosen_text())

    def action_save(self) -> None:
        """``s``: what is shown (filtered lines only, when filtered) to a file of the operator's."""
        from console.config import state_dir  # noqa: PLC0415 - when asked for

        folder = state_dir() / "logs"
        path = folder / f"{safe(self._server)}-{time.strftime('%Y%m%d-%H%M%S')}.log"
        self.run_worker(self._save(path), group="save", exit_on_error=False)

    async def _save(self, path: Path) -> None:
        import asyncio  # noqa: PLC0415

        rows, store = self._view.rows, self._view.store
        count = len(rows) if rows.narrow is not None else len(store)

        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with path.open("xb") as file:
                path.chmod(0o600)
                for row in range(store.first if rows.narrow is None else 0, count):
                    number = rows.line(row) if rows.narrow is not None else row
                    file.write(store.raw(number) + b"\n")

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            self.specops.say(f"not saved: {error}", "bad")
            return
        self.specops.say(f"saved {count} lines: {path}", "ok")
