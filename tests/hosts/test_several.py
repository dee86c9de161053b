"""One server over two hosts, each with its own processes, systemd and sshd, over SSH.

The nodes are the imitation's, which really meet over TCP. The hosts' networks are not joined, so
the address where they meet is this machine's, which hands on to node 0.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from console.actions.plan import plan_to_journal
from console.config import load
from console.config.presets import load_presets
from console.model import Plan
from console.planning.planner import Options, Planner
from console.session import Headless, connect
from tests.functional.cli.conftest import Command
from tests.rig import net
from tests.rig.kept import ROOT
from tests.rig.nspawn import NspawnHost
from tests.rig.plugin import HostFactory

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]
IMITATION = ROOT / "tests" / "trouble" / "imitation"
PORT = 31_000
WAIT_S = 120.0


class Way:
    """A port of this machine that leads to the same port of a host."""

    def __init__(self, host: NspawnHost) -> None:
        self._host = host.address
        self._server = socket.create_server((net.GATEWAY, 0))
        self._server.settimeout(0.2)
        self.port: int = self._server.getsockname()[1]
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._spawn(self._take)

    def _take(self) -> None:
        with self._server:
            while not self._closed:
                with suppress(TimeoutError):
                    near, _ = self._server.accept()
                    self._spawn(self._join, near)

    def _spawn(self, work: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _join(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection((self._host, self.port), 5) as far:
            back = threading.Thread(target=self._hand, args=(near, far), daemon=True)
            back.start()
            self._hand(far, near)
            back.join()

    def _hand(self, source: socket.socket, target: socket.socket) -> None:
        source.settimeout(1.0)
        with suppress(OSError):
            while not self._closed:
                with suppress(TimeoutError):
                    if not (data := source.recv(4096)):
                        break
                    target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """No more."""
        self._closed = True
        for thread in self._threads:
            thread.join()


class Pair:
    """A command whose hosts.yaml has two hosts and the server ``big`` over both."""

    def __init__(self, command: Command, hosts: dict[str, NspawnHost], way: Way) -> None:
        self.command = command
        self.hosts = hosts
        self.way = way

    def configure(self, args: str = "", env: str = "", keys: str = "", address: str = "") -> None:
        """Write hosts.yaml."""
        rows = "".join(
            f"  {name}: {{address: {host.address}, python: {host.python},\n"
            f"        identity_files: [{host.key.path}], known_hosts: {host.known_hosts}}}\n"
            for name, host in self.hosts.items()
        )
        meet = address or f"{net.GATEWAY}:{self.way.port}"
        self.command.write(
            f"hosts:\n{rows}servers:\n"
            f"  big: {{hosts: [one, two], engine: sglang, model: /root/model, port: {PORT},\n"
            f'        args: {{tp-size: 2, dist-init-addr: "{meet}"{args}}},\n'
            f'        env: {{PYTHONPATH: "{IMITATION}:{ROOT}"{env}}}{keys}}}\n'
        )

    def __call__(self, *words: str, code: int) -> Any:
        """Run a command with ``--json`` that is to end with this code; returns its document."""
        ran = self.command(*words, "--json", bound_s=WAIT_S * 2)
        assert ran.code == code, ran.out + ran.err
        return ran.json

    def seen(self) -> dict[str, Any]:
        """The server as each host shows it."""
        ran = self.command("status", "--json")
        return {row["name"]: row["servers"][0] for row in ran.json["hosts"] if row["servers"]}

    def until(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the status is so."""
        end = time.monotonic() + WAIT_S
        while not what(seen := self.seen()):
            assert time.monotonic() < end, seen
        return seen

    def kill(self, name: str) -> None:
        """End a node's launcher the hard way."""
        self.hosts[name].run(["kill", "-9", str(self.seen()[name]["pid"])])

    def runs(self) -> dict[str, list[dict[str, Any]]]:
        """The run records by host."""
        return {row["name"]: row["runs"] for row in self("runs", code=0)["hosts"]}


@pytest.fixture(scope="module")
def machines(host_factory: HostFactory) -> dict[str, NspawnHost]:
    """Two hosts with the tests' Python."""
    hosts = {name: host_factory(bind_python=True, hostname=name) for name in ("one", "two")}
    for host in hosts.values():
        config = {"architectures": ["LlamaForCausalLM"], "num_attention_heads": 8}
        host.write("/root/model/config.json", json.dumps(config))
    return hosts


@pytest.fixture
def big(tmp_path: Path, machines: dict[str, NspawnHost]) -> Iterator[Pair]:
    tmp_path.chmod(0o700)
    way = Way(machines["one"])
    pair = Pair(Command(tmp_path), machines, way)
    pair.configure()
    yield pair
    pair.command("stop", "big", "--yes", "--timeout", "1")
    way.close()


LAUNCH = ("launch", "big", "--yes", "--wait", "--skip-preflight")


def alive(seen: dict[str, Any]) -> dict[str, bool]:
    return {name: row["pid"] is not None for name, row in seen.items()}


