"""The line for ``/`` and ``:``: an input with completion by Tab and history by the arrows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class Prompt(Input):
    """One line of input. Enter sends it, Esc takes it away, Tab completes, arrows recall."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", show=False),
        Binding("tab", "complete", show=False),
        Binding("up", "recall(1)", show=False),
        Binding("down", "recall(-1)", show=False),
    ]

    class Given(Message):
        """Enter was pressed; ``text`` is ``None`` when Esc was."""

        def __init__(self, prompt: Prompt, text: str | None) -> None:
            super().__init__()
            self.prompt = prompt
            self.text = text

    def __init__(
        self,
        what: str,
        *,
        value: str = "",
        placeholder: str = "",
        history: Sequence[str] = (),
        complete: Callable[[str], list[str]] | None = None,
        password: bool = False,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(
            value, placeholder=placeholder, password=password, select_on_focus=False, id=id
        )
        self.what = what
        self._history = list(history)
        self._recalled = -1
        self._complete = complete
        self._offers: list[str] = []
        self.cursor_blink = False  # a timer that would redraw twice a second for nothing

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        event.stop()
        self.post_message(self.Given(self, self.value))

    def action_give_up(self) -> None:
        """Esc."""
        self.post_message(self.Given(self, None))

    def action_complete(self) -> None:
        """Tab: the next of what the line may go on to."""
        if self._complete is None:
            return
        if self.value not in self._offers:
            self._offers = self._complete(self.value)
        if self._offers:
            at = self._offers.index(self.value) + 1 if self.value in self._offers else 0
            self.value = self._offers[at % len(self._offers)]
            self.cursor_position = len(self.value)

    def action_recall(self, step: int) -> None:
        """Arrows: earlier lines, newest first."""
        at = self._recalled + step
        if -1 <= at < len(self._history):
            self._recalled = at
            self.value = "" if at < 0 else self._history[at]
            self.cursor_position = len(self.value)

    def on_key(self, event: events.Key) -> None:
        """Keys typed here are text; none of them is an action of the screen behind."""
        if event.is_printable:
            event.stop()
