"""``?``: every key of the screen behind, from the one table, searchable by typing."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from console.keys import KeyMap
from console.screens.dialog import Dialog
from widgets.paint import Line, Lines, fit, line, wrap

_MORE = (
    "Upper case changes a host; everything that does shows a plan first, and Enter is never yes.",
)


class Help(Dialog[None]):
    """The keys of a screen; letters narrow the list, Esc leaves."""

    SCOPE = "help"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,question_mark,f1", "cancel", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("backspace", "rub_out", show=False),
    ]

    def __init__(self, keys: KeyMap, scope: str) -> None:
        super().__init__()
        self._keys = keys
        self._scope = scope
        self._typed = ""

    def heading(self) -> str:
        """The screen it is about."""
        return f"keys of {self._scope}"

    def on_mount(self) -> None:
        """Draw."""
        self.draw()

    def on_key(self, event: events.Key) -> None:
        """Typing searches."""
        if event.is_printable and event.character and event.character != "?":
            self._typed += event.character
            event.stop()
            self.draw()

    def action_rub_out(self) -> None:
        """One letter less."""
        self._typed = self._typed[:-1]
        self.draw()

    def action_scroll(self, delta: int) -> None:
        """Up or down."""
        self.query_one("#content", Lines).scroll_lines(delta)

    def draw(self) -> None:
        """The keys that the search leaves."""
        width, _ = self.room()
        words = self._typed.lower().split()
        lines: list[Line] = []
        for action in self._keys.on(self._scope):
            text = f"{action.shown_keys} {action.title} {action.help} {action.cli or ''}".lower()
            if all(word in text for word in words):
                twin = f"  (:{action.cli})" if action.cli else ""
                first, *rest = wrap(action.help + twin, width - 31)
                role = "warn" if action.dangerous else "key"
                head = (fit(action.shown_keys, 14), role), (fit(action.title, 16), "strong")
                lines.append(line(*head, first))
                lines += [line(" " * 30 + part) for part in rest]
        if not lines:
            lines.append(line(("no key here does that", "dim")))
        more = (part for text in _MORE for part in wrap(text, width))
        lines += [(), *(line((part, "dim")) for part in more)]
        typed = self._typed or "type to search"
        self.foot((f"search: {typed}", "accent"), ("↑ ↓ scroll", "dim"), ("Esc  close", "key"))
        self.fill(lines)
