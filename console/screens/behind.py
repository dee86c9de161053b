"""The screen behind a dialog, darkened line by line.

Textual's own way goes through Rich, which takes all lines apart and joins them again: a fifth of
each drawing, and a dialog is drawn anew whenever a value behind it changes.
"""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.color import Color
from textual.css.styles import RulesMap
from textual.geometry import Size
from textual.renderables.background_screen import BackgroundScreen
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual


class Behind(Visual):
    """Draws what Textual's :class:`BackgroundScreen` does."""

    def __init__(self, background: BackgroundScreen) -> None:
        self._screen, self._shade = background.screen, background.color

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        """The lines."""
        del options
        base, shade = style.rich_style, self._shade
        size = Size(width, self._screen.size.height if height is None else height)
        return [
            Strip(
                [Segment(text, base + shaded(given, shade)) for text, given, _ in strip],
                strip.cell_length,
            )
            for strip in self._screen._compositor.render_strips(size)
        ]

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        """All there is."""
        del rules
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        """As high as the screen."""
        del rules, width
        return self._screen.size.height


@lru_cache(4096)
def shaded(style: RichStyle | None, shade: Color) -> RichStyle:
    """A style with its colours under a shade, without links."""
    if style is None:
        return RichStyle.null()
    style = style.clear_meta_and_links()
    if shade.a == 0:
        return style
    front, back = (
        (Color.from_rich_color(colour) + shade).rich_color if colour is not None else None
        for colour in (style.color, style.bgcolor)
    )
    return style + RichStyle.from_color(front, back)
