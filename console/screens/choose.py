"""Small choices from a list: presets before a launch, a column to sort by, anything with a name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.config.presets import Presets
from console.screens.dialog import Dialog
from console.screens.standings import ROLES, Standings
from widgets.paint import Line, Lines, fit, line, wrap
from widgets.words import safe

_MOVES: list[BindingType] = [
    Binding("escape,q", "cancel", show=False),
    Binding("j,down", "move(1)", show=False),
    Binding("k,up", "move(-1)", show=False),
    Binding("enter", "take", show=False),
]


class Choose(Dialog[str | None]):
    """One of several names; looks only, so Enter takes it."""

    BINDINGS: ClassVar[list[BindingType]] = _MOVES

    def __init__(self, title: str, options: Sequence[tuple[str, str]], current: str = "") -> None:
        super().__init__()
        self._title = title
        self._options = options
        names = [name for name, _ in options]
        self._at = names.index(current) if current in names else 0

    def heading(self) -> str:
        """The title."""
        return self._title

    def on_mount(self) -> None:
        """Draw."""
        self.foot(("Enter  take", "key"), ("Esc  leave", "key"))
        self.draw()

    def draw(self) -> None:
        """The names."""
        width, height = self.room()
        first = max(0, self._at - height + 1)
        lines = [
            line(
                ("▸ " if at == self._at else "  ", "mark"),
                (fit(name, 18), "strong" if at == self._at else "plain"),
                (fit(text, width - 22), "dim"),
            )
            for at, (name, text) in enumerate(self._options)
        ]
        self.fill(lines[first : first + height])

    def action_move(self, delta: int) -> None:
        """Up or down."""
        self._at = max(0, min(len(self._options) - 1, self._at + delta))
        self.draw()

    def action_take(self) -> None:
        """Enter."""
        self.dismiss(self._options[self._at][0])


class ChoosePresets(Dialog[dict[str, str] | None]):
    """A speculative and an NCCL preset. Enter goes on to the plan, which still asks.

    The lists keep one order, so that fingers find what they know; how each has done here stands
    beside it. The presets screen sorts by that.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *_MOVES,
        Binding("tab,left,right,h,l", "other", show=False),
    ]

    def __init__(
        self, title: str, presets: Presets, *, speculative: str | None, nccl: str | None,
        standings: Standings | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._title = title
        self._kinds = ("speculative", "nccl")
        self._lists = {
            kind: [preset for preset in presets if preset.kind == kind] for kind in self._kinds
        }
        self._standings: Standings = standings or {}
        self._column = 0
        self._at: dict[str, int] = {}
        for kind, current in zip(self._kinds, (speculative, nccl), strict=True):
            names = [preset.name for preset in self._lists[kind]]
            self._at[kind] = names.index(current) if current in names else 0
        self._touched = {"speculative": speculative is not None, "nccl": nccl is not None}

    def heading(self) -> str:
        """The title."""
        return f"{self._title}: with which presets?"

    def body(self) -> list[Widget]:
        """The lists and what the chosen ones set."""
        return [Lines(id="content")]

    def on_mount(self) -> None:
        """Draw."""
        self.foot(
            ("Enter  on to the plan", "key"), ("Tab  other list", "key"), ("Esc  leave", "key")
        )
        self.draw()

    def draw(self) -> None:
        """Both lists, and what the chosen ones set."""
        width, height = self.room()
        half = width // 2
        rows = max(len(found) for found in self._lists.values())
        lines: list[Line] = [self._heads(half)]
        lines += [
            (*self._cell("speculative", at, half), *self._cell("nccl", at, half))
            for at in range(rows)
        ]
        lines.append(())
        for kind in self._kinds:
            if not self._lists[kind]:
                continue
            if not self._touched[kind]:
                lines += [line((f"{kind}: none configured, nothing is set", "dim")), ()]
                continue
            preset = self._lists[kind][self._at[kind]]
            sets = [f"--{name} {value}" for name, value in preset.flags.items()]
            sets += [f"{name}={value}" for name, value in preset.env.items()]
            lines.append(line((fit(safe(f"{preset.name}: {preset.description}"), width), "strong")))
            text = safe(" ".join(sets) or "sets nothing")
            spare = height - rows - 10  # each kind takes three rows, and its settings a fourth
            parts = wrap(text, width - 2, limit=max(1, min(3, 1 + spare // 2)))
            lines += [line((f"  {part}", "dim")) for part in parts]
            if (known := self._standings.get((kind, preset.name))) is not None:
                text = fit(f"  {known.verdict}: {safe(known.why)}", width)
                lines.append(line((text, ROLES[known.verdict])))
        self.fill(lines)

    def _heads(self, half: int) -> Line:
        return tuple(
            (fit(kind.upper(), half), "key" if at == self._column else "title")
            for at, kind in enumerate(self._kinds)
        )

    def _cell(self, kind: str, at: int, half: int) -> Line:
        if at >= len(self._lists[kind]):
            return line(" " * half)
        here = at == self._at[kind]
        active = self._kinds[self._column] == kind
        chosen = here and self._touched[kind]
        sign = "▸ " if here and active else "• " if chosen else "  "
        preset = self._lists[kind][at]
        known = self._standings.get((kind, preset.name))
        verdict = known.verdict if known else ""
        name = fit(safe(preset.name), max(4, half - 11))
        return line((sign, "mark"), (name, "strong" if chosen else "plain"),
                    (fit(f" {verdict}", 9), ROLES.get(verdict, "dim")))  # fmt: skip

    def action_move(self, delta: int) -> None:
        """Up or down in the list."""
        kind = self._kinds[self._column]
        self._at[kind] = max(0, min(len(self._lists[kind]) - 1, self._at[kind] + delta))
        self._touched[kind] = True
        self.draw()

    def action_other(self) -> None:
        """To the other list."""
        self._column = 1 - self._column
        self.draw()

    def action_take(self) -> None:
        """On to the plan; a list that was neither configured nor touched says nothing."""
        chosen = {
            kind: self._lists[kind][self._at[kind]].name
            for kind in self._kinds
            if self._touched[kind] and self._lists[kind]
        }
        self.dismiss(chosen)
