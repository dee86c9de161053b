"""What every test has: the rig's fixtures and the line about scale and seed."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

from tests import scale

# A busy machine is no finding: no example has a deadline.
hypothesis.settings.register_profile("specops", deadline=None)
hypothesis.settings.load_profile("specops")

ROOT = Path(__file__).parent

pytest_plugins = ["tests.rig.plugin", "tests.nvml.plugin"]


_FIRST = ("hosts", "functional")
"""What waits long comes first, so that the many short ones fill the workers at the end."""


_VERY_FIRST = ("test_hung.py", "test_several.py", "test_tour.py", "test_walk.py")
"""Minutes each: begun late, one of them is what the whole run waits for."""

REPEATS = int(os.environ.get("SPECOPS_TEST_REPEATS", "0"))
"""How often a failed test of real processes is run again. CI says 1, so that one race on a shared
machine does not hide 4,000 results; the summary lists each as RERUN, and each is a fault to find.
Nothing else is repeated, and ``make test`` repeats nothing."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long rooms before short ones; needs xdist's ``--no-loadscope-reorder`` (in the Makefile)."""

    def turn(item: pytest.Item) -> int:
        room = item.path.relative_to(ROOT).parts[0]
        if item.path.name in _VERY_FIRST:
            return -1
        return _FIRST.index(room) if room in _FIRST else len(_FIRST)

    items.sort(key=turn)
    if REPEATS:
        for item in items:
            if turn(item) < len(_FIRST):
                item.add_marker(pytest.mark.flaky(reruns=REPEATS))


def pytest_report_header() -> str:
    """The run's scale and seed, so that a failure can be repeated."""
    return scale.header()
