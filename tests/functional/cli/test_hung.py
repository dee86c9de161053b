"""A server that hangs for real: proved by asking it for tokens, replaced by one command."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.functional.cli.conftest import Command

pytestmark = pytest.mark.server


def scheduler_of(run_id: str) -> int:
    """The pid of the run's scheduler."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
            environ = (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"eagle3::scheduler" in title and f"SPECOPS_RUN_ID={run_id}".encode() in environ:
            return int(folder.name)
    raise AssertionError(f"no scheduler of run {run_id}")


def test_a_stopped_scheduler_is_hung_and_a_relaunch_serves_again(bundled: Command) -> None:
    assert bundled("launch", "one", "--yes", "--wait").code == 0
    before = bundled("status", "--json").json["hosts"][0]["servers"][0]
    os.kill(scheduler_of(before["run_id"]), signal.SIGSTOP)

    # Silent for less than a minute it may be at work; the look itself takes half of it.
    time.sleep(34)
    found = bundled("zombies", "--json")
    assert found.code == 1
    (hung,) = [z for z in found.json["hosts"][0]["zombies"] if z["kind"] == "hung"]
    assert hung["pid"] == before["pid"]
    assert any("/health_generate no answer" in line for line in hung["evidence"])
    # Seen for half a minute only, so nothing is killed unasked yet.
    assert not hung["killable"]
    assert hung["why_not"]

    again = bundled("relaunch", "one", "--yes", "--wait", "--json")
    assert again.code == 0, again.err
    assert again.json["outcome"] == "ready"
    after = bundled("status", "--json").json["hosts"][0]["servers"][0]
    assert (after["phase"], after["health"]) == ("ready", "ok")
    assert after["pid"] != before["pid"]