def test_it_is_launched_relaunched_and_stopped_as_one(big: Pair) -> None:
    done = big(*LAUNCH, code=0)
    assert done["outcome"] == "ready"
    kinds = [(step["host"], step["kind"]) for step in done["plan"]]
    assert kinds == [("one", "launch"), ("two", "launch"), ("one", "watch")]
    first, second = (step["argv"] for step in done["plan"][:2])
    assert first[first.index("--node-rank") + 1] == "0"
    assert second[second.index("--node-rank") + 1] == "1"
    assert [w for w in first if w not in ("0", "1")] == [w for w in second if w not in ("0", "1")]
    assert [(n["rank"], n["host"], n["lacks"]) for n in done["nodes"]] == [
        (0, "one", None), (1, "two", None)
    ]  # fmt: skip
    seen = big.seen()
    assert [(row["phase"], row["rank"]) for row in seen.values()] == [("ready", 0), ("ready", 1)]
    runs = big.runs()
    assert {rows[0]["run_id"] for rows in runs.values()} == {done["run_id"]}, "one run"
    logs = {name: rows[0]["log"] for name, rows in runs.items()}
    assert logs["one"].endswith("-node0.log")
    assert logs["two"].endswith("-node1.log")
    assert big("watch", "big", code=0)["run_id"] == done["run_id"]
    assert {z["kind"] for h in big("zombies", "--quick", code=0)["hosts"] for z in h["zombies"]} \
        <= {"foreign"}  # fmt: skip

    again = big("relaunch", "big", "--yes", "--wait", "--skip-preflight", code=0)
    order = [(step["kind"], step["host"]) for step in again["plan"]]
    last_end = max(at for at, (kind, _) in enumerate(order) if kind == "verify")
    first_start = order.index(("launch", "one"))
    assert {host for kind, host in order if kind == "verify"} == {"one", "two"}
    assert last_end < first_start, "nothing is started before everything is gone"
    assert again["run_id"] != done["run_id"]
    assert alive(big.seen()) == {"one": True, "two": True}

    big("stop", "big", "--yes", code=0)
    assert {row["phase"] for row in big.seen().values()} == {"stopped"}
    assert {rows[0]["outcome"] for rows in big.runs().values()} == {"stopped"}


def test_a_rank_that_fails_is_named_with_its_own_diagnosis(big: Pair) -> None:
    big.configure(env=', IMITATION_FAILS_RANK: "1"')
    done = big(*LAUNCH, code=6)
    assert done["outcome"] == "failed"
    assert "rank 1 on two" in done["detail"]
    assert done["diagnosis"]["root"]["type"].endswith("OutOfMemoryError")
    assert done["diagnosis"]["category"] == "gpu-oom-load"
    watched = big("watch", "big", code=6)
    assert "rank 1 on two" in watched["detail"]
    assert watched["diagnosis"]["root"] == done["diagnosis"]["root"]
    told = big("diagnose", "big", code=1)
    assert told["node"] == {"rank": 1, "host": "two"}
    assert told["root"] == done["diagnosis"]["root"]
    lines = big("logs", "big", "--host", "two", "--errors", code=0)["lines"]
    assert any("out of memory" in line["text"] for line in lines)


def test_a_rank_that_dies_later_is_missing_and_told(big: Pair) -> None:
    big(*LAUNCH, code=0)
    big.kill("two")
    seen = big.until(lambda seen: seen["two"]["pid"] is None)
    lacks = {node["rank"]: node["lacks"] for node in seen["two"]["nodes"]}
    assert lacks[1] == "has failed"
    watched = big("watch", "big", code=6)
    assert "rank 1 on two: killed by SIGKILL" in watched["detail"], "not its victim"
    # SGLang's node 0 notices and ends, too; everything comes back with one command.
    again = big("relaunch", "big", "--yes", "--wait", "--skip-preflight", code=0)
    assert again["outcome"] == "ready"
    assert alive(big.seen()) == {"one": True, "two": True}


def plan_of(big: Pair, action: str) -> Plan:
    """A plan as a console would make it."""

    async def make() -> Plan:
        config = load(big.command.hosts)
        links = {
            name: await connect(config.host(name), hosts=config.hosts, prompts=Headless())
            for name in ("one", "two")
        }
        try:
            planner = Planner(links["one"], config, load_presets(None), "test", links)
            options = Options(preflight=False)
            how = planner.launch if action == "launch" else planner.relaunch
            return await how(config.server("big"), None, options)
        finally:
            for link in links.values():
                await link.close()

    return asyncio.run(make())


