"""Notices that hosts.yaml was edited, and takes it over when it is whole and valid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from console.errors import ConfigError, Mistakes
from console.model import HostState, HostView
from console.notices import Notice
from widgets.bars import counted
from widgets.words import safe

if TYPE_CHECKING:
    from console.app import SpecopsApp
    from console.config import Config

LOOK_S = 2.0
"""How often the file's time and size are looked at."""


STAYS = "what was known stays in use"


class Reloading:
    """Watches one file by its status; a broken edit is said and the former state stays."""

    def __init__(self, app: SpecopsApp) -> None:
        self._app = app
        self._seen = self._stamp()
        self._looked_at = 0.0
        self._missed = 0

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = self._app.config.path.stat()
        except OSError:
            return None  # mid-edit, or gone: the next look tells
        return status.st_mtime_ns, status.st_size

    def look(self, now: float) -> None:
        """Read the file again when it has changed since the last look."""
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        stamp = self._stamp()
        if self._app.player is not None:
            return
        self._missed = 0 if stamp is not None else self._missed + 1
        if stamp is None:
            # An editor may take it away for a moment; what never was there is not missed.
            if self._missed == 2 and self._seen is not None:
                self._seen = None
                self._refuse(ConfigError("no such file", place=str(self._app.config.path),
                                         hint=STAYS))  # fmt: skip
            return
        if stamp == self._seen:
            return
        if running := self._app.doing.running:  # its host may be the one that changes
            what = ", ".join(f"{plan.action} on {plan.host}" for plan in running.values())
            self._app.say(f"hosts.yaml was edited: taken over when {what} has ended", "warn")
            return
        self._seen = stamp
        self._reload()

    def answered(self, host: str | None) -> Callable[[], bool]:
        """Whether every host (or this one) has been seen since now."""
        views = self._app.views
        asked = {name: v.seen_at for name, v in views.items() if host in (None, name)}

        def over() -> bool:
            now = self._app.views
            return all(name not in now or now[name].seen_at != at for name, at in asked.items())

        return over

    def views_for(self, config: Config) -> dict[str, HostView]:
        """What is known of the hosts of a file: nothing of those that are new or changed."""
        known = self._app.views
        return {
            name: known[name]
            if name in known and known[name].host == host
            else HostView(host, HostState.CONNECTING)
            for name, host in config.hosts.items()
        }

    def take(self, path: Path) -> None:
        """Take over a file that the console itself has just written."""
        self._reload(path)
        self._seen = self._stamp()

    def warn_of_presets(self) -> None:
        """Say which presets cannot be read, and which servers name one of them or none at all."""
        from console.config.check import check_presets  # noqa: PLC0415 - after the first frame

        mistakes, presets = Mistakes(), self._app.presets()
        for error in presets.broken.values():
            self._app.say(f"preset left out: {error}", "warn")
        check_presets(self._app.config, presets, mistakes)
        for one in mistakes:
            self._app.say(str(one), "warn")

    def _refuse(self, error: ConfigError) -> None:
        """Say what is wrong: the first on the line, all in the history, the first on top."""
        app, count = self._app, len(error.each)
        app.file = f"{app.config.path.name} REFUSED"  # after the notice has gone, too
        if count > 1:
            for one in reversed(error.each):
                app.notices.add(Notice(app.now(), safe(str(one)), "bad"))
            app.say(f"hosts.yaml not taken over, {count} mistakes (n lists them): "
                    f"{error.each[0]}", "bad")  # fmt: skip
        else:
            app.say(f"hosts.yaml not taken over: {error}", "bad")

    def _reload(self, path: Path | None = None) -> None:
        # Only when the file was edited.
        from console.config.check import load_checked  # noqa: PLC0415

        app = self._app
        try:
            config = load_checked(path or app.config.path)
            if app.config.hosts and not config.hosts:  # emptied by a slip: nobody wants to see none
                raise ConfigError("names no host", place=str(config.path), hint=STAYS)
            app.configure(config)
        except ConfigError as error:
            self._refuse(error)
            return
        app.file = config.path.name
        counts = (counted(len(config.hosts), "host"), counted(len(config.servers), "server"))
        app.say(f"hosts.yaml taken over: {', '.join(counts)}", "ok")
        self.warn_of_presets()
