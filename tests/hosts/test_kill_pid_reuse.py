"""A number that is somebody else's now is never signalled, however close the race."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import scale
from tests.rig.plugin import require

ROOT = Path(__file__).parents[2]


def _lacking() -> str | None:
    if os.geteuid() != 0:
        return "a pid namespace of its own needs root"
    return None if shutil.which("unshare") else "unshare (util-linux) is missing"


@pytest.mark.hosts
@pytest.mark.long
def test_a_reused_pid_is_left_alone() -> None:
    require(_lacking())
    before = Path("/proc/sys/kernel/pid_max").read_text()
    rounds = scale.count(1000)
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable]
    argv += ["-m", "tests.hosts.pid_reuse", str(rounds)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    counts = json.loads(done.stdout)
    outcomes = json.loads(done.stderr)
    print(counts, outcomes)
    assert counts["reused"] == rounds, "the race was not run"
    assert counts["wrong"] == 0
    assert counts["right"] > 0
    assert outcomes["signalled"] > 0
    assert outcomes["changed"] > 0
    assert Path("/proc/sys/kernel/pid_max").read_text() == before
