"""Presets: browse, compare, edit a copy, see which runs used one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, cast

from textual.widget import Widget

from console.config.presets import Kind, Presets, diff
from console.errors import ConfigError
from console.model import Preset
from console.screens.base import Rule
from console.screens.filtering import TablePlace
from console.screens.standings import ROLES, Standings, by_standing, standings
from console.text import mask_env
from widgets.paint import Line, Lines, fit, line, wrap
from widgets.table import Column, Table
from widgets.words import safe

Stamp = tuple[tuple[str, int, int], ...]
LOOK_S = 2.0
"""How often it is looked whether a file was edited."""


def _stamp(folder: Path) -> Stamp:
    """Names, times and sizes of an operator's own presets."""
    found = []
    for path in sorted(folder.glob("*/*.yaml")):
        with contextlib.suppress(OSError):  # gone since
            status = path.stat()
            found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)


class PresetsScreen(TablePlace[Preset]):
    """All presets in reach, one's own and the shipped ones."""

    SCOPE: ClassVar[str] = "presets"
    SORTS = ("worked", "name", "kind")
    HINT = "kind:nccl eagle3 here:works"

    def __init__(self, host: str | None = None, server: str | None = None) -> None:
        super().__init__()
        self._host, self._server = host, server
        self._presets: Presets | None = None
        self._standings: Standings = {}
        self._stamp: Stamp = ()
        self._looked_at = 0.0

    def body(self) -> list[Widget]:
        """The list and what the chosen one sets."""
        self._table: Table[Preset] = Table(
            lambda preset: (preset.kind, preset.name), self._cells, id="presets", empty="no preset"
        )
        return [self._table, Rule(), Lines(id="detail")]

    @property
    def table(self) -> Table[Preset]:
        """The presets."""
        return self._table

    def crumbs(self) -> str:
        """How many, and where one's own are kept."""
        about = " for all hosts"
        if self._host is not None:
            server = f"{safe(self._server)} on " if self._server else ""
            about = f" for {server}{safe(self._host)}"
        folder = f"  own in {self._presets.folder}" if self._presets else ""
        broken = len(self._presets.broken) if self._presets else 0
        return f"fleet > presets{about}{f'  {broken} broken' if broken else ''}{folder}"

    def look(self) -> None:
        """Read them again when a file was edited, added or removed since; say what is broken."""
        if self._presets is None or time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        if (stamp := _stamp(self._presets.folder)) != self._stamp:
            self.reload()
            self._stamp = stamp
            self.specops.reloading.warn_of_presets()

    def reload(self) -> None:
        """Read all from disk."""
        self._presets = self.specops.presets()
        self._stamp = _stamp(self._presets.folder)
        self.run_worker(self._rank(), group="ranking", exclusive=True, exit_on_error=False)

    async def _rank(self) -> None:
        if self._presets is not None:
            self._standings = await standings(self.specops, self._presets, self._host, self._server)
            if self.drawable:
                self.views_changed()

    def where(self) -> tuple[str | None, str | None]:
        """The host and server that the presets are ranked for."""
        return self._host, self._server

    def all_rows(self) -> Sequence[Preset]:
        """By kind, within a kind what worked here first; files that cannot be read come last."""
        if self._presets is None:
            self.reload()
        broken = self._presets.broken if self._presets else {}
        unread = [Preset(name, cast("Kind", kind), str(error), origin=error.place)
                  for (kind, name), error in broken.items()]  # fmt: skip
        return [*by_standing(list(self._presets or ()), self._standings), *unread]

    def _why_broken(self, preset: Preset) -> ConfigError | None:
        """Why the file of a row cannot be read."""
        broken = self._presets.broken if self._presets else {}
        return broken.get((preset.kind, preset.name))

    def _chosen(self) -> Preset | None:
        """The preset of the cursor; one that cannot be read is said, and none."""
        preset = self._table.row
        if preset is not None and (error := self._why_broken(preset)) is not None:
            self.report(error)
            return None
        return preset

    def sorted_rows(self, rows: Sequence[Preset]) -> Sequence[Preset]:
        """By the chosen column."""
        if self.order == "name":
            return sorted(rows, key=lambda preset: preset.name, reverse=self.backwards)
        return list(reversed(rows)) if self.backwards else rows

    def facts(self, row: Preset) -> dict[str, str | float | None]:
        """For the filter."""
        return {
            "name": row.name,
            "kind": row.kind,
            "text": row.description,
            "flags": " ".join(row.flags),
            "env": " ".join(row.env),
            "origin": row.origin,
            "here": self._verdict(row),
        }

    def views_changed(self) -> None:
        """Draw."""
        self.look()
        width = self.size.width
        self._table.show(_columns(width), self.shown_rows())
        self._show_detail()
        self.show_head()

    def moved(self) -> None:
        """Another preset."""
        self._show_detail()

    def _show_detail(self) -> None:
        preset, width = self._table.row, self.size.width
        detail = self.query_one("#detail", Lines)
        height = max(6, self.size.height // 2 - 3)
        detail.styles.height = height
        detail.show(self._told(preset, width)[:height] if preset else [])

    def _told(self, preset: Preset, width: int) -> list[Line]:
        """How it did and what it sets, or why it cannot be read."""
        if (error := self._why_broken(preset)) is not None:
            return [line((f" {part}", "bad")) for part in wrap(safe(str(error)), width - 2)]
        return self._standing(preset, width) + _detail(preset, width)

    def _verdict(self, preset: Preset) -> str:
        if self._why_broken(preset) is not None:
            return "broken"
        known = self._standings.get((preset.kind, preset.name))
        return known.verdict if known else ""

    def _standing(self, preset: Preset, width: int) -> list[Line]:
        """How it has done here, in a line or two."""
        known = self._standings.get((preset.kind, preset.name))
        if known is None:
            return []
        head = f" {known.verdict:<9}"
        first, *rest = wrap(safe(known.why), width - len(head) - 1, limit=2)
        return [line((head, ROLES[known.verdict]), first),
                *(line(" " * len(head) + part) for part in rest)]  # fmt: skip

    def _cells(self, preset: Preset) -> list[Line]:
        known = self._standings.get((preset.kind, preset.name))
        verdict = self._verdict(preset) or "?"
        tried = known is not None and known.verdict != "untried"
        return [
            line((preset.kind, "dim")),
            line((safe(preset.name), "strong")),
            line(("" if preset.origin == "shipped" else "own", "accent")),
            line((verdict, {**ROLES, "broken": "bad"}.get(verdict, "dim"))),
            line(safe(known.why if known and tried else preset.description)),
        ]

    # ---- keys

    def action_open(self) -> None:
        """All of it."""
        from console.screens.reading import Reading  # noqa: PLC0415 - when opened

        preset = self._table.row
        if preset is not None:
            rows = [("".join(t for t, _ in spans), "plain") for spans in self._told(preset, 400)]
            self.app.push_screen(Reading(f"{preset.kind} preset {preset.name}", rows))

    def action_diff(self) -> None:
        """``d``: against another of the same kind."""
        from console.screens.choose import Choose  # noqa: PLC0415 - when opened

        preset = self._chosen()
        if preset is None or self._presets is None:
            return
        others = [
            (other.name, safe(other.description))
            for other in self._presets
            if other.kind == preset.kind and other.name != preset.name
        ]
        if not others:
            self.specops.say(f"there is no other {preset.kind} preset")
            return
        self.app.push_screen(
            Choose(f"from {preset.name} to", others), lambda name: self._differ(preset, name)
        )

    def _differ(self, preset: Preset, name: str | None) -> None:
        from console.screens.differing import difference_rows  # noqa: PLC0415 - when opened
        from console.screens.reading import Reading  # noqa: PLC0415

        if name is None or self._presets is None:
            return
        rows = difference_rows(diff(preset, self._presets.get(preset.kind, name)))
        self.app.push_screen(Reading(f"{preset.name} → {name}", rows))

    def action_edit(self) -> None:
        """``e``: a form; a shipped preset is edited as a copy of one's own."""
        from console.screens.preset_form import PresetForm  # noqa: PLC0415 - when opened

        preset = self._chosen()
        if preset is not None and self._presets is not None:
            dialog = PresetForm(preset, self._presets, self._host, self._server)
            self.app.push_screen(dialog, self._edited)

    def _edited(self, saved: Preset | None) -> None:
        if saved is not None:
            self.reload()
            self.views_changed()
            self._table.select((saved.kind, saved.name))
            self.specops.say(f"saved {saved.kind} preset {saved.name}", "ok")

    def action_use(self) -> None:
        """``u``: as the server's own in hosts.yaml, once that was chosen."""
        from console.screens.using import ask_to_use  # noqa: PLC0415 - when asked for

        if (preset := self._chosen()) is not None:
            ask_to_use(self.specops, self._server, preset)

    def action_history(self) -> None:
        """``h``: the runs that used it, newest first."""
        from console.screens.activity import run_text  # noqa: PLC0415 - the same form
        from console.screens.reading import Reading  # noqa: PLC0415

        preset = self._table.row
        if preset is None:
            return
        now = self.specops.now()
        runs = [
            run
            for view in self.specops.views.values()
            for run in view.runs
            if preset.name == (run.speculative if preset.kind == "speculative" else run.nccl)
        ]
        runs.sort(key=lambda run: -run.launched_at)
        rows = [(run_text(run, now), "plain") for run in runs]
        title = f"runs with {preset.name}"
        self.app.push_screen(Reading(title, rows or [("no run used it", "dim")]))

    def action_copy(self) -> None:
        """Its file form."""
        from console.config.presets import dump  # noqa: PLC0415 - when asked for

        if (preset := self._chosen()) is not None:
            self.specops.copy(dump(preset))


def _columns(width: int) -> list[Column]:
    return [Column("KIND", 11), Column("NAME", 20), Column("OWN", 4),
            Column("HERE", 8), Column("HOW IT DID, OR WHAT FOR", max(10, width - 49))]  # fmt: skip


def _detail(preset: Preset, width: int) -> list[Line]:
    out: list[Line] = [line((" " + part, "strong")) for part in
                       wrap(safe(preset.description), width - 2, limit=3)]  # fmt: skip
    settings = [(f"--{name}", _value(value), name) for name, value in preset.flags.items()]
    env = mask_env({name: value or "" for name, value in preset.env.items()})
    settings += [(name, env[name] or "(taken away)", name) for name in preset.env]
    for shown, value, name in settings:
        note = safe(preset.notes.get(name, ""))
        head = f" {fit(safe(shown), 30)} {fit(safe(value), 16)} "
        parts = wrap(note, max(12, width - len(head) - 1), limit=2) if note else [""]
        out.append(line((head, "plain"), (parts[0], "dim")))
        out += [line(" " * len(head), (part, "dim")) for part in parts[1:]]
    if not settings:
        out.append(line((" sets nothing", "dim")))
    if preset.source:
        out.append(line((f" after {safe(preset.source)}", "dim")))
    return out


def _value(value: object) -> str:
    return "(taken away)" if value is None else str(value)
