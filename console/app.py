"""The terminal application: holds what is shown, goes from place to place, never blocks.

Nothing but Textual and the frame is imported before the first paint; see
:mod:`console.screens.opening` for what comes after it, and how.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from console import styles
from console.driver import TerminalDriver
from console.errors import SpecopsError
from console.garbage import GARBAGE
from console.keys import KeyMap
from console.notices import Ended, Notice, Notices
from console.screens.base import Place, keyed
from console.screens.keyboard import Keyboard
from console.screens.opening import Beginning, Opening, Prepared
from console.screens.yielding import forget_drawn
from console.terminal import leave_on_signals
from console.turns import TURNS

if TYPE_CHECKING:
    from console.config import Config
    from console.config.presets import Presets
    from console.model import HostView
    from console.screens.benching import Benching
    from console.screens.commands import CommandLine
    from console.screens.doing import Doing
    from console.screens.opening import Opener
    from console.screens.places import Places
    from console.screens.ports import ActionsPort, FleetPort, Player
    from console.screens.reloading import Reloading
    from console.watch.trend import Trends


class SpecopsApp(App[None], inherit_bindings=False):
    """The console over what ``prepare`` reads, which is called after the first paint."""

    TITLE = "specops"
    CSS = styles.sheet()
    BINDINGS: ClassVar[list[BindingType]] = [("ctrl+c", "interrupt", "")]
    COMMAND_PALETTE_BINDING = "f3"

    # There once hosts.yaml is read: see Beginning.
    config: Config
    lines: CommandLine
    benching: Benching
    doing: Doing
    places: Places
    reloading: Reloading
    trends: Trends

    def __init__(
        self,
        prepare: Callable[[], Prepared],
        *,
        read_only: bool = False,
        label: str = "",
        hosts_file: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # With NO_COLOR nothing is translated to greys: no colour is sent at all.
        super().__init__(TerminalDriver, ansi_color=True if "NO_COLOR" in os.environ else None)
        self.read_only = read_only
        self.hosts_file = hosts_file
        self.now = clock
        self.keys = KeyMap.make(read_only=read_only)
        self.views: dict[str, HostView] = {}
        self.notices = Notices()
        self.fleet: FleetPort | None = None
        self.actions: ActionsPort | None = None
        self.opened = asyncio.Event()
        self.player: Player | None = None
        self.file, self.first_run = "", False
        self.failure: SpecopsError | None = None
        """Why the console could not be opened at all."""
        self._label = label
        self.keyboard = Keyboard(self)
        self.beginning = Beginning(self, prepare)
        self._dirty, self._drawn_at = False, 0.0
        self._stamped: dict[type, type] = {}
        for theme in styles.THEMES:
            self.register_theme(theme)
        self.theme = styles.FIRST

    @property
    def label(self) -> str:
        """What the head says of this console: ``DEMO``, or where a recording stands."""
        return f"{self._label} {self.player.status()}" if self.player else self._label

    def key_map(self, config: Config) -> KeyMap:
        """The keys that a configuration gives this console."""
        replay = self.player is not None
        with config.at():
            return KeyMap.make(config.keys, read_only=self.read_only, replay=replay)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: the actions of the screen, from the one table."""
        if isinstance(screen, Place):
            for action in self.keys.on(screen.SCOPE):
                method = getattr(screen, f"action_{action.method}")
                yield SystemCommand(f"{action.title}  {action.shown_keys}", action.help, method)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own variables, for themes that do not know them."""
        return dict(styles.VARIABLES)

    def first_theme(self, config: Config) -> str:
        """The configured theme, or one that the terminal can show."""
        few = self.no_color or self.console.color_system in (None, "standard")
        with config.at():
            return styles.choose(config.theme, self.available_themes, few=few)

    # ---- life

    def action_interrupt(self) -> None:
        """Ctrl-C where no screen takes it: in dialogs."""
        self.places.leave()

    def get_default_screen(self) -> Screen[Any]:
        """At the bottom, and alone until the fleet can be shown."""
        return Opening()

    async def on_event(self, event: events.Event) -> None:
        """Keys one at a time: each for what the one before has opened, the first for the fleet."""
        if self.beginning.left_by(event):
            self.exit()
        elif not self.keyboard.keeps(event):
            await super().on_event(event)

    def on_mount(self) -> None:
        """Keys wait for the fleet from here on; a terminal that goes away ends the console."""
        self.beginning.start()
        leave_on_signals(self.exit)

    def connect(self, opener: Opener) -> None:
        """Make the connections; what goes wrong with them is said, and the console stays."""
        self.run_worker(self._connect(opener), group="open", exit_on_error=False)

    async def _connect(self, opener: Opener) -> None:
        from console.screens.prompts import ScreenPrompts  # noqa: PLC0415 - there with the fleet

        try:
            self.fleet, self.actions = await opener(ScreenPrompts(self))
            self.fleet.subscribe(self.view_changed)
            for view in self.fleet.views.values():
                self.view_changed(view)
            self.opened.set()
            await self.fleet.start()
        except SpecopsError as error:
            self.say(str(error), "bad")
        finally:
            self.opened.set()
            GARBAGE.begin()

    async def on_unmount(self) -> None:
        """Close connections; the terminal is already given back when this takes its time."""
        self.keyboard.stop()
        if self.fleet is not None:
            await self.fleet.stop()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A bug in the background is said, not swallowed."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            error = event.worker.error
            self.log.error(repr(error))
            self.say(f"internal error in {event.worker.group}: {error!r}", "bad")

    # ---- data

    def view_changed(self, view: HostView) -> None:
        """A new view of a host; drawn with the next tick."""
        from console.watch.trend import Sample  # noqa: PLC0415 - fetched by now
        from widgets.fleet import memory_share, utilization  # noqa: PLC0415

        name = view.host.name
        if name not in self.config.hosts:
            return  # the last word of a host that hosts.yaml no longer has
        before, self.views[name] = self.views.get(name), view
        self._dirty = True
        if self.is_running and before and before.servers and before.told != view.told:
            self.call_later(self.tick)  # such as why a server died: it does not wait its turn
        if view.seen_at is None:
            return
        share, busy = memory_share(view), utilization(view)
        self.trends.add(name, Sample(view.seen_at, share, busy, None, None))
        for state in view.servers:
            sample = Sample(view.seen_at, share, busy, state.throughput_tok_s, state.accept_length)
            self.trends.add(f"{name}/{state.name}", sample)

    def tick(self) -> None:
        """Draw what is new; once a second in any case, because ages grow, and keys come first."""
        if not self.is_running:  # leaving: screens lose their widgets before timers end
            return
        now = time.monotonic()
        if (TURNS.answering or not self._dirty) and now - self._drawn_at < 1.0:
            return
        self._dirty, self._drawn_at = False, now
        self.reloading.look(now)
        for screen in reversed(self.screen_stack):
            if isinstance(screen, Place):
                if screen.drawable:  # one that was opened this moment draws itself
                    screen.views_changed()
                    screen.show_notice()
                break

    def refresh_host(self, host: str | None, *, quiet: bool = False) -> None:
        """Sample now."""
        if self.fleet is not None:
            self.fleet.refresh(host)
            if not quiet:
                self.say(f"asking {host or 'all hosts'} again", over=self.reloading.answered(host))

    def presets(self) -> Presets:
        """All presets, read from disk now: a file edited meanwhile counts."""
        from console.config.presets import load_presets  # noqa: PLC0415 - only when asked for

        return load_presets(self.hosts_file)

    def configure(self, config: Config) -> None:
        """Take over an edited hosts.yaml, at once.

        Raises:
            ConfigError: keys that clash, no such theme; nothing is changed then.
        """
        keys, theme = self.key_map(config), self.first_theme(config)
        if keys != self.keys:
            self.keys = keys
            self._stamped.clear()
        former, self.config = self.config, config
        if config.theme != former.theme:
            self.theme = theme
        self.views = self.reloading.views_for(config)
        if self.fleet is not None:
            self.fleet.configure(config)
        self._dirty = True

    # ---- saying

    def say(self, text: str, role: str = "plain", over: Ended | None = None) -> None:
        """One line for the operator, kept in the history, shown until ``over``; it is inert."""
        from widgets.words import safe  # noqa: PLC0415 - fetched by now

        self.notices.add(Notice(self.now(), safe(text), role, over))
        if self.is_running and isinstance(self.screen, Place) and self.screen.drawable:
            self.screen.show_notice()

    def alert(self, text: str) -> None:
        """Bell and desktop notification (OSC 9), as configured."""
        from widgets.words import safe  # noqa: PLC0415 - fetched by now

        driver = self._driver
        if self.config.notify.bell:
            self.bell()
        if self.config.notify.osc9 and driver is not None and not self.is_headless:
            driver.write(f"\x1b]9;{safe(text)}\x07")

    def copy(self, text: str) -> None:
        """To the operator's clipboard by OSC 52; terminals cut long ones, so they are refused."""
        if len(text) > 70_000:
            self.say("too long for the clipboard (70 kB): s saves it to a file", "warn")
            return
        self.copy_to_clipboard(text)
        self.say(f"copied {len(text.splitlines())} line(s)")

    # ---- doing

    def propose(self, action: str, host: str | None, server: str | None, **options: Any) -> None:
        """Show the plan of an action."""
        self.doing.propose(action, host, server, options)

    def pop_screen(self) -> AwaitComplete:
        """Close a screen, and let go of what was drawn on it."""
        forget_drawn(self.screen)
        return super().pop_screen()

    def made(self, screen: type[Any], *args: Any, **kwargs: Any) -> Any:
        """A screen with the bindings of the table."""
        if screen not in self._stamped:
            self._stamped[screen] = keyed(screen, screen.SCOPE, self.keys)
        return self._stamped[screen](*args, **kwargs)
