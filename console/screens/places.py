"""Going from place to place: one fleet at the bottom, at most one of each kind above it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from console.errors import SpecopsError, UsageError
from console.model import Host
from console.screens.base import Place

if TYPE_CHECKING:
    from console.app import SpecopsApp
    from console.planning.measuring import Load


class Places:
    """Opens screens. ``selected`` is the host and server last looked at."""

    def __init__(self, app: SpecopsApp) -> None:
        self._app = app
        self.selected: tuple[str | None, str | None] = (None, None)
        self._asked_at = float("-inf")

    def servers_of(self, host: str) -> list[str]:
        """The servers of a host: those seen there, then those that hosts.yaml has for it."""
        view = self._app.views.get(host)
        seen = [state.name for state in view.servers] if view else []
        known = [s.name for s in self._app.config.servers.values() if s.host == host]
        return list(dict.fromkeys([*seen, *known]))

    def open(self, screen: Place) -> None:
        """Open a place above the fleet; at most one of a kind, so that Esc is never far."""
        for at, shown in enumerate(self._app.screen_stack):
            if isinstance(shown, Place) and shown.SCOPE == screen.SCOPE and at > 1:
                while len(self._app.screen_stack) > at:
                    self._app.pop_screen()
                break
        self._app.push_screen(screen)

    def back(self) -> None:
        """One place back; the fleet stays."""
        if len(self._app.screen_stack) > 2:
            self._app.pop_screen()

    def fleet(self) -> None:
        """To the fleet."""
        while len(self._app.screen_stack) > 2:
            self._app.pop_screen()

    def host(self, host: str | None) -> None:
        """To a host."""
        from console.screens.host import HostScreen  # noqa: PLC0415 - when opened

        name = host or self.selected[0]
        if name is not None:
            self.open(self._app.made(HostScreen, name))

    def server(self, host: str, server: str) -> None:
        """To a server."""
        from console.screens.server import ServerScreen  # noqa: PLC0415 - when opened

        self.selected = (host, server)
        self.open(self._app.made(ServerScreen, host, server))

    def log(self, host: str | None, server: str | None, *, at_error: bool = False) -> None:
        """To the log of a server."""
        from console.screens.log import LogScreen, source_of  # noqa: PLC0415 - when opened

        if host is None or server is None:
            host, server = self.selected
        source = source_of(self._app, host, server) if host and server else None
        if host is None or server is None or source is None:
            told = "no log: put the cursor on a server that was launched"
            self._app.say(told, "warn", over=self._moved_on())
            return
        self.selected = (host, server)
        self.open(self._app.made(LogScreen, host, server, source, at_error=at_error))

    def _moved_on(self) -> Callable[[], bool]:
        """Whether the cursor is elsewhere than now, or another screen is shown."""

        def here() -> tuple[object, ...]:
            screen = self._app.screen
            return (screen, *(screen.where() if isinstance(screen, Place) else ()))

        before = here()
        return lambda: here() != before

    def file(self, path: Path) -> None:
        """To a file of this machine, as a log."""
        from console.logs.localtail import tail  # noqa: PLC0415 - when opened
        from console.remote import LogSource  # noqa: PLC0415
        from console.screens.log import LogScreen  # noqa: PLC0415

        source = LogSource(path=str(path))
        self.open(self._app.made(LogScreen, "this machine", path.name, source, tail=tail))

    def presets(self) -> None:
        """To the presets."""
        from console.screens.presets import PresetsScreen  # noqa: PLC0415 - when opened

        host, server = self.selected
        screen = self._app.screen
        if isinstance(screen, Place) and screen.aim()[0] is not None:
            host, server = screen.aim()
        self.open(self._app.made(PresetsScreen, host, server))

    def bench(self, host: str | None, server: str | None, load: Load | None = None) -> None:
        """To the measurements of a server; with ``load`` straight to the question."""
        from console.screens.bench import BenchScreen  # noqa: PLC0415 - when opened

        if host is None or server is None:
            told = "bench: put the cursor on a server first"
            self._app.say(told, "warn", over=self._moved_on())
            return
        self.selected = (host, server)
        screen = self._app.made(BenchScreen, host, server)
        self.open(screen)
        if load is not None:
            self._app.call_after_refresh(screen.ask_to_measure, load)

    def activity(self) -> None:
        """To runs and audit."""
        from console.screens.activity import ActivityScreen  # noqa: PLC0415 - when opened

        self.open(self._app.made(ActivityScreen))

    def help(self, scope: str) -> None:
        """The keys of a screen."""
        from console.screens.help import Help  # noqa: PLC0415 - when opened

        self._app.push_screen(Help(self._app.keys, scope))

    def notices(self) -> None:
        """What happened."""
        from console.screens.reading import notices_reading  # noqa: PLC0415 - when opened

        self._app.notices.seen()
        self._app.push_screen(notices_reading(self._app.notices))

    def wizard(self) -> None:
        """Choose hosts: for a first hosts.yaml, or to add some to the one in use."""
        from console.config import config_dir, shipped_hosts  # noqa: PLC0415 - when opened
        from console.screens.wizard import Wizard  # noqa: PLC0415

        used = self._app.config.path
        first = used == shipped_hosts()
        target = config_dir() / "hosts.yaml" if first else used
        try:
            dialog = Wizard(target, existing=None if first else used)
        except (SpecopsError, OSError) as error:
            self._app.say(str(error), "bad")
            return
        self._app.push_screen(dialog, self._chosen)

    def _chosen(self, written: Path | None) -> None:
        if written is not None:
            self._app.reloading.take(written)
        elif self._app.first_run:
            self._app.say("later: `:hosts` asks again, specops config init writes one to fill in")
        self._app.first_run = False

    def leave(self) -> None:
        """Quit; while a plan runs only the second time within five seconds."""
        running = self._app.doing.running
        now = self._app.now()
        if running and now - self._asked_at > 5:
            self._asked_at = now
            what = ", ".join(f"{plan.action} on {plan.host}" for plan in running.values())
            hint = "again within 5 s leaves it unfinished; specops resume can finish it"
            doing = self._app.doing
            self._app.say(f"still running: {what}; {hint}", "warn", over=lambda: not doing.running)
            return
        self._app.exit()

    def theme(self, name: str) -> None:
        """Other colours."""
        known = self._app.available_themes
        wanted = f"specops-{name}" if f"specops-{name}" in known else name
        if wanted not in known:
            short = "dark, light, contrast, 16"
            raise UsageError(f"no theme '{name}'", hint=f"there are {short} and {', '.join(known)}")
        self._app.theme = wanted

    def seek(self, text: str) -> None:
        """To a moment of the recording that plays.

        Raises:
            UsageError: none plays, or that is no moment.
        """
        from console.history.moments import moment  # noqa: PLC0415 - only while one plays

        player, screen = self._app.player, self._app.screen
        if player is None:
            raise UsageError("no recording plays", place=":seek", hint="console --replay FILE")
        position = moment(text, now=player.now(), position=player.position)
        if isinstance(screen, Place):
            screen.go_to_moment(position)

    def export(self) -> None:
        """This screen as SVG into the folder that the console was started from."""
        name = f"specops-{time.strftime('%Y%m%d-%H%M%S')}.svg"
        try:
            Path(name).write_text(self._app.export_screenshot(), encoding="utf-8")
        except OSError as error:
            self._app.say(f"not written: {error}", "bad")
            return
        self._app.say(f"written: {Path(name).resolve()}")

    async def shell(self, host: str) -> None:
        """``ssh`` to a host, or this machine's own shell; the console waits behind it."""
        argv = shell_argv(self._app.config.hosts[host], self._app.config.hosts)
        if self._app.is_headless:
            self._app.say(f"would run: {' '.join(argv)}")
            return
        try:
            with self._app.suspend(), interrupts_are_for_the_child():
                # NO_COLOR is taken out of the environment by the terminal library.
                env = {**os.environ, **({"NO_COLOR": "1"} if self._app.no_color else {})}
                done = await asyncio.to_thread(subprocess.run, argv, env=env, check=False)
        except (OSError, SuspendNotSupported) as error:
            self._app.say(f"{argv[0]}: {error}", "bad")
            return
        self._app.refresh()
        self._app.say(f"{Path(argv[0]).name} to {host} {ended(argv[0], done.returncode)}")


