"""The machine's clock: what is set while the agent runs ages nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from console.agent import machine


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, 0.0])
def test_a_clock_that_is_set_makes_no_new_file_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    path = tmp_path / "psm_x"
    path.touch()
    real = time.time

    def set_clock() -> Any:
        return real() + jump_s

    monkeypatch.setattr(time, "time", set_clock)
    assert machine.file_age(path.stat()) < 600.0
    os.utime(path, (1.0, 1.0))  # the change of that is the newer of its two times
    assert machine.file_age(path.stat()) < 600.0


def test_an_old_file_is_old() -> None:
    info = Path("/proc/self/exe").resolve().stat()
    assert machine.file_age(info) == pytest.approx(
        time.time() - max(info.st_mtime, info.st_ctime), abs=30.0
    )
