"""Servers hang for real: SGLang's processes in several ways, and the bundled server.

In one file, so that one worker runs them in turn: each looks for the hung servers of this machine,
and one of them ends all that it finds.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.conftest import Command, free_port
from tests.rig.kept import ROOT

pytestmark = pytest.mark.timeout(400)
IMITATION = ROOT / "tests" / "trouble" / "imitation"
NO_METRICS = {"enable-metrics": "false"}
HANGS: dict[str, tuple[signal.Signals, dict[str, str], dict[str, str]]] = {
    "stopped": (signal.SIGSTOP, {}, {}),
    "waiting": (signal.SIGUSR1, {}, {}),
    "uncounted": (signal.SIGSTOP, NO_METRICS, {}),
    "blind": (signal.SIGUSR1, NO_METRICS, {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}),
}
"""Server to what its scheduler gets, its flags and its variables.

``blind``: its /health says 200 all the same.
"""
HEALTHY = "healthy"


def entry(flags: Mapping[str, str], env: Mapping[str, str]) -> str:
    """A server's keys in hosts.yaml."""
    every = {"PYTHONPATH": f"{IMITATION}:{ROOT}", **env}
    args = ", ".join(f"{name}: {value}" for name, value in {"tp-size": "1", **flags}.items())
    words = ", ".join(f'{name}: "{value}"' for name, value in every.items())
    return (
        f"{{host: here, engine: sglang, model: /models/a-target, port: {free_port()}, "
        f"args: {{{args}}}, env: {{{words}}}}}"
    )


@pytest.fixture
def servers(specops: Command) -> Iterator[Command]:
    """All of them serving."""
    rows = {name: entry(flags, env) for name, (_, flags, env) in HANGS.items()}
    rows[HEALTHY] = entry({}, {})
    lines = "".join(f"  {name}: {row}\n" for name, row in rows.items())
    host = f"  here: {{transport: local, python: {sys.executable}}}\n"
    specops.write(f"hosts:\n{host}servers:\n{lines}")
    try:
        for name in rows:
            done = specops("launch", name, "--yes", "--skip-preflight", "--json")
            assert done.code == 0, (done.out, done.err)
        for name in rows:
            done = specops("watch", name, "--json")
            assert done.code == 0, (done.out, done.err)
        yield specops
    finally:
        for name in rows:
            specops("stop", name, "--yes")


def family(run_id: str) -> dict[str, int]:
    """Title to pid of a run's processes."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"SPECOPS_RUN_ID={run_id}".encode() in (folder / "environ").read_bytes():
                title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").strip().decode()
                found[title] = int(folder.name)
        except OSError:
            continue
    return found


def here(document: Any) -> Any:
    """The one host."""
    return document["hosts"][0]


def test_hung_servers_are_found_and_ended_by_one_command_each(servers: Command) -> None:
    seen = {row["name"]: row for row in here(servers("status", "--json").json)["servers"]}
    families = {name: family(row["run_id"]) for name, row in seen.items()}
    for name, (how, _, _) in HANGS.items():
        os.kill(families[name]["sglang::scheduler"], how)

    began = time.monotonic()
    found = servers("zombies", "--json")
    took = time.monotonic() - began
    hung = {z["pid"]: z for z in here(found.json)["zombies"] if z["kind"] == "hung"}
    assert set(hung) == {seen[name]["pid"] for name in HANGS}, found.out
    for zombie in hung.values():
        assert any("/health_generate no answer in" in line for line in zombie["evidence"])
        assert any("log silent for" in line for line in zombie["evidence"])
        # Half a minute was looked at; what is still waited for is said.
        assert zombie["killable"] or "watched for" in zombie["why_not"], zombie
    print(f"zombies: {took:.1f} s", *(z["why_not"] for z in hung.values()), sep="\n  ")

    spy = servers.folder / "py-spy"
    spy.write_text('#!/bin/sh\n[ "$1" = dump ] && echo "Thread of $3 in wait_for_peer"; exit 0\n')
    spy.chmod(0o755)
    servers.env["PATH"] = f"{servers.folder}:{servers.env['PATH']}"
    began = time.monotonic()
    words = ("kill-zombies", "--kind", "hung", "--dump", "--yes", "--json")
    killed = servers(*words, bound_s=240)
    print(f"kill-zombies: {time.monotonic() - began:.1f} s", killed.out, sep="\n")
    assert killed.code == 0, (killed.out, killed.err)
    assert {z["pid"] for z in here(killed.json)["killed"]} == set(hung)
    assert here(killed.json)["clean"]
    texts = [Path(path).read_text() for path in here(killed.json)["dumps"]]
    assert len(texts) == len(HANGS), "one file for each server"
    for name in HANGS:
        scheduler = families[name]["sglang::scheduler"]
        assert any(f"Thread of {scheduler} in wait_for_peer" in text for text in texts)
    left = {name: family(seen[name]["run_id"]) for name in HANGS}
    assert left == {name: {} for name in HANGS}

    assert family(seen[HEALTHY]["run_id"]) == families[HEALTHY]
    url = f"http://127.0.0.1:{seen[HEALTHY]['port']}/health_generate"
    assert urllib.request.urlopen(url, timeout=30).status == 200


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


@pytest.mark.server
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

    spy = bundled.folder / "py-spy"
    spy.write_text('#!/bin/sh\n[ "$1" = dump ] && echo "Thread of $3"; exit 0\n')
    spy.chmod(0o755)
    bundled.env["PATH"] = f"{bundled.folder}:{bundled.env['PATH']}"
    again = bundled("relaunch", "one", "--dump", "--yes", "--wait", "--json")
    assert again.code == 0, again.err
    assert f"Thread of {hung['pid']}" in Path(again.json["dump"]).read_text()
    assert again.json["outcome"] == "ready"
    after = bundled("status", "--json").json["hosts"][0]["servers"][0]
    assert (after["phase"], after["health"]) == ("ready", "ok")
    assert after["pid"] != before["pid"]
