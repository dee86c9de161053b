"""Colours and layout: four themes of our own and one style sheet, all package data."""

from __future__ import annotations

import pkgutil
from collections.abc import Container

from textual.theme import BUILTIN_THEMES, Theme

from console.errors import ConfigError
from widgets.palette import DEFAULTS

_DARK_RANKS = {name: value for name, value in DEFAULTS.items() if name.startswith("rank")}
_LIGHT_RANKS = {
    "rank0": "#0b5cad", "rank1": "#8031a7", "rank2": "#0a7350", "rank3": "#8a5300",
    "rank4": "#a8265c", "rank5": "#006c86", "rank6": "#5b6300", "rank7": "#4b46a8",
}  # fmt: skip
_ANSI_RANKS = {
    "rank0": "ansi_cyan", "rank1": "ansi_magenta", "rank2": "ansi_blue", "rank3": "ansi_green",
    "rank4": "ansi_bright_magenta", "rank5": "ansi_bright_cyan", "rank6": "ansi_bright_blue",
    "rank7": "ansi_bright_green",
}  # fmt: skip

THEMES = (
    Theme(
        "specops-dark", primary="#6cb6ff", secondary="#8ddb8c", warning="#f2b84b", error="#ff7b72",
        success="#7ee787", accent="#79c0ff", foreground="#d7dde5", background="#0f141a",
        surface="#151b23", panel="#1f2833", dark=True,
        variables={**_DARK_RANKS, "dim": "#8b98a8", "row": "#253a52", "line": "#3a4656"},
    ),
    Theme(
        "specops-light", primary="#0b5cad", secondary="#1a7f37", warning="#8a5300",
        error="#b3261e", success="#166b2d", accent="#0b5cad", foreground="#1c2128",
        background="#fbfcfd", surface="#f1f4f7", panel="#e4e9ee", dark=False,
        variables={**_LIGHT_RANKS, "dim": "#5c6773", "row": "#cfe2f7", "line": "#aeb9c4"},
    ),
    Theme(
        "specops-contrast", primary="#ffffff", secondary="#00ff00", warning="#ffff00",
        error="#ff5f5f", success="#00ff00", accent="#00ffff", foreground="#ffffff",
        background="#000000", surface="#000000", panel="#000000", dark=True,
        variables={**_DARK_RANKS, "dim": "#d0d0d0", "row": "#00458a", "line": "#ffffff"},
    ),
    Theme(
        "specops-16", primary="ansi_blue", secondary="ansi_cyan", warning="ansi_yellow",
        error="ansi_bright_red", success="ansi_green", accent="ansi_cyan",
        foreground="ansi_default", background="ansi_default", surface="ansi_default",
        panel="ansi_default", boost="ansi_default", dark=True, ansi=True,
        variables={
            **_ANSI_RANKS, "dim": "ansi_default", "row": "ansi_blue", "line": "ansi_default",
            "ansi-background": "ansi_black", "ansi-foreground": "ansi_white",
            "border-blurred": "ansi_black", "input-cursor-background": "ansi_white",
            "input-cursor-foreground": "ansi_black", "input-cursor-text-style": "none",
            "input-selection-background": "ansi_blue", "input-selection-foreground": "ansi_white",
            "screen-selection-background": "ansi_blue",
            "screen-selection-foreground": "ansi_white",
            "block-cursor-foreground": "ansi_black", "block-cursor-background": "ansi_white",
        },
    ),
)  # fmt: skip
"""dark, light, high contrast, and one of the terminal's own 16 colours."""

FIRST = "specops-16"
"""Of the first frame: until hosts.yaml is read nobody knows better than the terminal itself."""

VARIABLES = {**DEFAULTS, "line": "#3a4656"}
"""Our own variables under a foreign theme."""


def sheet() -> str:
    """The style sheet."""
    # Not importlib.resources: it brings zipfile and more, 3 ms before the first frame.
    data = pkgutil.get_data(__name__, "specops.tcss")
    assert data is not None  # the loader of a package that was imported can read its files
    return data.decode()


def choose(wanted: str | None, known: Container[str], *, few: bool) -> str:
    """The theme to begin with: the configured one, else one that the terminal can show.

    ``dark`` means ``specops-dark``; ``few``: the terminal has 16 colours or none.

    Raises:
        ConfigError: no such theme.
    """
    if wanted is None:
        return "specops-16" if few else "specops-dark"
    for name in (f"specops-{wanted}", wanted):
        if name in known:
            return name
    hint = "dark, light, contrast, 16, or one of Textual's own"
    raise ConfigError(f"no theme '{wanted}'", place="theme", hint=hint)


def check(wanted: str) -> None:
    """Whether the console will know a theme; raises ``ConfigError`` as :func:`choose`."""
    choose(wanted, {*BUILTIN_THEMES, *(theme.name for theme in THEMES)}, few=False)
