"""Words as the types that the engine's parser gives them."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

_SUFFIXES = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip


def convert(word: str, kind: str) -> tuple[Any, str]:
    """A word as int, float, human-readable int or text; the second item says what is wrong."""
    try:
        if kind == "int":
            return int(word), ""
        if kind == "float":
            return float(word), ""
    except ValueError:
        return None, "not a whole number" if kind == "int" else "not a number"
    if kind == "json":
        return word, not_json(word)
    if kind == "upper":
        return word.upper(), ""
    if kind == "human_readable_int":
        match = re.fullmatch(r"(-?\d+)(\.\d+)?(Ki|Mi|Gi|Ti|k|M|G|T)?", word.strip())
        suffix = match[3] or "" if match else ""
        if not match or (match[2] and (not suffix or suffix.endswith("i"))):
            return None, "not a size such as 131072, 128k (times 1000) or 128Ki (times 1024)"
        return int(Decimal(match[1] + (match[2] or "")) * _SUFFIXES[suffix]), ""
    return word, ""


def not_json(word: str) -> str:
    """What keeps a word from being JSON, empty where nothing does."""
    try:
        json.loads(word)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({str(error)[:60]})"
    return ""
