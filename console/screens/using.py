"""A preset becomes a server's own: one value of hosts.yaml is changed, once that was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.config import shipped_hosts
from console.config.edit import set_value
from console.errors import SpecopsError
from console.model import Preset
from console.screens.choose import Choose
from widgets.words import safe

if TYPE_CHECKING:
    from console.app import SpecopsApp

_LEAVE = "leave it"


def ask_to_use(app: SpecopsApp, name: str | None, preset: Preset) -> None:
    """Say what would be written, and write it when that is chosen; Enter at once leaves it."""
    server = app.config.servers.get(name) if name else None
    if server is None or name is None:
        app.say("open the presets from a server that hosts.yaml has", "warn")
        return
    if preset.kind == "server":
        app.say(f"{safe(preset.name)} is for a single launch: R, then p", "warn")
        return
    path = app.config.path
    if app.read_only or app.player is not None or path == shipped_hosts():
        why = "the shipped one" if path == shipped_hosts() else "this console is read-only"
        app.say(f"hosts.yaml is not written: {why}", "warn")
        return
    before = server.speculative if preset.kind == "speculative" else server.nccl
    if before == preset.name:
        app.say(f"{safe(name)} has {safe(preset.name)} already")
        return
    change = f"{preset.kind}: {safe(before or '(unset)')} → {safe(preset.name)}"
    options = [(_LEAVE, ""), ("write it", f"{change}, in {path.name}")]

    def write(chosen: str | None) -> None:
        if chosen in (None, _LEAVE):
            return
        try:
            set_value(path, ("servers", name, preset.kind), preset.name)
        except (SpecopsError, OSError) as error:
            app.say(f"not written: {error}", "bad")
            return
        app.reloading.take(path)
        app.say(f"{safe(name)}, {change}; what runs is as it was: R relaunches", "ok")

    app.push_screen(Choose(f"{safe(name)} from its next launch on", options), write)
