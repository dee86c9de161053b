"""A server's life through whole commands, on real processes of the bundled server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable

import pytest

from console.cli.output import duration
from eagle3 import weights
from tests.functional.cli.conftest import Command

pytestmark = pytest.mark.server


def state(specops: Command) -> dict[str, object]:
    found: dict[str, object] = specops("status", "--json").json["hosts"][0]["servers"][0]
    return found


def until(what: Callable[[], bool], bound_s: float = 30.0) -> None:
    end = time.monotonic() + bound_s
    while not what():
        assert time.monotonic() < end, "did not come about in time"
        time.sleep(0.1)


def complete(port: object) -> int:
    body = json.dumps({"prompt": "What is NCCL?", "max_tokens": 8}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        usage: int = json.load(answer)["usage"]["completion_tokens"]
        return usage


def test_launch_serve_relaunch_stop(bundled: Command) -> None:
    plan = bundled("launch", "one", "--dry-run", "--json")
    assert plan.code == 1
    assert [step["kind"] for step in plan.json["plan"]] == ["preflight", "launch", "watch"]
    assert state(bundled)["phase"] == "stopped"

    launched = bundled("launch", "one", "--yes", "--wait", "--json")
    assert launched.code == 0, launched.err
    document = launched.json
    assert document["outcome"] == "ready"
    assert document["diagnosis"] is None
    names = [phase["name"] for phase in document["phases"]]
    assert names.index("load_target") < names.index("load_draft") < names.index("ready")
    assert document["accept_length"] > 1.0

    (run,) = bundled("runs", "--json").json["hosts"][0]["runs"]
    assert document["start_s"] == run["start_s"]
    assert document["start_s"] == pytest.approx(sum(p["seconds"] for p in run["phases"]))
    told = bundled("watch", "one", "--json").json
    assert told["start_s"] == document["start_s"], "one start has one time, whoever tells it"
    said = f"one READY {duration(document['start_s'])} after its launch"
    assert said in bundled("watch", "one").out
    assert duration(document["start_s"]) in bundled("runs").out

    now = state(bundled)
    assert (now["phase"], now["health"], now["preset"]) == ("ready", "ok", "eagle3-3step")
    assert complete(now["port"]) > 0
    again = bundled("launch", "one", "--yes", "--wait")
    assert again.code == 6
    assert "runs already" in again.err

    relaunched = bundled("relaunch", "one", "--preset", "eagle3-1step", "--wait", "--yes", "--json")
    assert relaunched.code == 0, relaunched.err
    document = relaunched.json
    kinds = [step["kind"] for step in document["plan"]]
    order = ["preflight", "drain", "signal", "verify", "launch", "watch"]
    assert [kind for kind in dict.fromkeys(kinds) if kind in order] == order
    timings = document["timings"]
    waits = ["connect", "drain", "release", "engine_check", "server_start", "confirm", "other"]
    assert list(timings) == [f"{name}_s" for name in waits]
    assert sum(timings.values()) == pytest.approx(document["seconds"], abs=0.01)
    after = state(bundled)
    assert after["preset"] == "eagle3-1step"
    assert after["pid"] != now["pid"]
    assert complete(after["port"]) > 0
    assert bundled("watch", "one", "--json").json["outcome"] == "ready"

    stopped = bundled("stop", "one", "--yes", "--json")
    assert stopped.code == 0, stopped.err
    assert stopped.json["outcome"] == "stopped"
    assert state(bundled)["phase"] == "stopped"
    assert bundled("stop", "one", "--yes", "--json").json["outcome"] == "stopped"
    assert bundled("watch", "one").code == 1


@pytest.fixture
def short_draft(bundled: Command) -> Command:
    """A draft whose context is shorter than the target's, as in the incident."""
    draft = bundled.folder / "draft"
    shutil.copytree(weights.paths().draft, draft)
    config = json.loads((draft / "config.json").read_text())
    config["max_position_embeddings"] = 64
    (draft / "config.json").write_text(json.dumps(config))
    text = bundled.hosts.read_text()
    bundled.write(text.replace("engine: bundled,", f"engine: bundled, draft: {draft},"))
    return bundled


