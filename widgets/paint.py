"""Lines of named roles, drawn through Textual's line API: only what is visible, never markup.

A :class:`Line` is a tuple of ``(text, role)``; a role is a name such as ``bad`` or ``dim`` whose
colours come from the theme. Roles add to words, they never replace them: every line must read the
same without colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from console.text import clean
from widgets import strips  # noqa: F401 - mends the lines that are drawn here
from widgets.palette import roles

Span = tuple[str, str]
Line = tuple[Span, ...]

EMPTY: Line = ()


def line(*spans: Span | str) -> Line:
    """A line of spans; a bare string has the role ``plain``."""
    return tuple((span, "plain") if isinstance(span, str) else span for span in spans)


def text_of(spans: Line) -> str:
    """The line without roles."""
    return "".join(text for text, _ in spans)


def width_of(text: str) -> int:
    """Cells that a text takes; wide characters take two."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly ``width`` cells: padded, or cut with ``…``."""
    length = width_of(text)
    if length > width:
        return set_cell_size(text, width) if width < 2 else set_cell_size(text, width - 1) + "…"
    pad = " " * (width - length)
    return pad + text if right else text + pad


def wrap(text: str, width: int, *, limit: int = 0) -> list[str]:
    """The text in lines of at most ``width`` cells, broken at spaces where there are any.

    ``limit`` > 0 bounds the number of lines; the last one then ends in ``…``.
    """
    width = max(1, width)
    out: list[str] = []
    rest = text
    while width_of(rest) > width:
        head = set_cell_size(rest, width).rstrip() if not rest.isascii() else rest[:width]
        if not rest.startswith(head):  # a wide character did not fit the last cell
            head = head[:-1]
        at = head.rfind(" ")
        if at > width // 3 and rest[len(head) : len(head) + 1] != " ":
            head = head[:at]
        head = head or rest[:1]
        out.append(head.rstrip())
        rest = rest[len(head) :].lstrip(" ")
    out.append(rest)
    if limit and len(out) > limit:
        out = [*out[: limit - 1], fit(" ".join(out[limit - 1 :]), width).rstrip()]
    return out


_TABLES: dict[tuple[str, bool], Mapping[str, Style]] = {}


def _roles_of(app: App[object], name: str, ansi: bool, plain: bool) -> Mapping[str, Style]:
    if (name, plain) not in _TABLES:
        _TABLES[name, plain] = roles(app.theme_variables, ansi=ansi, plain=plain)
    return _TABLES[name, plain]


class Painted(Widget, can_focus=False):
    """A widget whose content is lines of roles. Subclasses answer :meth:`line_at`."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._styles_of: Mapping[str, Style] = {}
        self._own_style: Style | None = None  # Textual computes it anew at each access

    def line_at(self, y: int) -> tuple[Line, str]:
        """The line of row ``y`` of the widget, and the role of the whole row ("" for none)."""
        raise NotImplementedError

    def style_of(self, role: str) -> Style:
        """The style of a role under the application's theme.

        One table for all widgets: component classes would have Textual match every rule of the
        sheet against every role of every widget, at each change of a class.
        """
        if not self._styles_of:
            theme = self.app.current_theme
            plain = self.app.no_color
            self._styles_of = _roles_of(self.app, theme.name, theme.ansi, plain)
        return self._styles_of[role]

    def notify_style_update(self) -> None:
        """Forget the colours of the former theme."""
        self._styles_of = {}
        self._own_style = None
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """One row: the roles' styles over the row's own, padded to the full width."""
        spans, row_role = self.line_at(y)
        width = self.size.width
        base = self._own_style
        if base is None:
            base = self._own_style = self.rich_style
        over = self.style_of(row_role) if row_role else None
        segments: list[Segment] = []
        used = 0
        for text, role in spans:
            if not text.isprintable():  # the last net: nothing drawn is ever a terminal's command
                text = clean(text)  # noqa: PLW2901
            style = base if role == "plain" else base + self.style_of(role)
            if over is not None:
                style += over
            segments.append(Segment(text, style))
            used += width_of(text)
        fill = base + over if over is not None else base
        strip = Strip(segments, used)
        if used > width:
            return strip.crop(0, width)
        return strip.extend_cell_length(width, fill)


class Lines(Painted):
    """A fixed set of lines, as high as there are lines unless the styles say otherwise."""

    def __init__(
        self,
        lines: Sequence[Line] = (),
        *,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: Sequence[Line] = lines
        self._top = 0

    def show(self, lines: Iterable[Line]) -> None:
        """Replace the lines; nothing is drawn again when nothing changed."""
        new = tuple(lines)
        if new == self._lines:
            return
        resized = len(new) != len(self._lines)
        self._lines = new
        self._top = max(0, min(self._top, len(new) - 1))
        self.refresh(layout=resized and self.styles.is_auto_height)

    @property
    def lines(self) -> Sequence[Line]:
        """What is shown."""
        return self._lines

    def scroll_lines(self, delta: int) -> None:
        """Move the visible part by lines; stays within the content."""
        last = max(0, len(self._lines) - self.size.height)
        top = max(0, min(last, self._top + delta))
        if top != self._top:
            self._top = top
            self.refresh()

    def line_at(self, y: int) -> tuple[Line, str]:
        """The line of a row, blank below the last one."""
        at = y + self._top
        return (self._lines[at] if 0 <= at < len(self._lines) else EMPTY), ""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as lines."""
        return len(self._lines)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """The longest line."""
        return max((width_of(text_of(spans)) for spans in self._lines), default=0)
