"""The form for a preset: a field a setting, each checked by itself, all by preflight, as typed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.suggester import SuggestFromList
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from console.config.nodes import parse
from console.config.presets import Presets, dump, read_preset
from console.config.schema import ENV_NAME, FLAG_NAME, NAME
from console.errors import SpecopsError, UsageError
from console.model import Finding, Preset, Severity
from console.preflight import fields
from console.screens.dialog import Dialog
from console.screens.preset_fields import Field, Fields, setting_of
from widgets.bars import counted
from widgets.paint import Line, Lines, fit, line, wrap
from widgets.words import safe

ASK_AFTER_S = 0.5
"""Nothing is asked of a host while the operator types."""

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_SIGNS = {Severity.ERROR: ("✖", "bad"), Severity.WARNING: ("!", "warn"), Severity.INFO: ("", "dim")}


class PresetForm(Dialog[Preset | None]):
    """``F2`` saves, never over a shipped preset; Enter only goes from field to field."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False, priority=True),
        Binding("f2", "save", show=False, priority=True),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(
        self, preset: Preset, presets: Presets, host: str | None = None, server: str | None = None
    ) -> None:
        super().__init__()
        self._host, self._server = host, server
        self._before, self._all = preset, presets
        own = preset.origin != "shipped"
        self.named = Field("name", preset.name if own else f"my-{preset.name}", id="name")
        self.described = Field("what it is for", preset.description, id="text")
        self.adds = Field("add", id="add", placeholder="--flag value, NAME=value; Enter")
        self._valid: Preset | None = preset
        self._wrong = ""
        self._asked: Preset | None = None
        self._found: tuple[Finding, ...] = ()
        self._waiting: Timer | None = None
        self.known = False
        self._sure: Preset | None = None
        self._leaving = False
        self._warned = ""

    # ---- layout

    def heading(self) -> str:
        """What is edited, and as what it will be saved."""
        copy = " (shipped: saved as your own)" if self._before.origin == "shipped" else ""
        return f"edit {self._before.kind} preset {safe(self._before.name)}{copy}"

    def body(self) -> list[Widget]:
        """A row a setting; what the one with the focus takes; preflight."""
        old = self._before
        flags = [Field.of(name, value, variable=False) for name, value in old.flags.items()]
        env = [Field.of(name, value, variable=True) for name, value in old.env.items()]
        rows = [self.named, self.described, *flags, *env, self.adds]
        return [Fields(*rows, id="fields"), Lines(id="content"), Lines(id="preflight")]

    def on_mount(self) -> None:
        """Draw; read what the engine knows meanwhile."""
        self.foot(("F2  save", "key"), ("Tab  next", "key"), ("empty  takes out", "plain"),
                  ("Esc  leave", "key"))  # fmt: skip
        self._place()
        first = next(iter(self.settings()), self.named)
        first.entry.focus()
        self.call_after_refresh(self._check)
        self.run_worker(self._learn(), group="known", exit_on_error=False)

    def on_resize(self) -> None:
        """As many rows as there is room for."""
        self._place()
        self.call_after_refresh(self._check)

    def _place(self) -> None:
        _, height = self.room()
        rows = self.query_one("#fields", Fields)
        rows.styles.height = max(3, min(len(self.settings()) + 3, height - min(8, height // 2)))

    def settings(self) -> list[Field]:
        """The rows of flags and variables."""
        return [row for row in self.query(Field) if row.name_of is not None]

    async def _learn(self) -> None:
        """The tables of flags and variables are long: read them off the event loop."""
        names = await asyncio.to_thread(
            lambda: [
                *(f"--{name} " for name in fields.names(variable=False)),
                *(f"{name}=" for name in fields.names(variable=True)),
            ]
        )
        self.known = True
        self.adds.entry.suggester = SuggestFromList(names)
        if self.is_attached:
            self._check()

    # ---- checking

    def on_input_changed(self) -> None:
        """Something was typed."""
        self._leaving, self._warned = False, ""
        self._check()

    def on_descendant_focus(self) -> None:
        """Another field: what it takes."""
        self._show_about()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes on to the next field; in the last one it adds. It never saves."""
        event.stop()
        if event.input is self.adds.entry and self.adds.text:
            self._append()
        else:
            self.app.action_focus_next()

    def _check(self) -> None:
        wrong = ""
        for row in self.settings():
            old = self._before.env if row.variable else self._before.flags
            name = row.name_of or ""
            try:
                row.look(old.get(name), was_set=name in old, known=self.known)
            except UsageError as error:
                row.say("✖", str(error), "bad")
                wrong = wrong or f"{name}: {error}"
        wrong = self._check_head() or wrong
        self._valid = None
        if not wrong:
            try:
                self._valid = self._preset()
            except SpecopsError as error:
                wrong = str(error)
        self._wrong = wrong
        self._show_about()
        self._ask_soon()

    def _check_head(self) -> str:
        said = ""
        if not self.described.text:
            said = "say what it is for"
        self.described.say("✖" if said else "", "", "bad")
        good = bool(NAME.fullmatch(self.named.text))
        self.named.say("" if good else "✖", "", "bad")
        if not good:
            said = "the name: letters, digits, '.', '_' and '-', a letter or digit first"
        return said

    def _preset(self) -> Preset:
        """What the fields say, read as its file would be.

        Raises:
            SpecopsError: it would not be read.
        """
        rows = [row for row in self.settings() if row.text]
        flags = {row.name_of or "": row.value() for row in rows if not row.variable}
        env = {row.name_of or "": row.value() for row in rows if row.variable}
        notes = {k: note for k, note in self._before.notes.items() if k in flags or k in env}
        made = replace(self._before, name=self.named.text, description=self.described.text,
                       flags=flags, env=env, notes=notes)  # fmt: skip
        place = Path(f"{made.name}.yaml")
        return read_preset(parse(dump(made), place), made.name, str(place))

    def _show_about(self) -> None:
        """Two rows: what is wrong or about to happen, then what the field with the focus takes."""
        width, _ = self.room()
        if self._warned:  # stands until something is typed, whatever preflight finds meanwhile
            self._warn(self._warned)
            return
        rows: list[Line] = []
        if self._wrong:
            rows.append(line((fit(f"✖ {safe(self._wrong)}", width).rstrip(), "bad")))
        row = next((row for row in self.query(Field) if row.has_focus_within), None)
        if row is not None and row.name_of is not None:
            note = self._before.notes.get(row.name_of, "")
            takes = fields.about(row.name_of, variable=row.variable) if self.known else ""
            said = row.doubt or row.against
            text = " ".join(filter(None, (said and f"! {said}.", note,
                                          takes and f"Takes {takes}.")))  # fmt: skip
            rows += [line((part, "dim")) for part in wrap(safe(text), width, limit=2) if part]
        rows += [()] * (2 - len(rows))  # so that nothing jumps while one goes through the fields
        self.query_one("#content", Lines).show(rows[:2])

    # ---- preflight, while it is edited

    def _ask_soon(self) -> None:
        """Ask once nothing was typed for a moment; what was asked before no longer counts."""
        if self._waiting is not None:
            self._waiting.stop()
        if self._valid is None:
            self._say_preflight([("preflight: once every field is valid", "dim")])
        elif self._server is None or self.specops.actions is None:
            text = "preflight: no server chosen; open the presets from one in the fleet"
            self._say_preflight([(text, "dim")])
        elif self._valid != self._asked:
            self._say_preflight([(f"preflight for {safe(self._server)}: asking…", "dim")])
            self._waiting = self.set_timer(ASK_AFTER_S, self._ask)
        else:
            self._show_found()

    def _ask(self) -> None:
        self.run_worker(self._preflight(), group="preflight", exclusive=True, exit_on_error=False)

    async def _preflight(self) -> None:
        preset, actions, server = self._valid, self.specops.actions, self._server
        if preset is None or actions is None or server is None:
            return
        try:
            found = await actions.check_preset(server, preset)
        except SpecopsError as error:
            self._say_preflight([(f"preflight: {error}", "bad")])
            return
        if preset != self._valid or not self.is_attached:
            return  # typed on meanwhile: the next answer counts
        self._asked, self._found = preset, found
        self._show_found()

    def _show_found(self) -> None:
        """The answer: counted, the worst in words, and each beside the field that it names."""
        found, (width, _) = self._found, self.room()
        for row in self.settings():
            one = min((one for one in found if f"--{row.name_of}" in one.flags and row.text),
                      key=lambda one: _ORDER.index(one.severity), default=None)  # fmt: skip
            if one is not None and one.severity is not Severity.INFO and not row.doubt:
                row.against = one.message
                row.say(_SIGNS[one.severity][0], one.message, _SIGNS[one.severity][1])
        errors, warnings = (
            sum(one.severity is severity for one in found)
            for severity in (Severity.ERROR, Severity.WARNING)
        )
        counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
        role = "bad" if errors else "warn" if warnings else "ok"
        text = f"preflight for {safe(self._server or '?')} on {safe(self._host or '?')}: {counts}"
        rows = [(text, role)]
        for one in sorted(found, key=lambda one: _ORDER.index(one.severity))[:3]:
            if one.severity is not Severity.INFO:
                sign, role = _SIGNS[one.severity]
                fix = f" → {safe(one.fix)}" if one.fix else ""
                rows.append((fit(f"  {sign} {safe(one.message)}{fix}", width).rstrip(), role))
        self._say_preflight(rows)
        self._show_about()

    def _say_preflight(self, rows: list[tuple[str, str]]) -> None:
        if self.is_attached:
            _, height = self.room()
            above = self.query_one("#fields", Fields).size.height + 2
            shown = [line((text, role)) for text, role in rows]
            self.query_one("#preflight", Lines).show(shown[: max(1, height - above)])

    # ---- keys

    def _append(self) -> None:
        """Another setting: ``--flag value`` or ``NAME=value``; one that is there gets the focus."""
        name, variable, text = setting_of(self.adds.text)
        if not (ENV_NAME if variable else FLAG_NAME).fullmatch(name):
            self._warn(f"'{safe(name)}' is no name of a {'variable' if variable else 'flag'}")
            return
        row = next((row for row in self.settings() if row.name_of == name), None)
        self.adds.entry.value = ""
        if row is None:
            row = Field.of(name, None, variable=variable)
            row.entry.value = text
            self.query_one("#fields", Fields).mount(row, before=self.adds)
        elif text:
            row.entry.value = text
        self._place()
        self.call_after_refresh(self._appended, row)

    def _appended(self, row: Field) -> None:
        self._check()
        (self.adds if row.text else row).entry.focus()

    def _warn(self, text: str) -> None:
        self._warned = text
        width, _ = self.room()
        shown = [line((part, "warn")) for part in wrap(text, width, limit=2)]
        self.query_one("#content", Lines).show([*shown, *[()] * (2 - len(shown))])

    def action_cancel(self) -> None:
        """Esc; what was typed is given up only when that was said."""
        changed = self._valid is None or replace(
            self._valid, name=self._before.name, origin=self._before.origin
        ) != self._before  # fmt: skip
        if changed and not self._leaving:
            self._leaving = True
            self._warn("Esc again leaves without saving; F2 saves")
        else:
            self.dismiss(None)

    def action_save(self) -> None:
        """``F2``; asks again before it writes over another one, or what no version would take."""
        if self._valid is None:
            return
        if self.adds.text:
            self._warn("Enter adds what was typed in the last field, or empty it")
            self.adds.entry.focus()
            return
        name, key = self._valid.name, (self._valid.kind, self._valid.name)
        there = self._all.by_key.get(key)
        doubts = [f"--{row.name_of}"[2 * row.variable :] for row in self.settings() if row.doubt]
        said = ""
        if there is not None and there.origin != "shipped" and name != self._before.name:
            said = f"there is an own preset '{safe(name)}' already: F2 again writes over it"
        elif key in self._all.broken:
            said = f"the file of '{safe(name)}' cannot be read: F2 again writes over it"
        elif doubts:
            said = f"{safe(', '.join(doubts))} looks wrong: F2 again saves it all the same"
        if said and self._sure != self._valid:
            self._sure = self._valid
            self._warn(said)
            return
        try:
            self._all.save(self._valid)
        except (SpecopsError, OSError) as error:
            self._warn(str(error))
            return
        self.dismiss(self._valid)
