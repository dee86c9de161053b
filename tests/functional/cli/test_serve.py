"""What a start keeps to itself, whom it tells, and what it says while it is not ready."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.functional.cli.conftest import Command

SECRET = "key-5f2b1c-never-to-be-seen"


def holding(folder: Path, text: str) -> list[Path]:
    """The files below a folder that hold a text."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text.encode() in path.read_bytes()]


def test_without_a_terminal_and_without_yes_nothing_is_done(bundled: Command) -> None:
    for words in (("launch", "one"), ("relaunch", "one")):
        ran = bundled(*words, "--json")
        assert ran.code == 4
        assert ran.json["error"]["code"] == "refused"
    assert not list(bundled.folder.glob("state/runs/*"))
    assert bundled("relaunch", "one", "--yes", "--rollback").code == 2


def test_unknown_names_get_the_nearest_one(bundled: Command) -> None:
    ran = bundled("launch", "one", "--preset", "eagle3-3stp", "--yes", "--json")
    assert ran.code == 2
    assert "eagle3-3step" in ran.json["error"]["hint"]
    assert bundled("watch", "on", "--json").json["error"]["hint"]


@pytest.mark.server
def test_a_start_that_nobody_waits_for(bundled: Command) -> None:
    told = bundled.folder / "told"
    hook = bundled.folder / "hook"
    hook.write_text(f'#!/bin/sh\necho "$@" >> {told}\n')
    hook.chmod(0o700)
    text = bundled.hosts.read_text().replace("args: {", "args: {api-key: 'secret:ONE_KEY', ")
    bundled.write(text + f"notify: {{command: [{hook}]}}\n")
    no_value = bundled("launch", "one", "--yes", "--json")
    assert no_value.code == 2
    assert "secret:ONE_KEY" in no_value.json["error"]["message"]

    bundled.env["ONE_KEY"] = SECRET
    launched = bundled("launch", "one", "--yes", "--json")
    assert launched.code == 0, launched.err
    assert launched.json["outcome"] is None
    run = launched.json["run_id"]
    server = bundled("status", "--json").json["hosts"][0]["servers"][0]
    os.kill(server["pid"], signal.SIGSTOP)
    try:
        stalled = bundled("watch", "one", "--timeout", "1", "--json")
        assert (stalled.code, stalled.json["outcome"]) == (7, "stalled")
        assert stalled.json["run_id"] == run
    finally:
        os.kill(server["pid"], signal.SIGCONT)
    ready = bundled("watch", "one", "--json")
    assert (ready.code, ready.json["phase"]) == (0, "ready")
    assert not told.exists(), "only a command that was to wait tells how it went"

    again = bundled("relaunch", "one", "--wait", "--yes", "--json")
    assert again.code == 0, again.err
    assert again.json["warnings"] == [], "the completion was given the key"
    assert told.read_text() == "one ready\n"
    now = bundled("status", "--json").json["hosts"][0]["servers"][0]["pid"]
    environ = Path(f"/proc/{now}/environ").read_bytes()
    assert f"EAGLE3_API_KEY={SECRET}".encode() in environ
    assert SECRET.encode() not in Path(f"/proc/{now}/cmdline").read_bytes()
    assert holding(bundled.folder, SECRET) == []
    for ran in (launched, stalled, ready, again):
        assert SECRET not in ran.out + ran.err
