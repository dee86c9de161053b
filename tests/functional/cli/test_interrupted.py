"""A console killed at each step of a relaunch: what another terminal is told, and both ways on.

``watch`` says what is so, ``resume`` finishes, ``undo`` takes back. All of the table with
``make test-long``; a part of it otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import scale
from tests.functional.cli.conftest import Command
from tests.functional.cli.test_serving import complete, state, until

pytestmark = [pytest.mark.server, pytest.mark.long]
ROOT = Path(__file__).parents[3]
KINDS = (
    "preflight", "drain", "signal", "wait-gone", "signal", "wait-gone", "verify", "launch", "watch",
)  # fmt: skip
TERM, LAUNCH = KINDS.index("signal"), KINDS.index("launch")
EVERY = [
    (step, moment, way)
    for step in range(len(KINDS))
    for moment in ("before", "after")
    for way in ("resume", "undo")
]
CHOSEN = [(1, "after", "undo"), (2, "after", "undo"), (6, "before", "resume"), (7, "after", "undo")]
CASES = EVERY if scale.SHARE >= 1 else CHOSEN


def named(case: tuple[int, str, str]) -> str:
    step, moment, way = case
    return f"{moment}-{step}-{KINDS[step]}-{way}"


@pytest.fixture
def serving(bundled: Command) -> Command:
    """A server that runs with one step of speculation."""
    ran = bundled("launch", "one", "--yes", "--wait", "--preset", "eagle3-1step")
    assert ran.code == 0, ran.err
    return bundled


def relaunch_until(command: Command, step: int, moment: str) -> subprocess.Popen[str]:
    """A relaunch with another preset that has come to this point and stands still there."""
    argv = [sys.executable, "-m", "tests.functional.cli.cut", str(step), moment]
    words = ["relaunch", "one", "--yes", "--wait", "--hosts", str(command.hosts)]
    console = subprocess.Popen(
        [*argv, *words], env=command.env, cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert console.stdout is not None
    for line in console.stdout:
        if line.strip() == "here":
            return console
    raise AssertionError(f"it ended before step {step}: {console.communicate()[1]}")


def plan_of(command: Command) -> str:
    (path,) = Path(command.env["SPECOPS_STATE_DIR"]).glob("journals/relaunch-*")
    return path.name.partition(".")[0]


def ended(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except ProcessLookupError:
        return True
    text = Path(f"/proc/{pid}/stat").read_text() if Path(f"/proc/{pid}").exists() else ") Z"
    return text.rpartition(")")[2].split()[0] in "ZX"


def watched(command: Command, *words: str) -> Any:
    ran = command("watch", "one", "--json", *words)
    assert ran.out, ran.err
    return ran.json


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_console_killed_in_a_relaunch(serving: Command, case: tuple[int, str, str]) -> None:
    step, moment, way = case
    before = state(serving)
    console = relaunch_until(serving, step, moment)
    plan = plan_of(serving)
    console.kill()
    console.communicate()
    signalled = step > TERM or (step == TERM and moment == "after")
    started = step > LAUNCH or (step == LAUNCH and moment == "after")
    if signalled:
        until(lambda: ended(before["pid"]))

    told = watched(serving)
    assert told["outcome"] == ("ready" if started or not signalled else "stopped"), told
    assert told["unfinished"]["plan_id"] == plan
    assert told["unfinished"]["under_way"] is False
    assert f"specops resume {plan}" in told["unfinished"]["detail"]
    if not signalled:
        assert state(serving)["pid"] == before["pid"]
    status = serving("status", "--json")
    (host,) = status.json["hosts"]
    left = KINDS.index("drain") < step < LAUNCH  # it is cut off in the middle of its changes
    if left:
        assert [(p["plan_id"], p["under_way"]) for p in host["unfinished"]] == [(plan, False)]
        assert status.code == 1
        assert f"specops resume {plan}" in serving("status").out

    ran = serving(way, plan, "--yes")
    assert ran.code == 0, ran.out + ran.err
    told = watched(serving)
    assert told["outcome"] == "ready"
    assert told["unfinished"] is None
    assert serving("status", "--json").json["hosts"][0]["unfinished"] == []
    after = state(serving)
    assert complete(after["port"]) > 0
    assert after["preset"] == ("eagle3-3step" if way == "resume" else "eagle3-1step")
    # What was never signalled is not restarted by taking the plan back.
    kept = way == "undo" and not signalled
    assert (after["pid"] == before["pid"]) is kept
    if way == "resume":
        assert serving("resume", plan, "--yes").code == 2  # there is nothing left of it


def test_a_start_that_another_console_is_about_to_make_is_waited_for(serving: Command) -> None:
    console = relaunch_until(serving, KINDS.index("verify"), "before")
    try:
        told = watched(serving, "--timeout", "2")
        assert told["outcome"] == "stalled"  # not "stopped": somebody is at work on it
        assert told["unfinished"]["under_way"] is True
        assert "under way" in told["unfinished"]["detail"]
    finally:
        console.kill()
        console.communicate()
    assert watched(serving)["outcome"] == "stopped"


def test_a_launch_taken_back_was_stopped_and_did_not_fail(bundled: Command) -> None:
    ran = bundled("launch", "one", "--yes", "--json")
    assert ran.code == 0, ran.err
    assert bundled("undo", ran.json["plan_id"], "--yes").code == 0
    told = watched(bundled)
    assert (told["outcome"], told["diagnosis"], told["unfinished"]) == ("stopped", None, None)
    (run,) = bundled("runs", "--json").json["hosts"][0]["runs"]
    assert run["outcome"] == "stopped"
