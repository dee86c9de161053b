"""Bars, sparklines and numbers as plain text, in eighths of a cell. ``None`` is ``?``, never 0."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"
_HEIGHTS = "▁▂▃▄▅▆▇█"


def bar(share: float | None, width: int) -> str:
    """A horizontal bar of ``width`` cells for a share of 0 to 1."""
    if width <= 0:
        return ""
    if share is None:
        return "?".ljust(width, "·")
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, part = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[part] if part else "")
    return text.ljust(width, "░")


def column(share: float | None) -> str:
    """One cell whose height is the share of 0 to 1."""
    if share is None:
        return "?"
    return _HEIGHTS[max(0, min(7, round(share * 7)))]


def sparkline(values: Sequence[float | None], width: int, *, top: float | None = None) -> str:
    """The newest ``width`` values as heights; unknown values are gaps."""
    kept = list(values)[-width:]
    known = [value for value in kept if value is not None]
    high = top if top is not None else max(known, default=0.0)
    cells = [" " if value is None else column(value / high if high > 0 else 0.0) for value in kept]
    return "".join(cells).rjust(width)


def percent(share: float | None) -> str:
    """A share of 0 to 1 as ``96 %``; 100 only when it is all, 0 only when it is nothing."""
    if share is None:
        return "? %"
    value = round(share * 100)
    if value == 0 and share > 0:
        return "<1 %"
    if value == 100 and share < 1:
        value = 99
    return f"{value} %"


def mib(value: float | None) -> str:
    """MiB with thin groups: ``737 312 MiB``; small ones keep a decimal."""
    if value is None:
        return "? MiB"
    if 0 < value < 10:
        return f"{value:.1f} MiB"
    return f"{value:,.0f} MiB".replace(",", " ")


def gib(value: float | None) -> str:
    """MiB in at most seven cells, for narrow places: ``79.6 G``, ``412 M``."""
    if value is None:
        return "?"
    return f"{value / 1024:.1f} G" if value >= 1024 else f"{value:.0f} M"


def size(count: int | None) -> str:
    """Bytes in the unit that fits: ``214 MiB``."""
    if count is None:
        return "?"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def counted(count: int, name: str) -> str:
    """A count with its noun: ``1 host``, ``3 hosts``."""
    return f"{count} {name}{'s' * (count != 1)}"


def number(value: float | None, digits: int = 0) -> str:
    """A number, ``?`` when unknown."""
    return "?" if value is None else f"{value:,.{digits}f}".replace(",", " ")


def age(seconds: float | None) -> str:
    """How long ago, in at most five cells: ``1s``, ``59m``, ``8h12``, ``12d``."""
    if seconds is None:
        return "?"
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}" if whole < 600 else f"{whole // 60}m"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}"
    return f"{whole // 86400}d"


def duration(seconds: float | None) -> str:
    """A length of time: ``0.9 s``, ``48 s``, ``1:52``, ``8 h 09 min``."""
    if seconds is None:
        return "?"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
