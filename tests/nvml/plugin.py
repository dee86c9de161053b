"""The pytest fixture ``nvml``: the NVML stub, eight idle GPUs in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nvml import Nvml, missing
from tests.rig.plugin import require


@pytest.fixture
def nvml(tmp_path: Path) -> Nvml:
    """A stub library with eight idle H200; see ``tests.nvml``."""
    require(missing())
    return Nvml(tmp_path / "nvml")
