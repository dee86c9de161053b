"""A server that really never becomes ready: its draft's index is a pipe that nobody fills."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import scale
from tests.functional.cli.conftest import Command, free_port

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(600)]

WEIGHTS = Path(__file__).parents[3] / "eagle3" / "weights" / "draft"
PATIENCE_S = 300.0


@pytest.fixture
def stuck(specops: Command) -> Iterator[Command]:
    """The command with one server whose start hangs after the target is loaded."""
    draft = specops.folder / "draft"
    draft.mkdir()
    for path in WEIGHTS.iterdir():
        (draft / path.name).symlink_to(path)
    os.mkfifo(draft / "model.safetensors.index.json")
    specops.write(
        "hosts:\n  here: {transport: local}\nservers:\n"
        f"  one: {{host: here, engine: bundled, port: {free_port()}, draft: {draft},\n"
        "        speculative: eagle3-3step}\n"
    )
    yield specops
    specops("stop", "one", "--yes")


@pytest.fixture
def unrelated() -> Iterator[subprocess.Popen[bytes]]:
    """A Python of the same user that serves nothing and waits as quietly as the server does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def until_loading(command: Command) -> int:
    """Until it waits for the draft's weights; its pid."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        seen = command("status", "--json").json["hosts"][0]["servers"][0]
        if seen["phase"] == "load_draft":
            return int(seen["pid"])
        time.sleep(0.5)
    raise AssertionError(f"it did not come to the draft: {seen}")


def zombies_of(command: Command) -> list[dict[str, Any]]:
    """The never-ready ones of this test's host."""
    found = command("zombies", "--json").json["hosts"][0]["zombies"]
    return [z for z in found if z["kind"] == "never-ready"]


def test_a_start_that_hangs_is_never_ready_and_goes(
    stuck: Command, unrelated: subprocess.Popen[bytes]
) -> None:
    assert stuck("launch", "one", "--yes").code == 0
    pid = until_loading(stuck)

    # Young as it is it may still load, so nobody may touch it.
    assert zombies_of(stuck) == []
    assert stuck("kill-zombies", "--kind", "never-ready", "--dry-run").code == 0
    assert Path(f"/proc/{pid}").exists()
    if scale.SHARE < 1:  # the rest is two minutes without progress
        return

    end = time.monotonic() + PATIENCE_S
    while not (found := zombies_of(stuck)) and time.monotonic() < end:
        time.sleep(5)
    (zombie,) = found
    assert zombie["pid"] == pid
    evidence = "\n".join(zombie["evidence"])
    assert "in phase load_draft" in evidence
    assert "log silent for" in evidence

    ran = stuck("kill-zombies", "--kind", "never-ready", "--yes", "--json")
    assert ran.code == 0, ran.err
    (host,) = ran.json["hosts"]
    assert [z["pid"] for z in host["killed"]] == [pid]
    assert host["clean"] is True
    assert host["freed_mib"] > 0
    assert not Path(f"/proc/{pid}").exists()
    assert unrelated.poll() is None
    assert zombies_of(stuck) == []
