"""Whole commands over a real sshd: the loop past a noisy login, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.model import Host, Target
from console.remote import LogSource
from console.session import Headless, connect
from tests.functional.cli.conftest import Command
from tests.proxy import Proxy
from tests.rig.kept import ROOT
from tests.rig.sshd import LoopbackSshd, free_port

pytestmark = pytest.mark.hosts
SshdFactory = Callable[..., LoopbackSshd]

NOISE = b"Welcome!\n\x1b]52;c;AAAA\x07\xff\xfe\r\n" + b"* motd *\n" * 200


def keys_of(server: LoopbackSshd, **more: object) -> str:
    """The host's keys for hosts.yaml."""
    keys = {
        "address": server.address, "port": server.port, "user": server.user,
        "python": sys.executable, "identity_files": [str(server.key.path)],
        "known_hosts": str(server.known_hosts), **more,
    }  # fmt: skip
    return json.dumps(keys)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """``specops`` with no key, agent or known_hosts of whoever runs the tests."""
    tmp_path.chmod(0o700)
    command = Command(tmp_path)
    command.env["HOME"] = str(tmp_path)
    command.env.pop("SSH_AUTH_SOCK", None)
    return command


@pytest.fixture
def noisy(command: Command, sshd_factory: SshdFactory) -> Iterator[tuple[Command, int]]:
    """A server ``one`` on a host whose login prints what no program expects; and its port."""
    port = free_port()
    command.write(
        f"hosts:\n  box: {keys_of(sshd_factory(noise=NOISE))}\nservers:\n"
        f"  one: {{host: box, engine: bundled, port: {port}, speculative: eagle3-3step,\n"
        f"        args: {{max-running-requests: 8}}, env: {{PYTHONPATH: {ROOT}}}}}\n"
    )
    yield command, port
    command("stop", "one", "--yes")


def answer_of(port: int) -> str:
    """What the server answers to a question."""
    question = {"messages": [{"role": "user", "content": "What is NCCL?"}], "max_tokens": 8}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(question).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        text: str = json.load(reply)["choices"][0]["message"]["content"]
    return text


@pytest.mark.server
def test_the_loop_past_a_noisy_login(noisy: tuple[Command, int]) -> None:
    command, port = noisy
    first = command("launch", "one", "--wait", "--yes", "--json")
    assert first.code == 0, first.err
    assert first.json["outcome"] == "ready"
    assert answer_of(port)
    second = command("relaunch", "one", "--preset", "eagle3-1step", "--wait", "--yes", "--json")
    assert second.code == 0, second.err
    assert second.json["outcome"] == "ready"
    assert answer_of(port)
    log = command("logs", "one", "--json")
    assert log.code == 0
    assert any("fired up" in line["text"] for line in log.json["lines"])
    assert command("stop", "one", "--yes", "--json").json["outcome"] == "stopped"
    assert command("status", "--json").json["hosts"][0]["servers"][0]["pid"] is None


WRONG = {
    "changed-key": ("auth-failed", "host key has changed", "ssh-keygen -f"),
    "unknown-key": ("auth-failed", "unknown host key", "known_hosts"),
    "other-login": ("auth-failed", "was refused", "ssh-add"),
    "down": ("unreachable", "refused the connection", "sshd"),
    "no-python": ("no-agent", "no python on this host", "python:"),
}


def wrong_host(what: str, server: LoopbackSshd, other: LoopbackSshd, folder: Path) -> str:
    """The keys of a host with which this is wrong."""
    if what == "changed-key":
        known = folder / "changed"
        known.write_text(other.host_key.known_hosts_line(server.address, server.port))
        return keys_of(server, known_hosts=str(known))
    if what == "unknown-key":
        (folder / "empty").write_text("")
        return keys_of(server, known_hosts=str(folder / "empty"))
    if what == "other-login":
        return keys_of(server, identity_files=[str(other.key.path)])
    if what == "down":
        return keys_of(server, port=free_port())
    return keys_of(server, python="/no/such/python3")


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_host_is_one_line_and_exit_3(
    what: str, command: Command, sshd_factory: SshdFactory
) -> None:
    server, other = sshd_factory(), sshd_factory()
    command.write(
        f"hosts:\n  box: {wrong_host(what, server, other, command.folder)}\n"
        f"servers:\n  one: {{host: box, engine: bundled, port: {free_port()}}}\n"
    )
    state, said, todo = WRONG[what]
    seen = command("status", "--json")
    assert seen.code == 3
    assert seen.json["hosts"][0]["state"] == state
    for words in (("launch", "one", "--yes"), ("stop", "one", "--yes"), ("watch", "one")):
        ran = command(*words)
        assert ran.code == 3, ran.err
        assert len(ran.err.splitlines()) == 1, ran.err
        assert said in ran.err
        assert todo in ran.err
    killed = command("kill-zombies", "--yes", "--json")
    assert killed.code == 3
    assert killed.json["hosts"][0]["clean"] is False
    assert said in killed.json["hosts"][0]["error"]


@pytest.fixture
async def flooded(
    loopback_sshd: LoopbackSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Host, Proxy]]:
    """A host behind a link of 1 Mbit/s, and the link."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    async with Proxy(loopback_sshd.address, loopback_sshd.port) as proxy:
        known = tmp_path / "known"
        known.write_text(loopback_sshd.host_key.known_hosts_line(proxy.address, proxy.port))
        host = Host(
            "box", address=proxy.address, user=loopback_sshd.user, python=sys.executable,
            identity_files=(str(loopback_sshd.key.path),), known_hosts=str(known),
        )  # fmt: skip
        yield replace(host, port=proxy.port), proxy


async def test_a_kill_is_not_delayed_by_a_flooded_link(
    flooded: tuple[Host, Proxy], tmp_path: Path
) -> None:
    """A log written at ten times the link's 1 Mbit/s: 40 kills, each within a second."""
    host, proxy = flooded
    session = await connect(host, hosts={}, prompts=Headless())
    sleepers = [await asyncio.create_subprocess_exec("sleep", "120") for _ in range(40)]
    snapshot = await session.snapshot(full=True)
    mine = {child.pid for child in sleepers}
    targets = [Target(p.id, p.uid, p.user, p.title) for p in snapshot.processes if p.id.pid in mine]
    assert len(targets) == len(sleepers)
    log = tmp_path / "log"
    log.write_bytes(b"x\n")
    proxy.both(bytes_per_s=125_000)

    async def read() -> None:
        async for _ in session.tail(LogSource(path=str(log))):
            pass

    async def write() -> None:
        with log.open("ab") as target:
            while True:
                target.write(b"y" * 125_000 + b"\n")
                target.flush()
                await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
    await asyncio.sleep(3)
    took = []
    for target in targets:
        begun = time.monotonic()
        (result,) = await session.signal([target], "KILL")
        took.append(time.monotonic() - begun)
        assert result.outcome == "signalled", result
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for child in sleepers:
        assert await asyncio.wait_for(child.wait(), 10) == -9
    proxy.both(bytes_per_s=None)
    await session.close()
    print(f"kill on a flooded link: median {statistics.median(took):.3f} s, max {max(took):.3f} s")
    assert max(took) <= 1.0
