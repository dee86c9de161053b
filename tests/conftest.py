"""What every test has: the rig's fixtures and the line about scale and seed."""

from __future__ import annotations

import hypothesis

from tests import scale

# A busy machine is no finding: no example has a deadline.
hypothesis.settings.register_profile("specops", deadline=None)
hypothesis.settings.load_profile("specops")

pytest_plugins = ["tests.rig.plugin", "tests.nvml.plugin"]


def pytest_report_header() -> str:
    """The run's scale and seed, so that a failure can be repeated."""
    return scale.header()