def ended(program: str, code: int) -> str:
    """How a shell ended, in words."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    if program == "ssh" and code == 255:
        return "could not connect, or lost the connection; its words stand in the terminal: q"
    return f"ended with {code}"


@contextmanager
def interrupts_are_for_the_child() -> Iterator[None]:
    """Ctrl-C goes to all who have the terminal: it ends the child, never the console.

    A handler, not "ignore": that the child would inherit.
    """
    numbers = (signal.SIGINT, signal.SIGQUIT)
    former = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, former, strict=True):
            signal.signal(number, handler)


def shell_argv(host: Host, hosts: Mapping[str, Host]) -> list[str]:
    """The command that gives the operator a shell on a host, inside its ``via`` target.

    Every name in it was checked against a pattern when hosts.yaml was read.
    """
    inner: list[str] = []
    if host.via is not None and host.via.kind == "pct":
        inner = ["pct", "enter", host.via.name]
    elif host.via is not None:
        inner = ["docker", "exec", "-it", host.via.name, "/bin/sh"]
    if host.transport == "local":
        return inner or [os.environ.get("SHELL", "/bin/sh")]
    argv = ["ssh", "-p", str(host.port), "-l", host.user]
    for path in host.identity_files:
        argv += ["-i", path]
    if known := _known_hosts(host):
        argv += ["-o", f"UserKnownHostsFile={known}"]
    if host.jump:
        through = hosts.get(host.jump)
        argv += ["-J", f"{through.user}@{through.address}:{through.port}" if through else host.jump]
    if inner:
        argv.append("-t")
    return [*argv, "--", host.address or host.name, *inner]


def _known_hosts(host: Host) -> str:
    """The files that the connection itself asks, where they are not ssh's own.

    So a key that was trusted in the console is not asked about again.
    """
    from console.config import config_dir  # noqa: PLC0415 - when a shell is opened

    if host.known_hosts:
        return f'"{host.known_hosts}"'
    own = config_dir() / "known_hosts"
    return f'~/.ssh/known_hosts "{own}"' if own.is_file() else ""
