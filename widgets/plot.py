"""Measurements as bars: one group a load, one bar a series, told apart by sign, not by colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from widgets.bars import bar, number
from widgets.paint import Line, fit, line, width_of

SIGNS = "●○◆◇"
ROLES = ("accent", "warn", "ok", "rank1")


@dataclass(frozen=True, slots=True)
class Series:
    """One measurement: ``values`` maps a load to a figure; ``notes`` may add to it in words."""

    name: str
    values: Mapping[int, float]
    notes: Mapping[int, str]


def legend(names: Sequence[str], width: int) -> list[Line]:
    """Which sign is which series, one a line."""
    return [
        line((f" {sign} ", role), (fit(name, max(1, width - 4)), "plain"))
        for sign, role, name in zip(SIGNS, ROLES, names, strict=False)
    ]


def grouped(title: str, series: Sequence[Series], width: int, *, digits: int = 0) -> list[Line]:
    """A heading, then for each load one bar a series, all to the same scale.

    A load that a series was not measured under has no bar there: nothing is not zero.
    """
    loads = sorted({load for one in series for load in one.values})
    top = max((value for one in series for value in one.values.values()), default=0.0)
    texts = {
        (at, load): number(one.values[load], digits) + one.notes.get(load, "")
        for at, one in enumerate(series)
        for load in one.values
    }
    widest = max((width_of(text) for text in texts.values()), default=0)
    room = max(4, width - 9 - widest)
    out: list[Line] = [line((fit(f" {title}", width), "title"))]
    for load in loads:
        first = True
        for at, one in enumerate(series):
            if load not in one.values:
                continue
            head = fit(str(load) if first else "", 5, right=True)
            share = one.values[load] / top if top > 0 else 0.0
            first = False
            out.append(
                line(
                    (head, "strong"),
                    (f" {SIGNS[at]} ", ROLES[at]),
                    (bar(share, room).replace("░", " "), ROLES[at]),
                    " " + fit(texts[at, load], widest, right=True),
                )
            )
    if not loads:
        out.append(line(("  nothing measured", "dim")))
    return out


def beside(left: Sequence[Line], right: Sequence[Line], width: int) -> list[Line]:
    """Two blocks in two halves of a width."""
    half = width // 2
    out: list[Line] = []
    for at in range(max(len(left), len(right))):
        spans = left[at] if at < len(left) else ()
        used = sum(width_of(text) for text, _ in spans)
        rest = right[at] if at < len(right) else ()
        out.append((*spans, (" " * max(1, half - used), "plain"), *rest))
    return out
