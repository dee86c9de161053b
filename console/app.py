"""The terminal application: holds what is shown, goes from place to place, never blocks.

Nothing heavy is imported before the first paint: screens other than the fleet when they are opened,
connections after the fleet is drawn.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.events import Event, Key
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from console import styles
from console.config import Config
from console.config.presets import Presets, load_presets
from console.driver import TerminalDriver
from console.errors import SpecopsError
from console.keys import KeyMap
from console.logs.turns import TURNS
from console.model import HostView
from console.notices import Notice, Notices
from console.screens.base import Place, keyed
from console.screens.benching import Benching
from console.screens.commands import CommandLine
from console.screens.doing import Doing
from console.screens.keyboard import Keyboard
from console.screens.places import Places
from console.screens.ports import ActionsPort, FleetPort, Player
from console.screens.prompts import ScreenPrompts
from console.screens.reloading import Reloading
from console.terminal import leave_on_signals
from console.watch.trend import Sample, Trends
from widgets.fleet import memory_share, utilization
from widgets.words import safe

Opener = Callable[[ScreenPrompts], Awaitable[tuple[FleetPort, ActionsPort]]]
"""Makes the connections; called after the first paint, may import what it likes."""

SETTLED_S = 5.0
"""When all is loaded it is left out of garbage collections: each held the screen for 45 ms."""
SWITCH_S = 0.0005
"""A thread that diagnoses gets the interpreter at each of the dozens of turns between a key and its
drawing; by default it would keep it for 5 ms each time."""
REDRAW_S = 0.5
"""How often new values are drawn; keys are drawn at once."""


class SpecopsApp(App[None], inherit_bindings=False):
    """The console over a configuration and what :data:`Opener` gives it."""

    TITLE = "specops"
    CSS = styles.sheet()
    BINDINGS: ClassVar[list[BindingType]] = [("ctrl+c", "interrupt", "")]
    COMMAND_PALETTE_BINDING = "f3"

    def __init__(
        self,
        config: Config,
        opener: Opener,
        *,
        read_only: bool = False,
        label: str = "",
        hosts_file: Path | None = None,
        clock: Callable[[], float] = time.time,
        player: Player | None = None,
        first_run: bool = False,
    ) -> None:
        # With NO_COLOR nothing is translated to greys: no colour is sent at all.
        super().__init__(TerminalDriver, ansi_color=True if "NO_COLOR" in os.environ else None)
        self.config = config
        self.read_only = read_only
        self._label = label
        self.player = player
        self.hosts_file = hosts_file
        self.first_run = first_run
        self.now = player.now if player else clock
        self.keys = self._key_map(config)
        self.views: dict[str, HostView] = {}
        self.notices = Notices()
        self.trends = Trends()
        self.keyboard = Keyboard(self)
        self.lines = CommandLine(self)
        self.doing = Doing(self)
        self.benching = Benching(self)
        self.places = Places(self)
        self.reloading = Reloading(self)
        self.fleet: FleetPort | None = None
        self.actions: ActionsPort | None = None
        self.opened = asyncio.Event()
        self._opener = opener
        self._dirty = False
        self._drawn_at = 0.0
        self._stamped: dict[type, type] = {}
        for theme in styles.THEMES:
            self.register_theme(theme)
        self.theme = self._first_theme()

    @property
    def label(self) -> str:
        """What the head says of this console: ``DEMO``, or where a recording stands."""
        return f"{self._label} {self.player.status()}" if self.player else self._label

    def _key_map(self, config: Config) -> KeyMap:
        replay = self.player is not None
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

    def _first_theme(self) -> str:
        few = self.no_color or self.console.color_system in (None, "standard")
        return styles.choose(self.config.theme, self.available_themes, few=few)

    # ---- life

    async def on_event(self, event: Event) -> None:
        """Keys one at a time: each is for what the one before it has opened."""
        if isinstance(event, Key):
            TURNS.key()
        if not self.keyboard.keeps(event):
            await super().on_event(event)

    def action_interrupt(self) -> None:
        """Ctrl-C where no screen takes it: in dialogs."""
        self.places.leave()

    def on_mount(self) -> None:
        """Draw the fleet with what the file says, then connect."""
        from console.screens.fleet import Fleet  # noqa: PLC0415 - after the app is set up

        self.views = self.reloading.views_for(self.config)
        self.push_screen(self.made(Fleet))
        self.keyboard.attend()
        self.set_interval(REDRAW_S, self._tick)
        sys.setswitchinterval(SWITCH_S)
        self.set_timer(SETTLED_S, gc.freeze)
        leave_on_signals(self.exit)
        if self.config.note:
            self.say(self.config.note, "warn")
        self.call_after_refresh(self._connect)
        if self.first_run:
            self.call_after_refresh(self.places.wizard)

    def _connect(self) -> None:
        self.run_worker(self._open(), group="open", exit_on_error=False)

    async def _open(self) -> None:
        try:
            self.fleet, self.actions = await self._opener(ScreenPrompts(self))
            self.fleet.subscribe(self.view_changed)
            for view in self.fleet.views.values():
                self.view_changed(view)
            self.opened.set()
            await self.fleet.start()
        except SpecopsError as error:
            self.say(str(error), "bad")
        finally:
            self.opened.set()

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
        name = view.host.name
        if name not in self.config.hosts:
            return  # the last word of a host that hosts.yaml no longer has
        self.views[name] = view
        self._dirty = True
        if view.seen_at is None:
            return
        share, busy = memory_share(view), utilization(view)
        self.trends.add(name, Sample(view.seen_at, share, busy, None, None))
        for state in view.servers:
            sample = Sample(view.seen_at, share, busy, state.throughput_tok_s, state.accept_length)
            self.trends.add(f"{name}/{state.name}", sample)

    def _tick(self) -> None:
        now = time.monotonic()
        if not self._dirty and now - self._drawn_at < 1.0:
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
                self.say(f"asking {host or 'all hosts'} again")

    def presets(self) -> Presets:
        """All presets, read from disk now: a file edited meanwhile counts."""
        return load_presets(self.hosts_file)

    def configure(self, config: Config) -> None:
        """Take over an edited hosts.yaml, at once.

        Raises:
            ConfigError: keys that clash; nothing is changed then.
        """
        keys = self._key_map(config)
        if keys != self.keys:
            self.keys = keys
            self._stamped.clear()
        former, self.config = self.config, config
        if config.theme != former.theme:
            self.theme = self._first_theme()
        self.views = self.reloading.views_for(config)
        if self.fleet is not None:
            self.fleet.configure(config)
        self._dirty = True

    # ---- saying

    def say(self, text: str, role: str = "plain") -> None:
        """One line for the operator, kept in the history; whatever is in it, it is inert."""
        self.notices.add(Notice(self.now(), safe(text), role))
        if self.is_running and isinstance(self.screen, Place) and self.screen.drawable:
            self.screen.show_notice()

    def alert(self, text: str) -> None:
        """Bell and desktop notification (OSC 9), as configured."""
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

    def made(self, screen: type[Any], *args: Any, **kwargs: Any) -> Any:
        """A screen with the bindings of the table."""
        if screen not in self._stamped:
            self._stamped[screen] = keyed(screen, screen.SCOPE, self.keys)
        return self._stamped[screen](*args, **kwargs)