def test_a_launch_that_would_fail_is_refused_and_diagnosed_when_forced(
    bundled: Command, short_draft: Command
) -> None:
    ready = bundled.hosts.read_text()
    draft = str(bundled.folder / "draft")
    bundled.write(ready.replace(f" draft: {draft},", ""))
    assert bundled("launch", "one", "--yes", "--wait").code == 0
    before = state(bundled)
    bundled.write(ready)

    refused = bundled("relaunch", "one", "--yes", "--wait", "--json")
    assert refused.code == 5
    assert refused.json["outcome"] == "refused"
    errors = [f for f in refused.json["findings"] if f["severity"] == "error"]
    assert "64" in errors[0]["message"]
    assert "2048" in errors[0]["message"]
    assert state(bundled)["pid"] == before["pid"], "the running server was touched"

    forced = bundled("relaunch", "one", "--yes", "--wait", "--json", "--skip-preflight")
    assert forced.code == 6
    root = forced.json["diagnosis"]["root"]
    assert forced.json["outcome"] == "failed"
    assert root["type"] == "ValueError"
    assert root["file"].endswith(".py")
    assert root["line"] > 0
    watched = bundled("watch", "one", "--json")
    assert watched.code == 6
    assert watched.json["diagnosis"]["root"] == root


def test_an_orphan_goes_and_an_unrelated_process_stays(bundled: Command) -> None:
    assert bundled("launch", "one", "--yes", "--wait").code == 0
    running = state(bundled)
    launcher, run_id = running["pid"], str(running["run_id"])
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    try:
        os.kill(int(str(launcher)), signal.SIGKILL)
        zombies = bundled("zombies", "--quick", "--json")
        assert zombies.code == 1
        # The machine may hold orphans of others: those of this run say so in their evidence.
        found = [z for z in zombies.json["hosts"][0]["zombies"] if z["kind"] == "orphan"]
        mine = [z for z in found if any(run_id in line for line in z["evidence"])]
        assert mine
        assert all(z["evidence"] for z in mine)

        assert bundled("kill-zombies", "--kind", "orphan").code == 4
        dry = bundled("kill-zombies", "--kind", "orphan", "--quick", "--dry-run", "--json")
        assert dry.code == 1
        assert {t["process"]["pid"] for s in dry.json["plan"] for t in s["targets"]}

        killed = bundled("kill-zombies", "--kind", "orphan", "--quick", "--yes", "--json")
        assert killed.code == 0, killed.out + killed.err
        host = killed.json["hosts"][0]
        assert host["clean"] is True
        assert host["freed_mib"] > 50
        gone = {z["pid"] for z in host["killed"]}
        assert {z["pid"] for z in mine} <= gone
        assert bystander.pid not in gone
        assert bystander.poll() is None
        (run,) = bundled("runs", "--json").json["hosts"][0]["runs"]
        assert (run["outcome"], run["cleared"]) == ("failed", "killed")  # what it died of is kept
        assert "SIGKILL" in run["failure"]
    finally:
        bystander.kill()
        bystander.wait()


def test_a_failure_is_acknowledged_and_stays_in_the_records(
    bundled: Command, short_draft: Command
) -> None:
    assert bundled("launch", "one", "--yes", "--wait", "--skip-preflight").code == 6
    assert state(bundled)["phase"] == "failed"
    assert bundled("status").code == 1
    assert bundled("stop", "one", "--dry-run").code == 1
    seen = bundled("stop", "one", "--yes", "--json")
    assert seen.code == 0, seen.err
    assert seen.json["outcome"] == "stopped"
    assert [step["kind"] for step in seen.json["plan"]] == ["drain"]
    assert (state(bundled)["phase"], bundled("status").code) == ("stopped", 0)
    assert bundled("watch", "one").code == 1
    (run,) = bundled("runs", "--json").json["hosts"][0]["runs"]
    assert (run["outcome"], run["acknowledged"]) == ("failed", True)
    assert bundled("stop", "one", "--yes", "--json").json["plan"] == []

    report = bundled("report", "one", "--json")  # the newest run of a server
    assert report.code == 0, report.err
    assert run["run_id"] in report.json["written"]

    again = bundled("launch", "one", "--yes", "--wait", "--skip-preflight")
    assert again.code == 6
    assert state(bundled)["phase"] == "failed", "a new failure is news"


def test_a_taken_port_is_refused_before_anything_starts(bundled: Command) -> None:
    port = int(bundled.hosts.read_text().split(" port: ")[1].split(",")[0])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        ran = bundled("launch", "one", "--yes", "--wait", "--json")
        assert ran.code == 5
        assert str(port) in json.dumps(ran.json["findings"])
        forced = bundled("launch", "one", "--yes", "--wait", "--json", "--skip-preflight")
        assert forced.code == 6
        assert str(port) in forced.json["detail"]


