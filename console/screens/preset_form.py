"""The form for a preset: its name and its settings as lines, checked as they are typed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import TextArea

from console.config.nodes import parse
from console.config.presets import Presets, diff, dump, read_preset
from console.errors import SpecopsError
from console.model import Preset, Severity
from console.screens.dialog import Dialog
from console.screens.differing import difference_rows
from widgets.bars import counted
from widgets.paint import Lines, fit, line
from widgets.prompt import Prompt
from widgets.words import safe

ASK_AFTER_S = 0.5
"""Nothing is asked of a host while the operator types."""

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_SIGNS = {Severity.ERROR: "✖", Severity.WARNING: "!", Severity.INFO: "i"}


class PresetForm(Dialog[Preset | None]):
    """Edits the file form of a preset; ``F2`` saves what is valid, never over a shipped one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False, priority=True),
        Binding("f2", "save", show=False, priority=True),
    ]

    def __init__(
        self, preset: Preset, presets: Presets, host: str | None = None, server: str | None = None
    ) -> None:
        super().__init__()
        self._host, self._server = host, server
        self._asked: Preset | None = None
        self._waiting: Timer | None = None
        self._sure = ""
        self._before = preset
        self._all = presets
        self._valid: Preset | None = preset

    def heading(self) -> str:
        """What is edited, and as what it will be saved."""
        copy = " (shipped: saved as your own)" if self._before.origin == "shipped" else ""
        return f"edit {self._before.kind} preset {safe(self._before.name)}{copy}"

    def body(self) -> list[Widget]:
        """Name, settings, what is wrong or what changes."""
        own = self._before.origin != "shipped"
        name = self._before.name if own else f"my-{self._before.name}"
        text = TextArea(dump(self._before), id="text", show_line_numbers=True, soft_wrap=False)
        return [Prompt("name", value=name, id="name"), text, Lines(id="content"),
                Lines(id="preflight")]  # fmt: skip

    def on_mount(self) -> None:
        """Draw."""
        _, height = self.room()
        self.query_one(TextArea).styles.height = max(4, min(14, height - 12))
        self.query_one(TextArea).focus()
        self.foot(("F2  save", "key"), ("Esc  leave without saving", "key"))
        self._check()

    def on_text_area_changed(self) -> None:
        """Check what was typed."""
        self._check()

    def on_input_changed(self) -> None:
        """The name counts too."""
        self._check()

    def on_prompt_given(self, event: Prompt.Given) -> None:
        """Enter in the name goes on to the settings; it never saves."""
        event.stop()
        if event.text is None:
            self.action_cancel()
        else:
            self.query_one(TextArea).focus()

    def _check(self) -> None:
        name = self.query_one("#name", Prompt).value.strip()
        place = Path(f"{name or 'preset'}.yaml")
        try:
            text = self.query_one(TextArea).text
            self._valid = read_preset(parse(text, place), name, str(place))
            if self._valid.kind != self._before.kind:
                kept = replace(self._valid, kind=self._before.kind)
                changes = [(f"becomes a {self._valid.kind} preset", "warn")]
                changes += difference_rows(diff(self._before, kept))
            else:
                changes = difference_rows(diff(self._before, self._valid))
        except SpecopsError as error:
            self._valid = None
            changes = [(str(error), "bad")]
        shown = [line((text, role)) for text, role in changes[:4]]
        self.query_one("#content", Lines).show(shown)
        self._ask_soon()

    # ---- preflight, while it is edited

    def _ask_soon(self) -> None:
        """Ask once nothing was typed for a moment; what was asked before no longer counts."""
        if self._waiting is not None:
            self._waiting.stop()
        if self._valid is None:
            self._say_preflight([("preflight: once the text is valid", "dim")])
        elif self._server is None or self.specops.actions is None:
            text = "preflight: no server chosen; open the presets from one in the fleet"
            self._say_preflight([(text, "dim")])
        elif self._valid != self._asked:
            self._say_preflight([(f"preflight for {safe(self._server)}: asking…", "dim")])
            self._waiting = self.set_timer(ASK_AFTER_S, self._ask)

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
        self._asked = preset
        width, _ = self.room()
        errors, warnings = (
            sum(one.severity is severity for one in found)
            for severity in (Severity.ERROR, Severity.WARNING)
        )
        counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
        role = "bad" if errors else "warn" if warnings else "ok"
        rows = [(f"preflight for {safe(server)} on {safe(self._host or '?')}: {counts}", role)]
        worst = sorted(found, key=lambda one: _ORDER.index(one.severity))
        for one in worst[:3]:
            if one.severity is not Severity.INFO:
                fix = f" → {safe(one.fix)}" if one.fix else ""
                text = fit(f"  {_SIGNS[one.severity]} {safe(one.message)}{fix}", width).rstrip()
                rows.append((text, "bad" if one.severity is Severity.ERROR else "warn"))
        self._say_preflight(rows)

    def _say_preflight(self, rows: list[tuple[str, str]]) -> None:
        if self.is_attached:
            shown = [line((text, role)) for text, role in rows]
            self.query_one("#preflight", Lines).show(shown)

    def action_save(self) -> None:
        """``F2``."""
        if self._valid is None:
            return
        name, key = self._valid.name, (self._valid.kind, self._valid.name)
        there = self._all.by_key.get(key)
        own = there is not None and there.origin != "shipped"
        if own and name not in (self._before.name, self._sure):
            self._sure = name
            text = f"there is an own preset '{safe(name)}' already: F2 again writes over it"
            self.query_one("#content", Lines).show([line((text, "warn"))])
            return
        try:
            self._all.save(self._valid)
        except (SpecopsError, OSError) as error:
            self.query_one("#content", Lines).show([line((str(error), "bad"))])
            return
        self.dismiss(self._valid)
