"""The form for a preset: its name and its settings as lines, checked as they are typed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import TextArea

from console.config.nodes import parse
from console.config.presets import Presets, diff, dump, read_preset
from console.errors import SpecopsError
from console.model import Preset
from console.screens.dialog import Dialog
from console.screens.differing import difference_rows
from widgets.paint import Lines, line
from widgets.prompt import Prompt
from widgets.words import safe


class PresetForm(Dialog[Preset | None]):
    """Edits the file form of a preset; ``F2`` saves what is valid, never over a shipped one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False, priority=True),
        Binding("f2", "save", show=False, priority=True),
    ]

    def __init__(self, preset: Preset, presets: Presets) -> None:
        super().__init__()
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
        text = TextArea(dump(self._before), id="text", show_line_numbers=True)
        return [Prompt("name", value=name, id="name"), text, Lines(id="content")]

    def on_mount(self) -> None:
        """Draw."""
        _, height = self.room()
        self.query_one(TextArea).styles.height = max(5, min(14, height - 8))
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
        shown = [line((text, role)) for text, role in changes[:5]]
        self.query_one("#content", Lines).show(shown)

    def action_save(self) -> None:
        """``F2``."""
        if self._valid is None:
            return
        try:
            self._all.save(self._valid)
        except (SpecopsError, OSError) as error:
            self.query_one("#content", Lines).show([line((str(error), "bad"))])
            return
        self.dismiss(self._valid)
