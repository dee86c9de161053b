"""A server in a container of a real docker: launched, relaunched, failed, taken back, stopped.

The daemon is the test's own, with its own socket and data; the image is empty and the programs of
this machine are mounted into it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import site
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle3 import weights
from tests.functional.cli.conftest import Command, free_port

pytestmark = [pytest.mark.hosts, pytest.mark.server]
ROOT = Path(__file__).parents[2]
IMAGE = "specops-test:v0"
BOUND_S = 60.0


def missing() -> str | None:
    if os.geteuid() != 0:
        return "docker's daemon needs root"
    names = ("dockerd", "docker", "containerd", "runc")
    lacking = [n for n in names if shutil.which(n, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    return f"no {', '.join(lacking)} here: apt-get install docker.io" if lacking else None


class Docker:
    """A daemon of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/d.sock"
        self.log = folder / "dockerd.log"
        dockerd = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin") or "dockerd"
        argv = [
            dockerd, f"--data-root={folder}/data", f"--exec-root={folder}/exec",
            f"--host={self.host}", f"--pidfile={folder}/pid", "--iptables=false",
            "--ip6tables=false", "--bridge=none", "--storage-driver=vfs",
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        end = time.monotonic() + BOUND_S
        while self.run("version", check=False).returncode != 0:
            assert time.monotonic() < end, self.log.read_text()[-2000:]
            if self.process.poll() is not None:
                pytest.skip(f"dockerd does not start here: {self.log.read_text()[-300:]}")
            time.sleep(0.2)
        self.run("import", "-", IMAGE, stdin=empty_image())

    def run(
        self, *words: str, stdin: bytes = b"", check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["docker", "--host", self.host, *words],
            input=stdin, capture_output=True, check=check, timeout=BOUND_S,
        )  # fmt: skip

    def inspect(self, name: str) -> Any:
        return json.loads(self.run("inspect", name).stdout)[0]

    def close(self) -> None:
        names = self.run("ps", "--all", "--quiet", check=False).stdout.decode().split()
        if names:
            self.run("rm", "--force", *names, check=False)
        self.process.terminate()
        self.process.wait(BOUND_S)
        # What the daemon mounted for itself outlives it, and no folder with a mount can be removed.
        held = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in sorted((p for p in held if p.startswith(str(self.folder))), reverse=True):
            subprocess.run(["umount", "--lazy", place], check=False, timeout=BOUND_S)


def empty_image() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("tmp", "proc", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
    return out.getvalue()


def mounts() -> list[str]:
    """Options that show this machine's programs to a container, read-only."""
    wanted = ["/usr", "/lib", "/lib64", "/bin", "/etc", sys.base_prefix, sys.prefix, str(ROOT)]
    wanted += [*site.getsitepackages(), *(p for p in sys.path if p.endswith("site-packages"))]
    found = dict.fromkeys(path for path in wanted if Path(path).is_dir())
    return [f"--volume={path}:{path}:ro" for path in found]


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    daemon = Docker(tmp_path_factory.mktemp("docker"))
    yield daemon
    daemon.close()


class Box:
    """Commands against one server ``one`` in container ``sg``."""

    def __init__(self, command: Command, docker: Docker) -> None:
        self.command = command
        self.docker = docker
        self.port = free_port()
        command.env |= {"DOCKER_HOST": docker.host}
        self.configure()

    def configure(self, *, image: str = IMAGE, draft: Path | None = None) -> None:
        pair = weights.paths()
        options = json.dumps([*mounts(), f"--workdir={ROOT}", *self.drafts(draft)])
        self.command.write(
            "hosts:\n  here: {transport: local}\nservers:\n"
            f"  one:\n    host: here\n    engine: bundled\n    port: {self.port}\n"
            f"    python: {sys.executable}\n    model: {pair.target}\n"
            f"    draft: {draft or pair.draft}\n    speculative: eagle3-3step\n"
            f"    env: {{PYTHONPATH: {ROOT}}}\n    args: {{max-running-requests: 8}}\n"
            f"    runner: {{docker: sg, image: {image}, options: {options}}}\n"
        )

    @staticmethod
    def drafts(draft: Path | None) -> list[str]:
        return [] if draft is None else [f"--volume={draft}:{draft}:ro"]

    def __call__(self, *words: str, code: int = 0) -> Any:
        ran = self.command(*words, "--json")
        shown = {key: ran.json[key] for key in ("detail", "error") if key in ran.json}
        assert ran.code == code, f"{shown} {ran.err[-2000:]}"
        return ran.json

    def server(self) -> Any:
        # Its exit code tells of the whole machine, where others may have left something.
        return self.command("status", "--json").json["hosts"][0]["servers"][0]


@pytest.fixture
def box(docker: Docker, tmp_path: Path) -> Iterator[Box]:
    tmp_path.chmod(0o700)
    yield Box(Command(tmp_path), docker)
    docker.run("rm", "--force", "sg", check=False)


def test_a_container_is_made_made_anew_fails_and_comes_back(box: Box, tmp_path: Path) -> None:
    plan = box("launch", "one", "--dry-run", code=1)["plan"]
    assert [step["kind"] for step in plan] == ["preflight", "start-container", "watch"]
    first = box("launch", "one", "--yes", "--wait")
    assert first["outcome"] == "ready"
    names = [phase["name"] for phase in first["phases"]]
    assert names.index("load_target") < names.index("load_draft") < names.index("ready")
    made = box.docker.inspect("sg")
    assert made["Config"]["Labels"]["specops.run"] == first["run_id"]
    assert box.server()["pid"] == made["State"]["Pid"]

    second = box("relaunch", "one", "--yes", "--wait", "--preset", "eagle3-1step")
    assert second["outcome"] == "ready"
    anew = box.docker.inspect("sg")
    assert anew["Id"] != made["Id"]
    assert anew["Args"][anew["Args"].index("--speculative-num-steps") + 1] == "1"
    assert box.server()["preset"] == "eagle3-1step"

    draft = tmp_path / "draft"
    shutil.copytree(weights.paths().draft, draft)
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 64}))
    box.configure(draft=draft)
    forced = box("relaunch", "one", "--yes", "--wait", "--skip-preflight", code=6)
    assert forced["outcome"] == "failed"
    assert forced["diagnosis"]["root"]["type"] == "ValueError"
    assert "64" in forced["diagnosis"]["root"]["message"]
    state = box.docker.inspect("sg")["State"]
    assert f"exited with code {state['ExitCode']}" in forced["detail"]
    assert box("watch", "one", code=6)["diagnosis"]["root"] == forced["diagnosis"]["root"]

    box("undo", forced["plan_id"], "--yes")
    assert box("watch", "one")["outcome"] == "ready"
    assert box.server()["preset"] == "eagle3-1step"
    assert box("stop", "one", "--yes")["outcome"] == "stopped"
    assert not box.docker.inspect("sg")["State"]["Running"]
    assert box("watch", "one", code=1)["outcome"] == "stopped"


