"""The key bar: help and command always first, then as many keys as fit whole."""

from __future__ import annotations

from collections.abc import Sequence

from widgets.paint import EMPTY, Line, Painted, width_of


class KeyBar(Painted):
    """One line of ``(key, what it does)``, most wanted first; nothing is ever cut in the middle."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._keys: Sequence[tuple[str, str, bool]] = ()

    def show(self, keys: Sequence[tuple[str, str, bool]]) -> None:
        """The keys: name, title, whether it changes a host."""
        if keys != self._keys:
            self._keys = keys
            self.refresh()

    def line_at(self, y: int) -> tuple[Line, str]:
        """The keys that fit."""
        if y:
            return EMPTY, ""
        spans: list[tuple[str, str]] = [(" ", "plain")]
        left = self.size.width - 1
        for key, title, dangerous in self._keys:
            need = width_of(key) + 1 + width_of(title)
            if need > left:
                break
            spans += [
                (key, "warn" if dangerous else "key"),
                (f" {title}", "plain"),
                ("  ", "plain"),
            ]
            left -= need + 2
        return tuple(spans), ""
