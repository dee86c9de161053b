"""The rows of the preset form: a label, an entry, and what speaks for or against what is typed."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input

from console.config.typed import read_typed, written
from console.preflight import fields
from console.text import is_secret_name
from widgets.paint import Line, Lines, fit, line
from widgets.table import cell
from widgets.words import safe

LABEL = 33
"""Cells of a label with its sign: the longest flag of the shipped presets fits whole."""


class Fields(VerticalScroll, can_focus=False):
    """The rows; the one with the focus is scrolled into view."""


class Entry(Input):
    """One line of text that does not blink."""

    def __init__(self, value: str, *, hidden: bool, placeholder: str, id: str | None) -> None:  # noqa: A002
        super().__init__(
            value, password=hidden, placeholder=placeholder, select_on_focus=False, id=id
        )
        self.cursor_blink = False


class Says(Lines):
    """A remark, as much of it as there is room for."""

    def line_at(self, y: int) -> tuple[Line, str]:
        """The remark, cut with a sign that it is."""
        spans, role = super().line_at(y)
        return cell(spans, self.size.width - 1), role


class Field(Horizontal):
    """A row. ``name_of`` and ``variable`` say which setting it is; ``None``: none of them."""

    def __init__(
        self,
        label: str,
        value: str = "",
        *,
        name_of: str | None = None,
        variable: bool = False,
        id: str | None = None,  # noqa: A002
        placeholder: str = "",
    ) -> None:
        super().__init__(classes="" if name_of else "-long")
        self.name_of, self.variable = name_of, variable
        self._secret = name_of is not None and is_secret_name(name_of)
        hidden = self._secret and not value.startswith("secret:")
        self.entry = Entry(value, hidden=hidden, placeholder=placeholder, id=id)
        self._label = label
        self._shown = Lines(classes="label")
        self._says = Says(classes="says")
        self.doubt = ""
        """What speaks against the value by itself."""
        self.against = ""
        """What preflight said against it."""

    @classmethod
    def of(cls, name: str, value: Any, *, variable: bool) -> Field:
        """The row of a setting."""
        label = name if variable else f"--{name}"
        text = (value or "''") if variable and value is not None else written(value)
        return cls(label, text, name_of=name, variable=variable)

    def compose(self) -> ComposeResult:
        """Label, entry, remark."""
        yield self._shown
        yield self.entry
        yield self._says

    @property
    def text(self) -> str:
        """What is typed."""
        return self.entry.value.strip()

    def value(self) -> Any:
        """What it means.

        Raises:
            UsageError: no value that could be written.
        """
        return read_typed(self.text, variable=self.variable)

    def look(self, before: Any, *, was_set: bool, known: bool) -> None:
        """Say what is wrong by itself, else what changes against ``before``."""
        self.doubt = self.against = ""
        if self.name_of is None:
            return
        self.entry.password = self._secret and not self.text.startswith("secret:")
        if not self.text:
            self.say("", "taken out" if was_set else "", "warn")
            return
        value = self.value()
        if known:
            self.doubt = fields.doubt(self.name_of, value, variable=self.variable)
        if self.doubt:
            self.say("!", self.doubt, "warn")
        elif was_set and value != before:
            self.say("", "was " + ("***" if self._secret else written(before)), "accent")
        else:
            self.say("", "" if was_set else "new", "accent")

    def say(self, sign: str, text: str, role: str) -> None:
        """A sign before the label and a remark behind the entry."""
        label = fit(safe(self._label), LABEL - 3)
        self._shown.show([line((f"{sign or ' '} ", role), (label, "plain"))])
        self._says.show([line((" " + safe(text), role))])

    def on_mount(self) -> None:
        """The label, before anything is known."""
        self.say("", "", "plain")


def setting_of(text: str) -> tuple[str, bool, str]:
    """``--flag value``, ``flag=value`` or ``NAME=value``: name, whether a variable, value."""
    name, equals, value = text.partition("=")
    if equals and name == name.upper() and " " not in name:
        return name, True, value
    if not equals or " " in name:
        name, _, value = text.partition(" ")
    name = name.removeprefix("--").replace("_", "-")
    return name, False, value.strip()
