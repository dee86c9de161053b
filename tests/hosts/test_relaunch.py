"""Servers of a real host relaunched over SSH: by a unit of its own, and by a transient one.

The two ways that a start is known to go wrong unseen, each refused before anything is stopped,
and, when it is forced, told with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle3 import weights
from tests.functional.cli.conftest import Command
from tests.rig.kept import ROOT
from tests.rig.nspawn import NspawnHost

pytestmark = [pytest.mark.hosts, pytest.mark.server]

PORT = 31_000
UNIT = "sglang-eagle3.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/specops.conf"


def unit_text(host: NspawnHost) -> str:
    """A unit as an operator writes one: the whole command line in it."""
    pair = weights.paths()
    return (
        "[Unit]\nDescription=a model server\n"
        f"[Service]\nEnvironment=PYTHONPATH={ROOT}\nWorkingDirectory=/\n"
        f"ExecStart={host.python} -m eagle3.launch_server --model-path {pair.target} \\\n"
        f"  --speculative-draft-model-path {pair.draft} --port {PORT} --max-running-requests 8 \\\n"
        "  --speculative-algorithm EAGLE3 --speculative-num-steps 1 \\\n"
        "  --speculative-eagle-topk 1 --speculative-num-draft-tokens 2\n"
    )


class Box:
    """A command whose hosts.yaml has one test host with one server ``k26``."""

    def __init__(self, command: Command, host: NspawnHost) -> None:
        self.command = command
        self.host = host

    def configure(self, server: str) -> None:
        """Write hosts.yaml with these keys of the server."""
        self.command.write(
            f"hosts:\n  box: {{address: {self.host.address}, python: {self.host.python},\n"
            f"        identity_files: [{self.host.key.path}],\n"
            f"        known_hosts: {self.host.known_hosts}}}\n"
            f"servers:\n  k26: {{host: box, engine: bundled, port: {PORT}, {server}}}\n"
        )

    def __call__(self, *words: str, code: int) -> Any:
        """Run a command with ``--json`` that is to end with this code; returns its document."""
        ran = self.command(*words, "--json")
        assert ran.code == code, ran.out + ran.err
        return ran.json

    def pid(self) -> int:
        """The server's process as the console sees it."""
        pid: int = self("status", code=0)["hosts"][0]["servers"][0]["pid"]
        return pid


@pytest.fixture
def box(tmp_path: Path, python_host: NspawnHost) -> Iterator[Box]:
    tmp_path.chmod(0o700)
    command = Command(tmp_path)
    yield Box(command, python_host)
    command("stop", "k26", "--yes", "--timeout", "2")


def refused_then_forced(box: Box, rule: str, *more: str) -> Any:
    """The relaunch is refused with the server untouched; forced, it fails and says why."""
    before = box.pid()
    refused = box("relaunch", "k26", "--wait", "--yes", code=5)
    assert refused["seconds"] < 5.0
    assert refused["outcome"] == "refused"
    errors = [f["rule"] for f in refused["findings"] if f["severity"] == "error"]
    assert rule in errors
    assert box.pid() == before, "the running server was touched"
    words = ("relaunch", "k26", "--wait", "--yes", "--skip-preflight", *more)
    forced = box(*words, code=6)
    assert forced["outcome"] == "failed"
    return forced


def test_a_unit_is_relaunched_refused_forced_and_undone(box: Box) -> None:
    box.host.write(f"/etc/systemd/system/{UNIT}", unit_text(box.host))
    box.host.run(["systemctl", "daemon-reload"])
    box.configure(f"runner: {{systemd: {UNIT}}}")
    first = box("launch", "k26", "--wait", "--yes", code=0)
    assert first["outcome"] == "ready"
    main = box.host.run(["systemctl", "show", "--value", "-p", "MainPID", UNIT])
    assert box.pid() == int(main.stdout)

    box.configure(f"runner: {{systemd: {UNIT}}}, speculative: eagle3-3step")
    second = box("relaunch", "k26", "--wait", "--yes", code=0)
    kinds = [step["kind"] for step in second["plan"]]
    assert kinds[:3] == ["preflight", "drain", "stop-unit"]
    assert kinds[-3:] == ["write-unit", "start-unit", "watch"]
    good = box.host.read(DROP_IN)
    assert b"--speculative-num-steps 3" in good

    box.configure(
        f"runner: {{systemd: {UNIT}}}, args: {{speculative-num-steps: false,\n"
        "        speculative-num-draft-tokens: false, speculative-eagle-topk: 4}"
    )
    forced = refused_then_forced(box, "spec-partial")
    root = forced["diagnosis"]["root"]
    assert root["type"] == "AssertionError"
    assert forced["diagnosis"]["category"] == "args-validation"
    assert box("watch", "k26", code=6)["diagnosis"]["root"] == root

    box("undo", forced["plan_id"], "--yes", code=0)
    assert box.host.read(DROP_IN) == good
    back = box("watch", "k26", code=0)
    assert back["run_id"] == second["run_id"], "the run that was stopped is back as it was"


def test_a_server_in_a_unit_of_its_own_is_relaunched_refused_and_forced(box: Box) -> None:
    box.configure(f"speculative: eagle3-3step, env: {{PYTHONPATH: {ROOT}}}")
    first = box("launch", "k26", "--wait", "--yes", code=0)
    cgroup = box.host.read(f"/proc/{box.pid()}/cgroup").decode()
    assert f"specops-{first['run_id']}.service" in cgroup

    box.host.copy_in(weights.paths().draft, "/root/draft")
    config = json.loads(box.host.read("/root/draft/config.json"))
    config["max_position_embeddings"] = 64
    box.host.write("/root/draft/config.json", json.dumps(config))
    box.configure(f"speculative: eagle3-3step, draft: /root/draft, env: {{PYTHONPATH: {ROOT}}}")
    forced = refused_then_forced(box, "draft-context", "--rollback")
    assert forced["diagnosis"]["root"]["type"] == "ValueError"
    assert "64" in forced["diagnosis"]["root"]["message"]
    assert forced["rollback"]["outcome"] == "ready"
    assert forced["rollback"]["to_run"] == first["run_id"]
    assert box("watch", "k26", code=0)["phase"] == "ready"
