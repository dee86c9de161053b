"""Presets: browse, compare, edit a copy, see which runs used one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.widget import Widget

from console.config.presets import Presets, diff
from console.errors import SpecopsError
from console.model import Preset
from console.screens.base import Rule
from console.screens.filtering import TablePlace
from console.text import mask_env
from widgets.paint import Line, Lines, fit, line, wrap
from widgets.table import Column, Table
from widgets.words import safe


class PresetsScreen(TablePlace[Preset]):
    """All presets in reach, one's own and the shipped ones."""

    SCOPE: ClassVar[str] = "presets"
    HINT = "kind:nccl eagle3"

    def __init__(self) -> None:
        super().__init__()
        self._presets: Presets | None = None

    def body(self) -> list[Widget]:
        """The list and what the chosen one sets."""
        self._table: Table[Preset] = Table(
            lambda preset: (preset.kind, preset.name), _cells, id="presets", empty="no preset"
        )
        return [self._table, Rule(), Lines(id="detail")]

    @property
    def table(self) -> Table[Preset]:
        """The presets."""
        return self._table

    def crumbs(self) -> str:
        """How many, and where one's own are kept."""
        text = f"fleet > presets  own in {self._presets.folder}" if self._presets else "presets"
        return f"{text}  /{self.wanted}" if self.wanted else text

    def reload(self) -> None:
        """Read all from disk."""
        try:
            self._presets = self.specops.presets()
        except SpecopsError as error:
            self.report(error)

    def all_rows(self) -> Sequence[Preset]:
        """By kind and name."""
        if self._presets is None:
            self.reload()
        return list(self._presets or ())

    def facts(self, row: Preset) -> dict[str, str | float | None]:
        """For the filter."""
        return {
            "name": row.name,
            "kind": row.kind,
            "text": row.description,
            "flags": " ".join(row.flags),
            "env": " ".join(row.env),
            "origin": row.origin,
        }

    def views_changed(self) -> None:
        """Draw."""
        width = self.size.width
        self._table.show(_columns(width), self.shown_rows())
        self._show_detail()
        self.show_head()

    def on_table_moved(self) -> None:
        """Another preset."""
        self._show_detail()

    def _show_detail(self) -> None:
        preset, width = self._table.row, self.size.width
        detail = self.query_one("#detail", Lines)
        height = max(6, self.size.height // 2 - 3)
        detail.styles.height = height
        detail.show(_detail(preset, width)[:height] if preset else [])

    # ---- keys

    def action_open(self) -> None:
        """All of it."""
        from console.screens.reading import Reading  # noqa: PLC0415 - when opened

        preset = self._table.row
        if preset is not None:
            rows = [("".join(t for t, _ in spans), "plain") for spans in _detail(preset, 400)]
            self.app.push_screen(Reading(f"{preset.kind} preset {preset.name}", rows))

    def action_diff(self) -> None:
        """``d``: against another of the same kind."""
        from console.screens.choose import Choose  # noqa: PLC0415 - when opened

        preset = self._table.row
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

        preset = self._table.row
        if preset is not None and self._presets is not None:
            self.app.push_screen(PresetForm(preset, self._presets), self._edited)

    def _edited(self, saved: Preset | None) -> None:
        if saved is not None:
            self.reload()
            self.views_changed()
            self._table.select((saved.kind, saved.name))
            self.specops.say(f"saved {saved.kind} preset {saved.name}", "ok")

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

        if self._table.row is not None:
            self.specops.copy(dump(self._table.row))


def _columns(width: int) -> list[Column]:
    return [Column("KIND", 11), Column("NAME", 20), Column("OWN", 4),
            Column("WHAT FOR", max(10, width - 1 - 12 - 21 - 5 - 1))]  # fmt: skip


def _cells(preset: Preset) -> list[Line]:
    return [
        line((preset.kind, "dim")),
        line((safe(preset.name), "strong")),
        line(("" if preset.origin == "shipped" else "own", "accent")),
        line(safe(preset.description)),
    ]


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
