"""The first frame, and what happens between it and the fleet.

Until hosts.yaml is read there is nothing to show but the console's own frame, and that needs
nothing but Textual. So the application is drawn at once with :class:`Opening` as its bottom screen,
in the terminal's own colours; everything else is read and imported after that, in a thread beside
the living loop (:class:`Beginning`), and the keys typed meanwhile wait for the fleet.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from textual.events import Event, Key
from textual.widget import Widget

from console.errors import SpecopsError
from console.garbage import GARBAGE
from console.screens.base import Place
from widgets.paint import Lines, line

if TYPE_CHECKING:
    from console.app import SpecopsApp
    from console.config import Config
    from console.screens.ports import ActionsPort, FleetPort, Player
    from console.screens.prompts import ScreenPrompts

    Opener = Callable[[ScreenPrompts], Awaitable[tuple[FleetPort, ActionsPort]]]
    """Makes the connections; called after the fleet is drawn."""

T = TypeVar("T")

NEEDED = (
    "console.screens.fleet",
    "console.screens.benching",
    "console.screens.commands",
    "console.screens.doing",
    "console.screens.places",
    "console.screens.prompts",
    "console.screens.reloading",
    "console.watch.trend",
)
"""Modules without which the fleet cannot be shown."""

LATER = (
    "console.screens.log",
    "console.screens.host",
    "console.screens.server",
    "console.screens.plan",
    "console.screens.help",
    "console.screens.choose",
    "console.screens.reading",
    "console.screens.activity",
    "console.screens.bench",
    "console.screens.bench_dialog",
    "console.screens.presets",
)
"""Modules of the places that a key opens: fetched before anybody presses it."""

SWITCH_S = 0.0005
"""A thread that diagnoses gets the interpreter at each of the dozens of turns between a key and its
drawing; by default it would keep it for 5 ms each time."""

REDRAW_S = 0.5
"""How often new values are drawn; keys are drawn at once."""


class Opening(Place):
    """The frame around one line that says what is being read."""

    SCOPE: ClassVar[str] = "fleet"

    def body(self) -> list[Widget]:
        """What is being done."""
        return [Lines([line((" reading hosts.yaml …", "dim"))])]

    def crumbs(self) -> str:
        """Nothing is known yet."""
        return ""

    def background(self) -> str:
        """Nothing can have been begun."""
        return ""

    def on_mount(self) -> None:
        """The first frame is drawn after this (what every place draws comes too); then go on."""
        self.call_after_refresh(self.specops.beginning.drawn.set)


class Prepared(NamedTuple):
    """What the console is opened over: hosts.yaml, who connects, a recording if one is shown."""

    config: Config
    opener: Opener
    player: Player | None = None
    first_run: bool = False
    """There is no hosts.yaml of the operator's own yet: ask which hosts there are."""


class Beginning:
    """From the first frame to the fleet: read and import in a thread, then show, then connect."""

    def __init__(self, app: SpecopsApp, prepare: Callable[[], Prepared]) -> None:
        self._app = app
        self._prepare = prepare
        self._over = False
        self.drawn = asyncio.Event()
        """Set by the first frame."""

    def start(self) -> None:
        """Once the first frame is drawn; keys typed from now on are for the fleet."""
        sys.setswitchinterval(SWITCH_S)
        self._app.keyboard.opens(self._app.run_worker(self._begin(), group="open"))

    def left_by(self, event: Event) -> bool:
        """Whether somebody will not wait for the fleet: Ctrl-C."""
        return not self._over and isinstance(event, Key) and event.key == "ctrl+c"

    async def _begin(self) -> None:
        app = self._app
        await self.drawn.wait()
        try:
            prepared = await alone(self._prepare)
            await fetch(NEEDED)
            self._move_in(prepared)
        except SpecopsError as error:
            app.failure = error
            app.exit(return_code=error.exit_code)
            return
        from console.screens.fleet import Fleet  # noqa: PLC0415 - fetched above

        await app.push_screen(app.made(Fleet))
        app.set_interval(REDRAW_S, app.tick)
        app.set_interval(REDRAW_S, GARBAGE.collect)
        if app.config.note:
            app.say(app.config.note, "warn")
        if app.first_run and not app.read_only:
            app.places.wizard()
        self._over = True
        app.run_worker(self._go_on(prepared.opener), group="open")

    async def _go_on(self, opener: Opener) -> None:
        """What nobody has to wait for before the first key."""
        await fetch(LATER)
        await asyncio.to_thread(self._app.presets)
        self._app.reloading.warn_of_presets()
        self._app.connect(opener)

    def _move_in(self, prepared: Prepared) -> None:
        """Give the application what was read. Raises ``ConfigError``: clashing keys, no theme."""
        from console.screens.benching import Benching  # noqa: PLC0415 - fetched by now
        from console.screens.commands import CommandLine  # noqa: PLC0415
        from console.screens.doing import Doing  # noqa: PLC0415
        from console.screens.places import Places  # noqa: PLC0415
        from console.screens.reloading import Reloading  # noqa: PLC0415
        from console.watch.trend import Trends  # noqa: PLC0415

        app, config = self._app, prepared.config
        app.config, app.player = config, prepared.player
        if app.player is not None:
            app.now = app.player.now
        app.file = "" if app.player else config.path.name
        app.keys = app.key_map(config)
        app.trends = Trends()
        app.lines = CommandLine(app)
        app.doing = Doing(app)
        app.places = Places(app)
        app.benching = Benching(app)
        app.reloading = Reloading(app)
        app.views = app.reloading.views_for(config)
        app.first_run = prepared.first_run
        app.theme = app.first_theme(config)


async def alone(work: Callable[[], T]) -> T:
    """Do something in a thread of its own, which nobody waits for when the console is left.

    A file on a filesystem that hangs is read for ever; threads of ``asyncio.to_thread`` are waited
    for before the process ends.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(answer: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: None if done.done() else answer())

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # raised where it is waited for
            failure = error
            tell(lambda: done.set_exception(failure))
        else:
            tell(lambda: done.set_result(result))

    threading.Thread(target=run, name="opening", daemon=True).start()
    return await done


async def fetch(modules: tuple[str, ...]) -> None:
    """Import modules in a thread: the loop goes on between any two bytecodes of it."""

    def each() -> None:
        for name in modules:
            importlib.import_module(name)

    await asyncio.to_thread(each)
