"""``specops adopt``: a process started by hand, described and never touched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import yaml

from console.cli.adopt import launcher, what_it_is
from console.errors import Refused, UsageError
from console.model import (
    Host,
    HostState,
    HostView,
    Process,
    ProcessId,
    Snapshot,
    Zombie,
    ZombieKind,
)
from tests.functional.cli.conftest import Command, free_port

FLAGS = (
    "--tp 2 --api-key sk-not-to-be-written --speculative-algorithm EAGLE3 "
    "--speculative-draft-model-path /d --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4"
)


@pytest.fixture
def by_hand(specops: Command) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process with an engine's command line, variables and log."""
    package = specops.folder / "lib" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(
        "import time\nprint('up', flush=True)\ntime.sleep(90)"
    )
    port = free_port()
    log = specops.folder / "hand.log"
    argv = f"-m sglang.launch_server --model-path /m/Big-Model --port {port} {FLAGS}"
    env = {**os.environ, "PYTHONPATH": str(package.parent), "NCCL_PROTO": "LL"}
    env.pop("SPECOPS_RUN_ID", None)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *argv.split()], env=env, stdout=out, stderr=out, cwd=specops.folder
        )
    while not log.read_bytes():
        assert process.poll() is None
        time.sleep(0.02)
    yield process, port
    process.kill()
    process.wait()


def test_a_server_started_by_hand_becomes_a_managed_one(
    specops: Command, by_hand: tuple[subprocess.Popen[bytes], int]
) -> None:
    process, port = by_hand
    specops.write("# ours\nhosts:\n  here: {transport: local}  # this one\n")
    before = specops.hosts.read_text()
    pid = str(process.pid)
    hosts = ("--hosts", str(specops.hosts))
    shown = specops("adopt", "here", pid, "--dry-run", "--json", *hosts)
    assert shown.code == 1, shown.err
    assert specops("adopt", "here", pid, *hosts).code == 4  # nobody said yes
    assert specops.hosts.read_text() == before
    assert not (specops.folder / "presets").exists()

    done = specops("adopt", "here", pid, "--yes", "--json", *hosts)
    assert done.code == 0, done.err
    assert done.json["entry"] == shown.json["entry"]
    text = specops.hosts.read_text()
    assert text.startswith(before)  # comments and all
    entry = yaml.safe_load(text)["servers"]["Big-Model"]
    assert entry["port"] == port
    assert entry["speculative"] == "eagle3-3step"  # the flags are those of a shipped preset
    assert entry["nccl"] == "Big-Model"  # no known one fits
    assert entry["args"] == {"tp-size": 2, "api-key": "secret:API_KEY"}
    assert entry["log"] == str(specops.folder / "hand.log")
    written = [p for p in specops.folder.rglob("*") if p.is_file() and "lib" not in p.parts]
    assert not [p for p in written if b"sk-not-to-be-written" in p.read_bytes()]
    assert specops("config", "validate", *hosts).code == 0

    runs = specops("runs", "--json", *hosts).json["hosts"][0]["runs"]
    assert [(r["server"], r["adopted"], r["running"]) for r in runs] == [("Big-Model", True, True)]
    assert process.poll() is None
    again = specops("adopt", "here", pid, "--yes", "--json", *hosts)
    assert again.code == 2
    assert "already" in again.json["error"]["message"]


def test_the_shipped_hosts_file_is_not_written(
    specops: Command, by_hand: tuple[subprocess.Popen[bytes], int]
) -> None:
    ran = specops("adopt", "demo", str(by_hand[0].pid), "--demo", "--yes", "--json")
    assert ran.code == 2
    assert "config init" in ran.json["error"]["hint"]


def test_what_is_no_server_is_refused(specops: Command) -> None:
    ran = specops("adopt", "here", str(os.getpid()), "--yes", "--json", "--hosts", "hosts.yaml")
    assert ran.code == 2
    assert "no model server" in ran.json["error"]["message"]


def process(pid: int, ppid: int, *argv: str, uid: int = 1000) -> Process:
    return Process(ProcessId(pid, pid, "b"), ppid, pid, pid, uid, "ann", "S", argv[0], argv)


SERVER = ("python3", "-m", "sglang.launch_server", "--model-path", "/m")


def test_a_worker_leads_to_its_launcher() -> None:
    seen = Snapshot(
        "b", 0.0, 1000, (process(10, 1, *SERVER), process(11, 10, "sglang::scheduler_TP0"))
    )
    assert launcher(seen, 11, 1000, "here").id.pid == 10


def test_a_wrapper_leads_to_the_launcher_in_it() -> None:
    words = ("python3", "-m", "sglang.launch_server", "--model-path", "/m")
    wrapper, top = process(9, 1, "timeout", "600", *words), process(10, 9, *words)
    seen = Snapshot("b", 1.0, 1000, (wrapper, top, process(11, 10, "sglang::scheduler")))
    for pid in (9, 10, 11):
        assert launcher(seen, pid, 1000, "here").id.pid == 10


def test_another_users_server_and_an_orphan_are_not_adopted() -> None:
    seen = Snapshot(
        "b", 0.0, 1000, (process(10, 1, *SERVER), process(11, 1, "sglang::scheduler_TP0"))
    )
    with pytest.raises(Refused, match="belongs to ann"):
        launcher(seen, 10, 1001, "here")
    with pytest.raises(UsageError, match="has lost the process that started it"):
        launcher(seen, 11, 1000, "here")
    with pytest.raises(UsageError, match="no process 12"):
        launcher(seen, 12, 1000, "here")


def test_a_server_started_by_hand_is_in_the_status(
    specops: Command, by_hand: tuple[subprocess.Popen[bytes], int]
) -> None:
    server, port = by_hand
    told = specops("status", "--json").json["hosts"][0]["unlisted"]
    assert port in [one["port"] for one in told if one["pid"] == server.pid]
    hint = f"pid {server.pid} of "
    line = next(line for line in specops("status").out.splitlines() if hint in line)
    assert f"(specops adopt here {server.pid})" in line


def test_a_rank_that_is_no_zombie_is_not_called_one(specops: Command) -> None:
    script = "(exec -a eagle3::scheduler sleep 180) & echo $!; wait"  # its parent lives
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            zombies = specops("zombies", "--quick", "--json").json["hosts"][0]["zombies"]
            assert pid not in {zombie["pid"] for zombie in zombies}
            ran = specops("adopt", "here", str(pid))
        finally:
            os.kill(pid, 9)
    assert ran.code == 2
    assert f"process {pid} has lost the process that started it" in ran.err
    assert "it is no zombie" in ran.err
    assert f"specops kill-zombies here --named {pid}" in ran.err


def test_a_process_below_a_zombie_belongs_to_it() -> None:
    rank, helper = process(11, 1, "sglang::scheduler_TP0"), process(12, 11, "sglang::helper")
    view = HostView(Host("h"), HostState.OK, snapshot=Snapshot("b", 0.0, 0, (rank, helper)))
    orphan = Zombie(
        "o11", ZombieKind.ORPHAN, 11, rank.id, None, "ann", 0.9, ("alone",), killable=True
    )
    found = replace(view, zombies=(orphan,))
    for one in (rank, helper):
        assert what_it_is(found, one) == "it is a zombie (orphan): specops kill-zombies h"
    young = replace(orphan, killable=False, why_not="score 0.40 is below 0.80")
    said = what_it_is(replace(view, zombies=(young,)), helper)
    assert "kill-zombies h --named 12" in said
    assert "score 0.40" in said
    assert what_it_is(view, rank).startswith("it is no zombie")