def test_a_strangers_server_at_the_port_is_not_offered_to_be_ended(bundled: Command) -> None:
    assert bundled("launch", "one", "--yes", "--wait").code == 0
    before = state(bundled)
    folder = bundled.folder / "elsewhere"  # another operator's state: nothing here knows that run
    folder.mkdir(mode=0o700)
    other = Command(folder)
    other.write(bundled.hosts.read_text())
    ran = other("launch", "one", "--yes", "--json")
    assert ran.code == 6, ran.out
    error = ran.json["error"]
    assert f"not launched by specops: pid {before['pid']} of" in error["message"]
    assert f"specops adopt here {before['pid']}" in error["hint"]
    assert "relaunch" not in error["hint"]
    assert state(bundled)["pid"] == before["pid"]


def test_two_names_of_one_machine_are_not_two_nodes(specops: Command) -> None:
    specops.write(
        "hosts:\n  a: {transport: local}\n  b: {transport: local}\nservers:\n"
        f"  one: {{hosts: [a, b], engine: sglang, model: /m, python: {sys.executable}}}\n"
    )
    for action in ("launch", "relaunch"):
        ran = specops(action, "one", "--yes", "--wait", "--json")
        assert ran.code == 2, ran.out
        assert "a and b are the same machine" in ran.json["error"]["message"]
    assert not specops("runs", "--json").json["hosts"][0]["runs"]


def test_an_end_that_the_log_does_not_tell_is_diagnosed_all_the_same(bundled: Command) -> None:
    bundled.write(bundled.hosts.read_text().replace(", no-parent-death-signal: true", ""))
    assert bundled("launch", "one", "--yes", "--wait").code == 0
    assert bundled("diagnose", "one").code == 0
    pid = state(bundled)["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    until(lambda: state(bundled)["phase"] == "failed", 60)
    ran = bundled("diagnose", "one")
    assert ran.code == 1
    assert "killed by SIGKILL" in ran.out
    assert "killed by SIGKILL" in bundled("diagnose", "one", "--json").json["summary"]


def test_what_outlives_its_launcher_is_a_failed_server_to_every_command(bundled: Command) -> None:
    assert bundled("launch", "one", "--yes", "--wait").code == 0
    before = state(bundled)
    assert isinstance(before["pid"], int)
    os.kill(before["pid"], signal.SIGKILL)
    until(lambda: state(bundled)["phase"] == "failed", 60)
    left = state(bundled)
    assert left["pid"] is None
    assert "its launcher was killed by SIGKILL; pid " in str(left["note"])
    assert "left of it" in str(left["note"])
    shown = bundled("status")
    assert shown.code == 1
    assert "its launcher was killed by SIGKILL" in shown.out

    again = bundled("launch", "one", "--yes", "--wait")
    assert again.code == 6
    assert f"remains of run {before['run_id']}" in again.err
    assert "specops kill-zombies here" in again.err
    watched = bundled("watch", "one", "--json")
    assert watched.code == 6
    assert watched.json["outcome"] == "failed"
    assert "its launcher was killed by SIGKILL" in watched.json["detail"]
    assert "specops kill-zombies here" in watched.json["detail"]
    told = bundled("diagnose", "one")
    assert told.code == 1
    assert "killed by SIGKILL" in told.out
    (run,) = bundled("runs", "--json").json["hosts"][0]["runs"]
    assert (run["running"], run["remains"]) == (False, True)

    assert bundled("stop", "one", "--yes").code == 0
    assert state(bundled)["phase"] == "stopped"
    (run,) = bundled("runs", "--json").json["hosts"][0]["runs"]
    assert (run["outcome"], run["cleared"], run["remains"]) == ("failed", "stopped", False)
    assert "SIGKILL" in run["failure"]
    assert "failed (SIGKILL), rest stopped" in bundled("runs").out


def test_a_flag_that_the_server_refuses_is_told_once(bundled: Command) -> None:
    text = bundled.hosts.read_text()
    bundled.write(text.replace("args: {", "args: {no-such-flag: 1, "))
    assert bundled.hosts.read_text() != text
    forced = bundled("launch", "one", "--yes", "--wait", "--json", "--skip-preflight")
    assert forced.code == 6
    assert forced.json["diagnosis"]["category"] == "args-validation"
    assert "unrecognized arguments: --no-such-flag" in forced.json["detail"]
    assert forced.json["detail"].count("exited with code") == 1


def test_an_end_without_a_word_is_told_once(bundled: Command) -> None:
    python = bundled.folder / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *--port*) exit 3 ;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    bundled.write(
        bundled.hosts.read_text().replace("{host: here,", f"{{host: here, python: {python},")
    )
    forced = bundled("launch", "one", "--yes", "--wait", "--json", "--skip-preflight")
    assert forced.code == 6
    assert forced.json["detail"] == "failed; exited with code 3; its log tells no reason"