def cut(big: Pair, plan: Plan, kind: str, host: str, moment: str) -> None:
    """Have a console carry a plan out and end it in the middle of a step."""
    at = next(i for i, s in enumerate(plan.steps) if (s.kind.value, s.host) == (kind, host))
    path = big.command.folder / "plan.json"
    path.write_text(json.dumps(plan_to_journal(plan)))
    words = [str(big.command.hosts), "one", str(path), str(at), moment]
    console = subprocess.Popen(
        [sys.executable, "-m", "tests.hosts.cut_console", *words], cwd=ROOT, env=big.command.env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert console.stdout is not None
    said = []
    for line in console.stdout:
        said.append(line)
        if line.startswith("here"):
            break
    console.kill()
    _, told = console.communicate()
    assert said[-1].startswith("here"), (said, told)


def free_of_plans(big: Pair) -> None:
    """Until the locks of the console that was ended have fallen with its agents."""
    end = time.monotonic() + WAIT_S
    while True:
        ran = big.command("watch", "big", "--json", bound_s=WAIT_S)
        if not ran.json["unfinished"]["under_way"]:
            return
        assert time.monotonic() < end, ran.out


def test_a_console_ended_between_two_ranks(big: Pair) -> None:
    plan = plan_of(big, "launch")
    cut(big, plan, "launch", "two", "before")
    free_of_plans(big)
    watched = big("watch", "big", code=6)
    assert watched["detail"] == "rank 1 on two is missing; left: rank 0 on one"
    assert plan.id in watched["unfinished"]["detail"]
    lacks = [node["lacks"] for node in big.seen()["one"]["nodes"]]
    assert lacks == [None, "is missing"]
    big("resume", plan.id, "--yes", code=0)
    done = big("watch", "big", code=0)
    assert alive(big.seen()) == {"one": True, "two": True}

    plan = plan_of(big, "relaunch")
    cut(big, plan, "launch", "two", "before")
    free_of_plans(big)
    big("undo", plan.id, "--yes", code=0)
    back = big("watch", "big", code=0)
    runs = big.runs()
    assert back["run_id"] not in (done["run_id"], started(plan))
    assert {rows[0]["run_id"] for rows in runs.values()} == {back["run_id"]}
    assert runs["two"][0]["argv"] == next(
        r["argv"] for r in runs["two"] if r["run_id"] == done["run_id"]
    ), "as it was"


def away(big: Pair, name: str) -> str:
    """Make a host's address lead nowhere; returns hosts.yaml as it was."""
    good = big.command.hosts.read_text()
    lost = good.replace(f"address: {big.hosts[name].address}", "address: 192.0.2.254")
    big.command.write(
        lost.replace("hosts:\n  one", "defaults: {connect_timeout: 2}\nhosts:\n  one")
    )
    return good


def plans_told(big: Pair, *, code: int) -> dict[str, list[tuple[str, str]]]:
    """The plans that each host tells of."""
    rows = big("runs", code=code)["hosts"]
    return {row["name"]: [(p["plan_id"], p["outcome"]) for p in row["plans"]] for row in rows}


def test_a_plan_is_known_though_the_host_of_node_0_is_lost(big: Pair) -> None:
    plan = plan_of(big, "launch")
    cut(big, plan, "launch", "two", "after")
    free_of_plans(big)
    told = plans_told(big, code=0)
    assert (plan.id, "interrupted") in told["one"]
    assert plan.id not in dict(told["two"]), "told once, by its own host"

    good = away(big, "one")
    error = big("watch", "big", code=3)["error"]
    assert error["place"] == "one"
    assert f"plan {plan.id} was interrupted" in error["hint"]
    assert "as two remembers it" in error["hint"]
    assert "once one is reached again" in error["hint"]
    assert (plan.id, "interrupted") in plans_told(big, code=3)["two"]
    for way in ("resume", "undo"):
        error = big(way, plan.id, "--yes", code=3)["error"]
        assert error["place"] == "one"
        assert f"plan {plan.id}, of which two has the journal, needs it" in error["hint"]
    assert big.seen()["two"]["pid"] is not None

    big.command.write(good)
    big("undo", plan.id, "--yes", code=0)
    assert alive(big.seen()) == {"one": False, "two": False}
    for name in ("one", "two"):
        journals = big.hosts[name].run(["sh", "-c", f"cat /var/lib/specops/journals/{plan.id}*"])
        assert b'"undone"' in journals.stdout.splitlines()[-1], name


def started(plan: Plan) -> str:
    """The run that a plan starts."""
    ids = {str(s.params["run"]["run_id"]) for s in plan.steps if s.kind.value == "launch"}
    assert len(ids) == 1
    return ids.pop()


def test_a_host_that_is_not_reached_does_not_hold_up_the_end_of_the_others(big: Pair) -> None:
    big(*LAUNCH, code=0)
    good = away(big, "two")
    nodes = big.seen()["one"]["nodes"]
    assert nodes[1]["lacks"].startswith("is not known: the host is unreachable")
    big("stop", "big", "--yes", code=3)
    big.command.write(good)
    assert not alive(big.seen())["one"]


def test_preflight_looks_at_every_node(big: Pair) -> None:
    big.hosts["two"].run(["mv", "/root/model", "/root/elsewhere"])
    try:
        found = big("preflight", "big", "--no-engine", code=5)["findings"]
        missing = [f for f in found if f["rule"] == "path-missing"]
        assert [f["message"].startswith("two: ") for f in missing] == [True], found
    finally:
        big.hosts["two"].run(["mv", "/root/elsewhere", "/root/model"])
    big.configure(address="nowhere.invalid:20000")
    found = big("preflight", "big", "--no-engine", code=5)["findings"]
    lost = [f["message"] for f in found if f["rule"] == "dist-unreachable"]
    assert [text.partition(" ")[0] for text in lost] == ["one", "two"]
