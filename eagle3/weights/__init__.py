"""The shipped target and draft models; MODEL_CARD.md says what they are and what they cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Shipped(NamedTuple):
    """Folders of the shipped pair."""

    target: Path
    draft: Path


def paths() -> Shipped:
    """Where the shipped target and draft lie."""
    here = Path(__file__).resolve().parent
    return Shipped(here / "target", here / "draft")
