"""The console or the agent is killed, or the link is cut, in each step: resume finishes the job.

Of both plans that end processes: a kill with what it cleans up, and a relaunch. Nothing is done
twice, and the audit file tells of every step how it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.actions.journal import find, to_resume
from console.actions.plan import plan_to_journal
from console.actions.serving import Serving
from console.config import load
from console.config.presets import load_presets
from console.errors import Refused
from console.model import Plan, StepKind, StepResult
from console.planning.planner import Options, Planner
from console.runners.settings import Choice
from console.session import Headless, Session, connect
from tests import scale
from tests.functional.cli.conftest import free_port
from tests.hosts.killing import Bench, local_host, running
from tests.proxy import Proxy
from tests.rig.kept import ROOT
from tests.rig.nspawn import missing as no_hosts
from tests.rig.plugin import require
from tests.rig.sshd import LoopbackSshd
from tests.trouble.api import make

pytestmark = [pytest.mark.hosts, pytest.mark.long]
IMITATION = ROOT / "tests" / "trouble" / "imitation"
KILL = ("signal", "wait-gone", "signal", "wait-gone", "clean", "verify")
RELAUNCH = (
    "drain", "signal", "wait-gone", "signal", "wait-gone", "verify", "launch", "watch",
)  # fmt: skip
VICTIMS = ("console", "agent", "link")
MOMENTS = ("before", "after")


def cases(steps: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Every step, victim and moment; in an ordinary run every second step, as the seed has it."""
    every = list(product(range(len(steps)), VICTIMS, MOMENTS))
    if scale.SHARE >= 1:
        return every
    first = scale.seed() % 2
    return [
        (step, VICTIMS[step % 3], MOMENTS[step // 2 % 2]) for step in range(first, len(steps), 2)
    ]


def named(steps: tuple[str, ...]) -> Callable[[Any], str]:
    """Ids of the parameters that tell the step."""
    return lambda value: f"{value}-{steps[value]}" if isinstance(value, int) else str(value)


@dataclass
class Place:
    """A folder with hosts.yaml: ``here`` directly, ``far`` by ssh through a link to be cut."""

    folder: Path
    proxy: Proxy

    @property
    def hosts(self) -> Path:
        """The file."""
        return self.folder / "hosts.yaml"

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A session to the machine, from another console so to speak."""
        config = load(self.hosts)
        link = await connect(config.host("box"), hosts=config.hosts, prompts=Headless())
        try:
            yield link
        finally:
            await link.close()

    def executor(self, link: Session) -> Executor:
        """An executor with the audit file that the console in trouble wrote, too."""
        handlers = Serving(load(self.hosts).servers).handlers()
        return Executor(link, AuditLog(self.folder / "audit.jsonl"), handlers=handlers)


@pytest.fixture
async def place(tmp_path: Path, loopback_sshd: LoopbackSshd) -> AsyncIterator[Place]:
    require(no_hosts())
    tmp_path.chmod(0o700)
    async with Proxy(loopback_sshd.address, loopback_sshd.port) as proxy:
        known = tmp_path / "known_hosts"
        known.write_text(loopback_sshd.host_key.known_hosts_line(proxy.address, proxy.port))
        box = {
            "address": proxy.address, "port": proxy.port, "user": loopback_sshd.user,
            "python": local_host(tmp_path).python, "known_hosts": str(known),
            "identity_files": [str(loopback_sshd.key.path)],
        }  # fmt: skip
        server = {
            "host": "box", "engine": "sglang", "model": "/models/a-target", "port": free_port(),
            "args": {"tp-size": 1}, "env": {"PYTHONPATH": f"{IMITATION}:{ROOT}"},
        }  # fmt: skip
        place = Place(tmp_path, proxy)
        place.hosts.write_text(json.dumps({"hosts": {"box": box}, "servers": {"one": server}}))
        place.hosts.chmod(0o600)
        yield place


async def cut_off(place: Place, plan: Plan, step: int, victim: str, moment: str) -> None:
    """Have a console of its own carry the plan out, and cut it off in the middle of a step."""
    path = place.folder / "plan.json"
    path.write_text(json.dumps(plan_to_journal(plan)))
    words = [str(place.hosts), "box", str(path), str(step), moment]
    console = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.hosts.cut_console", *words, cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert console.stdout is not None
    assert console.stderr is not None
    said = []
    async with asyncio.timeout(120):
        async for line in console.stdout:
            said.append(line.decode())
            if line.startswith(b"here"):
                break
        else:
            raise AssertionError(f"{said} {(await console.stderr.read()).decode()}")
        if victim == "console":
            console.kill()
        elif victim == "agent":
            os.kill(int(said[-1].split()[1]), signal.SIGKILL)
        else:
            place.proxy.reset_all()
        _, told = await console.communicate()
    if victim == "console":
        assert console.returncode == -signal.SIGKILL
    elif console.returncode != 0:  # 0: all was done and said, only its record is missing
        assert f"specops resume {plan.id}" in told.decode()


async def resume(place: Place, plan: Plan, step: int) -> list[StepResult]:
    """Finish the plan; the lock of the one that was cut off falls with its agent."""
    async with place.session() as link:
        record = to_resume(await find(link, plan.id))
        assert record.in_doubt == step
        assert sorted(record.done) == list(range(step))
        async with asyncio.timeout(60):
            while True:
                executor = place.executor(link)
                doubt = record.in_doubt
                try:
                    results = [
                        r async for r in executor.execute(plan, done=record.done, in_doubt=doubt)
                    ]
                    break
                except Refused as error:
                    if "locked by" not in error.message:
                        raise
                    await asyncio.sleep(0.2)
        assert [r.step for r in results] == list(range(step, len(plan.steps)))
        assert {r.outcome for r in results} == {"ok"}, results
        assert (await find(link, plan.id)).outcome == "ok"
    return results


def audit_is_whole(path: Path, plan: Plan) -> None:
    """Each intent has exactly one end after it, before the step's next intent."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    open_: set[int] = set()
    ended: Counter[int] = Counter()
    for event in events:
        if event["event"] == "intent":
            step = event["detail"]["step"]
            assert step not in open_, events
            open_.add(step)
        elif event["event"] in ("result", "interrupted"):
            open_.remove(event["step"])
            ended[event["step"]] += 1
    assert not open_
    assert set(ended) == set(range(len(plan.steps)))
    assert events[-1]["event"] == "end"


def once_each(path: Path) -> None:
    """No process was told to have got the same signal twice."""
    got: Counter[tuple[str, int, int]] = Counter()
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event["event"] != "result":
            continue
        kind = str(event["detail"])[:7]
        for target in event["data"].get("signalled", ()):
            one = target["process"]
            got[kind, one["pid"], one["start_ticks"]] += 1
    assert not [one for one, count in got.items() if count > 1]


@pytest.mark.parametrize(("step", "victim", "moment"), cases(KILL), ids=named(KILL))
async def test_a_kill_cut_off_and_resumed(
    place: Place, step: int, victim: str, moment: str
) -> None:
    tag = f"cut-{time.time_ns():x}-{{}}"
    with (
        make("orphan", 2, ranks=2, run_id=tag) as trouble,
        make("leftover", 1, mib=1, age_s=3600) as litter,
        make("healthy", 1, ranks=1, run_id=f"by-{tag}") as bystander,
    ):
        async with place.session() as link:
            bench = Bench(link, (*trouble.specimens, *litter.specimens))
            left = [z for z in await bench.look() if z.kind.value == "leftover" and z.killable]
            shm = [z for z in left if "/dev/shm/" in z.title]
            assert shm
            assert bench.now is not None
            ranks = [pid for one in trouble.specimens for pid in one.ranks]
            plan = bench.plan([*(bench.verdict_on(pid) for pid in ranks), *shm])
            assert tuple(s.kind.value for s in plan.steps) == KILL
        await cut_off(place, plan, step, victim, moment)
        results = await resume(place, plan, step)
        assert not {pid for one in trouble.specimens for pid in running(one)}
        assert not [z.title for z in shm if Path(z.title).exists()]
        (other,) = bystander.specimens
        assert running(other) == set(other.pids.values())
        if (step, moment) != (0, "before"):
            # They ended at the first SIGTERM, so whatever was repeated reached nobody.
            again = [r.data.get("signalled") for r in results if "signalled" in r.data]
            assert not any(again), again
    audit_is_whole(place.folder / "audit.jsonl", plan)
    once_each(place.folder / "audit.jsonl")


def carriers(run_id: str) -> dict[int, str]:
    """Pid to title of a run's processes that run."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"SPECOPS_RUN_ID={run_id}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().decode("utf-8", "replace")
                )
        except OSError:
            continue
    return found


def started(plan: Plan) -> str:
    """The run that a plan starts."""
    launch = next(step for step in plan.steps if step.kind is StepKind.LAUNCH)
    run: Mapping[str, Any] = launch.params["run"]
    return str(run["run_id"])


async def planned(place: Place, link: Session, *, again: bool) -> Plan:
    """A launch of the server, or a relaunch."""
    config = load(place.hosts)
    planner = Planner(link, config, load_presets(place.hosts), "test")
    options = Options(preflight=False, watch_s=60.0)
    how = planner.relaunch if again else planner.launch
    return await how(config.server("one"), Choice(), options)


@pytest.mark.parametrize(("step", "victim", "moment"), cases(RELAUNCH), ids=named(RELAUNCH))
async def test_a_relaunch_cut_off_and_resumed(
    place: Place, step: int, victim: str, moment: str
) -> None:
    old, new = "", ""
    try:
        async with place.session() as link:
            first = await planned(place, link, again=False)
            old = started(first)
            results = [r async for r in place.executor(link).execute(first)]
            assert {r.outcome for r in results} == {"ok"}, results
            plan = await planned(place, link, again=True)
            new = started(plan)
            assert tuple(s.kind.value for s in plan.steps) == RELAUNCH
        (place.folder / "audit.jsonl").unlink()
        before = set(carriers(old))
        assert before
        await cut_off(place, plan, step, victim, moment)
        results = await resume(place, plan, step)
        assert not before & set(carriers(old))
        alive = carriers(new)
        launchers = [title for title in alive.values() if "sglang.launch_server" in title]
        assert len(launchers) == 1, alive
        assert results[-1].data["outcome"] == "ready"
        once_each(place.folder / "audit.jsonl")
        audit_is_whole(place.folder / "audit.jsonl", plan)
    finally:
        for pid in {**carriers(old), **carriers(new)} if old and new else {}:
            os.kill(pid, signal.SIGKILL)
