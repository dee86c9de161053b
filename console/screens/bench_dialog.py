"""Before a measurement: what is asked of which server, how long it may take; ``y`` begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from console.model import ServerState
from console.planning.measuring import Bench, Load, history_path
from console.screens.dialog import Dialog
from widgets.bars import duration, number
from widgets.paint import Line, fit, line, wrap
from widgets.words import safe

LOADS: tuple[tuple[str, Load], ...] = (
    ("short", Load((1, 8), 2, 64)),
    ("usual", Load((1, 8, 32), 4, 128)),
    ("long", Load((1, 2, 4, 8, 16, 32, 64), 4, 256)),
)
"""``usual`` is what ``specops bench`` does by itself."""


def expected_s(load: Load, known: Sequence[Bench]) -> float | None:
    """How long it may take by the newest measurements; ``None`` where a level has none."""
    total = 0.0
    for count in load.concurrency:
        speeds = (
            level.tokens_per_s
            for one in known
            for level in one.levels
            if level.concurrency == count and level.tokens_per_s > 0
        )
        speed = next(speeds, None)
        if speed is None:
            return None
        total += count * load.per_worker * load.tokens / speed
    return total


class BenchDialog(Dialog[Load | None]):
    """How much is asked; Enter and Esc leave, only ``y`` begins."""

    ANSWERS: ClassVar[tuple[str, ...]] = ("y",)

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "cancel", show=False),
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("y", "begin", show=False),
    ]

    def __init__(
        self, host: str, server: ServerState, known: Sequence[Bench], own: Load | None = None
    ) -> None:
        super().__init__()
        self._host, self._server, self._known = host, server, known
        self._loads = (*LOADS, ("yours", own)) if own else LOADS
        self._at = len(self._loads) - 1 if own else 1

    def heading(self) -> str:
        """What is measured."""
        return f"measure {safe(self._server.name)} on {safe(self._host)}"

    def on_mount(self) -> None:
        """Draw."""
        self.foot(("y  measure", "key"), ("j k  choose", "key"), ("[ Cancel ]", "focus"))
        self.draw()

    def draw(self) -> None:
        """The loads, how long each takes, and what it means."""
        width, _ = self.room()
        state = self._server
        run = f", run {safe(state.run_id)}" if state.run_id else ""
        lines = [line((f"Sends real requests to what serves now: {safe(state.preset or '?')}{run}.",
                       "strong"))]  # fmt: skip
        busy = state.running_requests
        if busy is None or busy > 0:
            text = (
                f"{number(busy)} requests are running now: they get slower, and so do the figures."
            )
            lines += [line((part, "warn")) for part in wrap(text, width)]
        lines += [(), line(("         at a time", "dim"))]
        for at, (name, load) in enumerate(self._loads):
            lines.append(self._row(at == self._at, name, load, width))
        lines.append(())
        path = history_path(self._host)
        text = f"Changes nothing on the host. Kept here: {path}"
        lines += [line((part, "dim")) for part in wrap(text, width)]
        text = (
            f"Against another preset, by relaunching: specops bench {state.name} --against PRESET"
        )
        lines += [line((part, "dim")) for part in wrap(safe(text), width)]
        self.fill(lines)

    def _row(self, here: bool, name: str, load: Load, width: int) -> Line:
        counts = ",".join(map(str, load.concurrency))
        took = expected_s(load, self._known)
        about = f"about {duration(took)}" if took is not None else "time unknown"
        asked = f"{load.requests} requests of {load.tokens} tokens, {about}"
        text = f"{fit(counts, 18)} {asked}"
        return line(("▸ " if here else "  ", "mark"), (fit(name, 7), "strong" if here else "plain"),
                    (fit(text, max(1, width - 9)), "plain" if here else "dim"))  # fmt: skip

    def action_move(self, delta: int) -> None:
        """Up or down."""
        self._at = max(0, min(len(self._loads) - 1, self._at + delta))
        self.draw()

    def action_begin(self) -> None:
        """``y``."""
        self.dismiss(self._loads[self._at][1])
