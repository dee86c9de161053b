"""The value of a setting as one line that is typed, and back: what YAML would make of it. Pure."""

from __future__ import annotations

import re
from typing import Any

from console.errors import UsageError

_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None}
_INT = re.compile(r"[-+]?(?:0|[1-9]\d*)")
_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?")


def written(value: Any) -> str:
    """A value as it is typed: ``null`` takes a setting away, quotes keep text that looks else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(str(item) for item in value) + "]"
    if not isinstance(value, str):
        whole, e, power = str(value).partition("e")  # YAML takes 1e-05 for text
        return f"{whole}.0e{power}" if e and "." not in whole else str(value)
    return value if _same(value) else f"'{value}'"


def _same(text: str) -> bool:
    try:
        return bool(read_typed(text) == text)
    except UsageError:
        return False


def read_typed(text: str, *, variable: bool = False) -> Any:
    """The value that a line means. A variable is text; only ``null`` takes it away.

    Raises:
        UsageError: a list that does not end.
    """
    text = text.strip()
    if text in ("null", "~"):
        return None
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if variable:
        return text
    if text.startswith("[") and not text.startswith("[{"):
        if not text.endswith("]"):
            raise UsageError("a list ends with ]")
        return [part.strip() for part in text[1:-1].split(",") if part.strip()]
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
