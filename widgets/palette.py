"""Colours of the roles, from the variables of a theme. One table for the whole application."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.color import Color

_COLOURS = {
    "dim": "dim", "ok": "success", "warn": "warning", "bad": "error", "title": "dim",
    "key": "accent", "accent": "accent", "mark": "warning", "bar": "primary",
    **{f"rank{number}": f"rank{number}" for number in range(8)},
}  # fmt: skip
_BOLD = {"strong", "bad", "title", "key", "mark", "focus"}
_REVERSE = {"hit", "focus"}

ROLES = ("plain", "strong", "hit", "focus", "cursor", *_COLOURS)
"""Every role that a line may use."""


DEFAULTS: Mapping[str, str] = {
    "dim": "#8b98a8", "row": "#253a52",
    "rank0": "#6cb6ff", "rank1": "#d29cff", "rank2": "#5fd7af", "rank3": "#f2b36d",
    "rank4": "#ff9fc2", "rank5": "#9ad8ff", "rank6": "#c8d672", "rank7": "#b9b2ff",
}  # fmt: skip
"""What a theme that does not know our variables is taken to say."""


def roles(variables: Mapping[str, str], *, ansi: bool, plain: bool) -> dict[str, Style]:
    """The style of each role under a theme.

    ``ansi``: the theme uses the terminal's own 16 colours; ``plain``: NO_COLOR, where the cursor is
    shown in reverse.
    """
    variables = {**DEFAULTS, **variables}
    out = {role: Style(bold=role in _BOLD or None, reverse=role in _REVERSE or None)
           for role in ROLES}  # fmt: skip
    for role, variable in _COLOURS.items():
        out[role] += Style(color=Color.parse(variables[variable]).rich_color)
    if ansi:
        out["dim"] = Style(dim=True)
        out["title"] = Style(bold=True, dim=True)
    if plain:
        out["cursor"] = Style(reverse=True)
    else:
        row = Color.parse(variables["row"]).rich_color
        out["cursor"] = Style(bgcolor=row, color="bright_white" if ansi else None)
    return out
