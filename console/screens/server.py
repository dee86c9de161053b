"""One server: its start phase by phase, how it answers, what failed and the fix, its command."""

from __future__ import annotations

import shlex
from typing import ClassVar

from textual.containers import Container
from textual.widget import Widget

from console.errors import SpecopsError
from console.logs.store import LogStore
from console.model import HostView, Phase, Run, Server, ServerState
from console.screens.base import Rule
from console.screens.fixing import Fixing
from console.screens.following import Following
from console.screens.moving import Movable
from console.text import mask_argv, mask_env
from widgets.bars import age, number, sparkline
from widgets.log_view import LogView
from widgets.paint import Line, Lines, line, wrap
from widgets.phases import phase_lines
from widgets.words import safe, server_word, why, zombies_of


class ServerScreen(Fixing):
    """A server as an operator watches it."""

    SCOPE: ClassVar[str] = "server"
    SPLIT = True

    def __init__(self, host: str, server: str) -> None:
        super().__init__()
        self._host, self._server = host, server
        self._following = Following(self, last_lines=2000)

    # ---- layout

    def body(self) -> list[Widget]:
        """State and why, phases, numbers; its log."""
        self._log = LogView(LogStore(), id="log", plain=True)
        left = Container(
            Lines(id="state"), Rule(), Lines(id="phases"), Lines(id="numbers"), Rule(), id="left"
        )
        return [left, Container(Lines(id="loghead"), self._log, id="right")]

    def crumbs(self) -> str:
        """Host and server."""
        return f"fleet > {safe(self._host)} > {safe(self._server)}"

    def where(self) -> tuple[str | None, str | None]:
        """This server."""
        return self._host, self._server

    def movable(self) -> Movable:
        """The log below."""
        return self._log

    # ---- drawing

    def run_record(self) -> Run | None:
        """The newest run of this server."""
        view = self.view(self._host)
        runs = [run for run in view.runs if run.server == self._server] if view else []
        return max(runs, key=lambda run: run.launched_at, default=None)

    def views_changed(self) -> None:
        """Draw again."""
        self.show_head()
        view = self.view(self._host)
        state = self.server_state(self._host, self._server)
        width = self.size.width
        width = width if width < 160 else width * 5 // 8
        if view is None or state is None:
            text = " not launched here yet; L launches it" if view else " no such host"
            self.query_one("#state", Lines).show([line((text, "dim"))])
            self.query_one("#phases", Lines).show([])
            self.query_one("#numbers", Lines).show(self._configured(width))
        else:
            self.query_one("#state", Lines).show(self._state(view, state, width))
            self.query_one("#phases", Lines).show(phase_lines(view, state, width))
            self.query_one("#numbers", Lines).show(self._numbers(state, width))
        self._follow()

    def _state(self, view: HostView, state: ServerState, width: int) -> list[Line]:
        word, run = server_word(view, state), self.run_record()
        now = self.specops.now()
        facts = [f"health {state.health.value} ({safe(state.vantage)})"]
        if state.pid is not None:
            facts.append(f"pid {state.pid}")
        if state.port is not None:
            facts.append(f"port {state.port}")
        if state.run_id:
            facts.append(f"run {safe(state.run_id)}")
        if run is not None:
            facts.append(f"launched {age(now - run.launched_at)} ago by {safe(run.launched_by)}")
        head = f" {word.text}  "
        parts = wrap(" · ".join(facts), width - len(head) - 1, limit=2)
        out = [line((head, word.role), parts[0])]
        out += [line(" " * len(head) + part) for part in parts[1:]]
        limit = max(3, self.size.height // 3)
        for label, text in why(view, state, now, serves=False):
            for at, part in enumerate(wrap(text, width - 18, limit=3)):
                out.append(line((f" {label[:14] if at == 0 else '':<15} ", "strong"), part))
        if state.phase is Phase.FAILED and state.diagnosis and state.diagnosis.change:
            change = state.diagnosis.change
            sets = [f"--{name} {value}" for name, value in change.flags.items()]
            sets += [f"{name}={value}" for name, value in change.env.items()]
            risk = f" (risk: {safe(change.risk)})" if change.risk else ""
            key = " F applies " if self.specops.keys.has("fix") else " would help "
            out.append(line((key, "key"), safe(" ".join(sets)) + risk))
        return out[: limit + 6]

    def _numbers(self, state: ServerState, width: int) -> list[Line]:
        app, name = self.specops, f"{self._host}/{self._server}"
        room = max(10, min(60, width - 42))
        rows = (
            ("tok/s", state.throughput_tok_s, 0, "tokens_s"),
            ("accept length", state.accept_length, 2, "accept"),
        )
        out = [
            line((f" {title:<15} ", "dim"), (f"{number(value, digits):>8} ", "strong"),
                 (sparkline(app.trends.line(name, what, room, app.now()), room), "accent"),
                 (" 10 min", "dim"))
            for title, value, digits, what in rows
        ]  # fmt: skip
        queue = f"{number(state.running_requests)} running, {number(state.queued_requests)} queued"
        out.append(line((" requests        ", "dim"), queue))
        if self.size.height >= 30:
            out += self._command_lines(width, 3)
        return out

    def _command_lines(self, width: int, limit: int) -> list[Line]:
        text = self._command()
        if not text:
            return []
        parts = wrap(text, width - 18, limit=limit)
        head = line((" command         ", "dim"), parts[0])
        return [head, *(line(" " * 17 + part) for part in parts[1:])]

    def _command(self) -> str:
        run = self.run_record()
        return safe(shlex.join(mask_argv(run.argv))) if run else ""

    def _configured(self, width: int) -> list[Line]:
        server: Server | None = self.specops.config.servers.get(self._server)
        if server is None:
            return []
        names = [name for name in (server.speculative, server.nccl) if name]
        return [
            line((" model           ", "dim"), safe(server.model)),
            line((" presets         ", "dim"), " + ".join(names) or "none"),
            line((" port            ", "dim"), str(server.port)),
        ]

    def _follow(self) -> None:
        from console.logs.several import name_of  # noqa: PLC0415 - the same rule
        from console.screens.log import source_of  # noqa: PLC0415

        source = source_of(self.specops, self._host, self._server)
        head = f" log {safe(name_of(source))}" if source else " no log yet"
        self.query_one("#loghead", Lines).show([line((head, "dim"))])
        self._following.follow(self._host, source, self._log)

    def reread(self) -> None:
        """The log, from its start."""
        self._following.stop()

    def covered(self) -> None:
        """Nobody sees the log: it is not read."""
        self._following.pause()

    def on_unmount(self) -> None:
        """Stop following."""
        self._following.stop()

    # ---- keys

    def action_next_error(self) -> None:
        """``e``: the log, at its last error."""
        self.specops.places.log(self._host, self._server, at_error=True)

    def action_kill_zombies(self) -> None:
        """``Z``: those of this server alone."""
        view = self.view(self._host)
        ids = tuple(z.id for z in zombies_of(view, self._server)) if view else ()
        if not ids:
            self.specops.say("no zombie of this server; the host's own screen has all", "warn")
            return
        self.specops.propose("kill-zombies", self._host, None, zombies=ids)

    def action_whole(self) -> None:
        """``v``: command line and variables in full."""
        from console.screens.reading import Reading  # noqa: PLC0415 - when opened

        run = self.run_record()
        if run is None:
            self.specops.say("not launched by specops: no recorded command", "warn")
            return
        words = mask_argv(run.argv)
        rows = [(safe(words[0] if words else ""), "strong")]
        rows += [("  " + safe(word), "plain") for word in words[1:]]
        env = mask_env(run.env)
        rows += [("", "plain"), *((safe(f"{k}={v}"), "dim") for k, v in sorted(env.items()))]
        self.app.push_screen(Reading(f"run {safe(run.run_id)}", rows))

    def action_diff(self) -> None:
        """``d``: this run's command against what its presets say now."""
        from console.screens.differing import run_difference  # noqa: PLC0415 - when opened
        from console.screens.reading import Reading  # noqa: PLC0415

        run = self.run_record()
        server = self.specops.config.servers.get(self._server)
        if run is None or server is None:
            self.specops.say("nothing to compare: no recorded run of a configured server", "warn")
            return
        try:
            rows = run_difference(run, server, self.specops.presets())
        except SpecopsError as error:  # a preset that it names is gone, or cannot be read
            self.report(error)
            return
        self.app.push_screen(Reading(f"run {safe(run.run_id)} against its presets", rows))

    def action_copy(self) -> None:
        """The command line."""
        self.specops.copy(self._command() or self._server)
