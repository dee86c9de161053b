"""What every screen has: head, body, notices, key bar; the actions that exist everywhere.

Screens are stamped with their bindings from the one table (:func:`keyed`), so that a read-only
console has no dangerous binding at all and remapped keys need nothing else.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from console.errors import SpecopsError
from console.keys import KeyMap, key_name
from console.screens.moving import Moving
from console.screens.playing import Playing
from console.screens.standing import stands
from widgets.keybar import KeyBar
from widgets.paint import Line, Lines, fit, line, width_of, wrap

if TYPE_CHECKING:
    from console.model import HostView, ServerState
    from widgets.prompt import Prompt

LEAST = (60, 15)
"""Columns and rows below which a plain notice stands in place of broken tables."""

ScreenT = TypeVar("ScreenT", bound=Screen[Any])


def keyed(screen: type[ScreenT], scope: str, keys: KeyMap) -> type[ScreenT]:
    """The screen class with the bindings that the table gives its scope."""
    bindings = [
        Binding(",".join(action.keys), action.method, action.title, show=False, id=action.id)
        for action in keys.on(scope)
        if action.keys
    ]
    return cast("type[ScreenT]", type(screen.__name__, (screen,), {"BINDINGS": bindings}))


class Place(Moving, Playing):
    """A screen of the console. Subclasses give ``SCOPE``, :meth:`body` and :meth:`crumbs`."""

    SCOPE: ClassVar[str] = ""
    SPLIT: ClassVar[bool] = False
    """Whether the log stands beside the rest where there is room."""
    AUTO_FOCUS = ""
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - an instance variable of Textual's
        (0, "-tiny"),
        (LEAST[0], "-narrow"),
        (120, "-wide"),
        (160, "-log-beside"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (LEAST[1], "-high")]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self._asking: Prompt | None = None
        self._sized = False

    # ---- layout

    def compose(self) -> ComposeResult:
        """Head, rule, body, notice, keys."""
        yield Lines(id="head")
        yield Rule()
        yield Container(*self.body(), id="body", classes="-split" if self.SPLIT else "")
        yield Lines(id="tiny")
        yield Lines(id="notice")
        yield KeyBar(id="keys")

    def body(self) -> list[Widget]:
        """The widgets between head and keys."""
        raise NotImplementedError

    def crumbs(self) -> str:
        """Where we are, from the fleet down."""
        raise NotImplementedError

    def where(self) -> tuple[str | None, str | None]:
        """The host and server that an action here is about."""
        return None, None

    def aim(self) -> tuple[str | None, str | None]:
        """Host and server that a key for servers means: where a host has only one, that one."""
        host, server = self.where()
        if host is not None and server is None:
            names = self.specops.places.servers_of(host)
            server = names[0] if len(names) == 1 else None
        return host, server

    def narrowed(self) -> str:
        """The filter that leaves rows out, as it was typed."""
        return ""

    def can_fix(self) -> bool:
        """Whether a diagnosis here proposes a change."""
        return False

    def on_mount(self) -> None:
        """Fill in what is known."""
        self.views_changed()
        self.show_notice()

    def on_screen_resume(self) -> None:
        """Catch up with what changed while another screen was shown."""
        if self.drawable and self._sized:
            self.views_changed()
            self.show_notice()

    def on_screen_suspend(self) -> None:
        """Another screen was opened over this one; a dialog leaves it in sight."""
        if not self.app.screen.is_modal:
            self.covered()

    def covered(self) -> None:
        """Out of sight: what only draws may rest until it is resumed."""

    def on_resize(self) -> None:
        """Lay out anew for another width; the first comes right after it was opened."""
        self._sized = True
        width, height = self.size
        tiny = width < LEAST[0] or height < LEAST[1]
        said = (f"This window is {width} by {height}; {LEAST[0]} by {LEAST[1]} are needed. Make it "
                "larger, or leave with q: specops status prints the same.")  # fmt: skip
        parts = wrap(said, max(10, width - 2)) if tiny else []
        self.query_one("#tiny", Lines).show([line(f" {part}") for part in parts])
        self.call_after_refresh(self.on_screen_resume)

    # ---- drawing

    def views_changed(self) -> None:
        """New data, or a second has passed: draw again what depends on it."""
        self.show_head()

    @property
    def drawable(self) -> bool:
        """Whether it still has its widgets: background work may end after it was left."""
        return stands(self)

    def show_head(self) -> None:
        """The top line: where we are, what needs the operator, clock, file in use."""
        app = self.specops
        left = f" {self.crumbs()}"
        narrowed = fit(self.narrowed(), 24).rstrip()  # hosts are not gone: always in sight
        flags = [word for word in (narrowed, "READ-ONLY" * app.read_only, app.label) if word]
        clock = time.strftime("%H:%M:%S", time.localtime(app.now()))
        file = [app.file] if app.file else []
        right = " " + "  ".join([*flags, clock, *file]) + " "
        if width_of(left) + width_of(right) + 9 > self.size.width:
            refused = ["REFUSED"] if app.file.endswith(" REFUSED") else []
            right = " " + "  ".join([*flags, clock, *refused]) + " "  # the counts matter more
        room = max(0, self.size.width - width_of(right))
        name = ("specops", "strong")
        head: Line = line(
            " ",
            name,
            (" " + fit(left, max(0, room - 9)), "plain"),
            (right, "warn" if flags else "dim"),
        )
        self.query_one("#head", Lines).show([head])
        self.show_keys()

    def show_keys(self) -> None:
        """The key bar: what has something to act on where the cursor is."""
        bar = self.specops.keys.bar(self.SCOPE)
        host, server = self.aim()
        if (view := self.view(host)) is not None:
            from console.screens.useful import useful  # noqa: PLC0415 - not for the first frame

            state = self.server_state(host, server)
            bar = tuple(action for action in bar if useful(action.id, view, state))
        if not self.can_fix():
            bar = tuple(action for action in bar if action.id != "fix")
        self.query_one(KeyBar).show([(key_name(a.keys[0]), a.title, a.dangerous) for a in bar])

    def show_notice(self) -> None:
        """The newest notice, while it is fresh."""
        notice = self.specops.notices.fresh(self.specops.now())
        bar = self.query_one("#notice", Lines)
        running = self.background() if notice is None else ""
        bar.set_class(bool(notice or running), "-shown")
        if running:
            room = max(8, self.size.width - 1)
            bar.show([line((f" {part}", "accent")) for part in wrap(running, room, limit=2)])
        if notice is not None:
            count = self.specops.notices.unseen
            more = f"  (n: {count} more)" if count > 1 else ""
            room = max(8, self.size.width - len(more) - 1)
            first, *rest = wrap(notice.text, room, limit=2)  # whole with n
            lines = [line((" " + fit(first, room), notice.role), (more, "dim"))]
            bar.show([*lines, *(line((f" {part}", notice.role)) for part in rest)])

    def background(self) -> str:
        """What goes on behind closed dialogs."""
        return self.specops.doing.background()

    # ---- the line for : and /

    def ask(self, prompt: Prompt) -> None:
        """Show an input line above the key bar and give it the keys."""
        self.dismiss_prompt()
        self._asking = prompt
        hint = Lines([line((f" {prompt.what} {prompt.placeholder}", "dim"))], id="hint")
        self.mount(hint, prompt, before=self.query_one("#notice"))
        prompt.focus()

    def dismiss_prompt(self) -> None:
        """Take the input line away."""
        if self._asking is not None:
            self.set_focus(None)
            self._asking.remove()
            self.query("#hint").remove()
            self._asking = None

    def on_input_changed(self, event: Input.Changed) -> None:
        """Another letter after ``:``: what it may go on to."""
        if event.input is self._asking and self._asking.what == ":":
            self._show_hint(event.value)

    def _show_hint(self, text: str) -> None:
        """The words that may come next, as many as fit; of a single one what it does."""
        # A line is being typed: the words of hosts and commands are there by now.
        from console.screens.completing import hint  # noqa: PLC0415
        from widgets.table import cell  # noqa: PLC0415
        from widgets.words import safe  # noqa: PLC0415

        offers = hint(self.specops, text)
        spans: Line = line((" : ", "key"))
        if len(offers) == 1:
            spans = line((f" : {offers[0][0]}", "key"), (f"  {safe(offers[0][1])}", "dim"))
        else:
            spans = (*spans, *((f"{safe(word)}  ", "plain") for word, _ in offers))
        for shown in self.query("#hint").results(Lines):
            width = max(10, self.size.width)
            shown.show(
                [cell(spans, width)] if sum(width_of(t) for t, _ in spans) > width else [spans]
            )

    def on_prompt_given(self, event: Prompt.Given) -> None:
        """An input line was sent or given up."""
        if event.prompt is not self._asking:
            return
        event.stop()
        self.dismiss_prompt()
        if event.prompt.what == ":":
            if event.text and event.text.strip():
                self.specops.lines.given(event.text.strip())
        else:
            self.given(event.prompt.what, event.text)

    def given(self, what: str, text: str | None) -> None:
        """An input line of this screen's own; ``None`` when it was given up."""

    def report(self, error: SpecopsError) -> None:
        """One line for an error."""
        self.specops.say(str(error), "bad")

    def on_key(self, event: events.Key) -> None:
        """A key of an action that a read-only console or a recording lacks: say so."""
        action = self.specops.keys.lacking(self.SCOPE, event.key)
        if action is not None:
            what = "a recording" if self.specops.player is not None else "read-only"
            self.specops.say(f"{action.title}: this console is {what}", "warn")

    # ---- actions that exist everywhere

    def action_help(self) -> None:
        """``?``."""
        self.specops.places.help(self.SCOPE)

    def action_command(self) -> None:
        """``:``."""
        from console.screens.completing import complete  # noqa: PLC0415 - not for the first frame
        from widgets.prompt import Prompt  # noqa: PLC0415

        app = self.specops
        self.ask(Prompt(":", value="", placeholder="any command; Tab completes, ↑ recalls",
                        history=app.lines.history(":"),
                        complete=partial(complete, app)))  # fmt: skip
        self._show_hint("")

    def action_back(self) -> None:
        """Esc: one place back, never out."""
        self.specops.places.back()

    def action_quit(self) -> None:
        """Leave; asks when an action is running."""
        self.specops.places.leave()

    def action_go_fleet(self) -> None:
        """``1``."""
        self.specops.places.fleet()

    def action_go_host(self) -> None:
        """``2``."""
        host, _ = self.where()
        self.specops.places.host(host)

    def action_go_log(self) -> None:
        """``3``."""
        self.specops.places.log(*self.aim())

    def action_logs(self) -> None:
        """``l``."""
        self.specops.places.log(*self.aim())

    def action_bench(self) -> None:
        """``b``."""
        self.specops.places.bench(*self.aim())

    def action_presets(self) -> None:
        """``p``."""
        self.specops.places.presets()

    def action_activity(self) -> None:
        """``a``."""
        self.specops.places.activity()

    def action_notices(self) -> None:
        """``n``."""
        self.specops.places.notices()

    def action_refresh(self) -> None:
        """``r``."""
        host, _ = self.where()
        self.specops.refresh_host(host)

    async def action_shell(self) -> None:
        """``!``."""
        host, _ = self.where()
        if host is not None:
            await self.specops.places.shell(host)

    # ---- changing a host; every one goes through the plan dialog

    def action_relaunch(self) -> None:
        """``R``: with the presets it has; the plan's dialog takes others."""
        self.specops.propose("relaunch", *self.aim(), present=True)

    def action_launch(self) -> None:
        """``L``."""
        self.specops.propose("launch", *self.aim())

    def action_stop(self) -> None:
        """``S``."""
        self.specops.propose("stop", *self.aim())

    def action_kill_zombies(self) -> None:
        """``Z``."""
        host, _ = self.where()
        self.specops.propose("kill-zombies", host, None)

    def action_clean(self) -> None:
        """``C``."""
        host, _ = self.where()
        self.specops.propose("clean", host, None)

    # ---- data

    def view(self, host: str | None) -> HostView | None:
        """The newest view of a host."""
        return self.specops.views.get(host) if host else None

    def server_state(self, host: str | None, server: str | None) -> ServerState | None:
        """The newest state of a server."""
        view = self.view(host)
        if view is None:
            return None
        return next((state for state in view.servers if state.name == server), None)


class Rule(Lines):
    """A horizontal line."""

    def __init__(self) -> None:
        super().__init__(classes="rule")

    def line_at(self, y: int) -> tuple[Line, str]:
        """The line."""
        return line("─" * self.size.width), ""

    def get_content_height(self, *args: object) -> int:
        """One row."""
        return 1