def test_a_container_that_fails_is_rolled_back_to_the_run_that_served(
    box: Box, tmp_path: Path
) -> None:
    first = box("launch", "one", "--yes", "--wait")
    good = box.docker.inspect("sg")
    draft = tmp_path / "draft"
    shutil.copytree(weights.paths().draft, draft)
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 64}))
    box.configure(draft=draft)
    words = ("relaunch", "one", "--yes", "--wait", "--skip-preflight", "--rollback")
    failed = box(*words, "--preset", "eagle3-1step", code=6)
    assert failed["outcome"] == "failed"
    assert failed["diagnosis"]["root"]["type"] == "ValueError"
    assert failed["rollback"]["outcome"] == "ready"
    assert failed["rollback"]["to_run"] == first["run_id"]

    back = box.docker.inspect("sg")
    assert back["Id"] != good["Id"], "made anew from its image"
    assert back["State"]["Running"]
    assert back["Args"] == good["Args"], "as it was, the draft and the preset too"
    binds = (set(one["HostConfig"]["Binds"]) for one in (back, good))
    assert next(binds) == next(binds)
    label = back["Config"]["Labels"]["specops.run"]
    assert label not in (first["run_id"], failed["run_id"]), "a run of its own"
    watched = box("watch", "one")
    assert (watched["outcome"], watched["run_id"]) == ("ready", label)
    assert box.server()["preset"] == "eagle3-3step"


def test_an_image_that_is_not_there_is_said_before_anything_is_stopped(box: Box) -> None:
    box.configure(image="specops-test:not-there")
    error = box("relaunch", "one", "--yes", "--wait", code=6)["error"]
    assert "specops-test:not-there" in error["message"]
    assert error["hint"] == "docker pull specops-test:not-there"


def test_what_docker_refuses_is_said_in_its_words(box: Box) -> None:
    text = box.command.hosts.read_text()
    box.command.write(text.replace("options: [", 'options: ["--no-such-option", '))
    ran = box("launch", "one", "--yes", "--wait", "--skip-preflight", code=6)
    assert "exit 125" in ran["detail"]
    assert "no-such-option" in ran["detail"]
    assert box("watch", "one", code=6)["outcome"] == "failed"
    box.command.write(text.replace(f"python: {sys.executable}", "python: /no/such/python"))
    ran = box("launch", "one", "--yes", "--wait", "--skip-preflight", code=6)
    assert "exit 127" in ran["detail"]
    assert "/no/such/python" in ran["detail"]


def test_a_strangers_container_is_left_alone(box: Box) -> None:
    words = ("run", "--detach", "--name=sg", "--network=none", *mounts(), IMAGE, "/bin/true")
    box.docker.run(*words)
    box.docker.run("wait", "sg")
    before = box.docker.inspect("sg")["Id"]
    ran = box("launch", "one", "--yes", "--wait", code=4)
    assert "not made" in ran["detail"]
    assert box.docker.inspect("sg")["Id"] == before
