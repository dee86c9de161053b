"""Plans as data: what is in them, what they look like, what they refuse, and their checks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.actions.audit import AuditLog
from console.actions.clean import clean_step, plan_clean
from console.actions.codec import decode, encode
from console.actions.commands import stop_unit_step
from console.actions.dump import with_dump
from console.actions.kill import KillOptions, choose, outdated, plan_kill
from console.actions.plan import (
    changes_host,
    plan_from_journal,
    plan_lines,
    plan_to_journal,
    plan_to_json,
    zombie_to_json,
)
from console.actions.reset import plan_reset
from console.actions.steps import Context
from console.actions.verify import still_held, verify_step
from console.errors import ActionFailed, Refused
from console.model import (
    Artefact,
    Gpu,
    GpuProcess,
    Host,
    Plan,
    ProcessId,
    Snapshot,
    Step,
    StepKind,
    Zombie,
    ZombieKind,
)
from console.remote import Completed
from console.zombies import classify
from tests.unit.actions.local import LocalHost
from tests.unit.zombies import build

HOST = Host("h")


def _case(name: str) -> tuple[build.Case, tuple[Zombie, ...]]:
    case = build.load(build.CASES / f"{name}.json")
    found = classify(
        case.snapshot,
        previous=case.previous,
        runs=case.runs,
        servers=case.servers,
        states=case.states,
        probes=case.probes,
        policy=case.policy,
    )
    return case, found


def _plan(name: str, host: Host = HOST, **options: Any) -> Plan:
    case, found = _case(name)
    return plan_kill(
        found,
        case.snapshot,
        case.runs,
        host=host,
        servers=case.servers,
        options=KillOptions(**options),
    )


def _kinds(plan: Plan) -> list[str]:
    return [step.kind.value for step in plan.steps]


SIGNALS = ["signal", "wait-gone", "signal", "wait-gone"]


def test_a_never_ready_server_goes_whole() -> None:
    plan = _plan("never-ready")
    assert _kinds(plan) == [*SIGNALS, "verify"]
    assert [target.process.pid for target in plan.steps[0].targets] == [100, 101, 102]
    assert [step.signal for step in plan.steps[:3]] == ["TERM", None, "KILL"]
    assert plan.steps[-1].params["gpus"] == [0, 1]
    assert plan.steps[-1].params["ports"] == [30000]
    assert plan.summary[:2] == ("1 never-ready", "frees 86000 MiB of device memory")
    assert changes_host(plan)


def test_a_unit_is_stopped_by_systemd_and_never_signalled() -> None:
    plan = _plan("configured-unit-hung", replace(HOST, sudo=True))
    assert _kinds(plan) == ["stop-unit", "verify"]
    assert plan.steps[0].argv == ("systemctl", "stop", "k26.service")
    assert not any(step.signal for step in plan.steps)


def test_sudo_never_asks() -> None:
    case, found = _case("configured-unit-hung")
    snapshot = replace(case.snapshot, uid=1000)
    host = replace(HOST, sudo=True)
    plan = plan_kill(found, snapshot, host=host, servers=case.servers)
    assert plan.steps[0].argv[:3] == ("sudo", "-n", "systemctl")


def test_a_container_is_stopped_by_docker() -> None:
    case, _ = _case("configured-unit-hung")
    server = case.servers["k"]
    runner = replace(server.runner, kind="docker", unit=None, container="9f8e")
    moved = tuple(replace(p, unit=None, container="9f8e") for p in case.snapshot.processes)
    snapshot = replace(case.snapshot, processes=moved)
    servers = {"k": replace(server, runner=runner)}
    found = classify(snapshot, servers=servers, states=case.states, probes=case.probes)
    plan = plan_kill(found, snapshot, host=HOST, servers=servers)
    assert _kinds(plan) == ["run", "verify"]
    assert plan.steps[0].argv == ("docker", "stop", "-t", "60", "9f8e")


@pytest.mark.parametrize("name", ["stuck-io", "defunct-listed", "ghost-memory", "foreign-own-job"])
def test_what_is_explained_is_not_planned(name: str) -> None:
    plan = _plan(name)
    assert plan.steps == ()
    assert plan.summary == ("nothing to kill or clean",)
    assert not changes_host(plan)


def test_a_foreign_one_goes_only_when_named() -> None:
    plan = _plan("foreign-own-job", named=frozenset({"f500"}))
    assert [t.process.pid for t in plan.steps[0].targets] == [500]
    assert _plan("foreign-xorg", named=frozenset({"f500"})).steps == ()
    assert _plan("foreign-namespace", named=frozenset({"500"})).steps == ()
    assert _plan("stuck-io", named=frozenset({"i101"})).steps == ()


@pytest.mark.parametrize(
    ("name", "typed", "why"),
    [("foreign-xorg", "f500", "never-kill"), ("foreign-namespace", "500", "namespace")],
)
def test_a_name_does_not_make_a_target_of_what_stays(name: str, typed: str, why: str) -> None:
    """What the plan leaves alone is not counted as taken on, or it would be reported as killed."""
    case, found = _case(name)
    chosen = choose(found, named=[typed], snapshot=case.snapshot)
    assert chosen.zombies == ()
    assert [reason for _, reason in chosen.skipped if why in reason]


def test_choose_says_why_it_leaves_the_rest() -> None:
    _, found = _case("headless-all")
    chosen = choose(found)
    assert [zombie.kind.value for zombie in chosen.zombies] == ["headless"]
    assert {why for _, why in chosen.skipped} == {
        "it is dead already; it disappears when its parent collects it or ends"
    }
    assert not choose(found, kinds=[found[1].kind]).zombies or found[1].killable


def test_leftovers_go_in_one_step_and_what_is_held_stays() -> None:
    plan = _plan("leftovers")
    assert _kinds(plan) == ["clean"]
    assert len(plan.steps[0].artefacts) == 5
    assert _plan("leftovers-not").steps == ()


def test_segments_held_by_the_killed_alone_go_with_them() -> None:
    case, found = _case("orphan-recorded")
    own = Artefact("shm", "/dev/shm/psm_a", 0, "root", 1 << 20, 10.0, 1, 2, None, (101,))
    shared = replace(own, path="/dev/shm/psm_b", holders=(101, 7))
    snapshot = replace(case.snapshot, artefacts=(own, shared))
    killed = [zombie.process for zombie in found if zombie.process]
    steps = plan_clean("h", snapshot, found, killed)
    assert [a.path for a in steps[0].artefacts] == ["/dev/shm/psm_a"]


def test_a_plan_is_outdated_when_its_zombie_has_recovered() -> None:
    case, found = _case("hung")
    plan = _plan("hung")
    assert outdated(plan, found, case.snapshot) is None
    assert outdated(plan, (), case.snapshot) == "100 was hung and is no zombie now"
    other = tuple(replace(zombie, kind=ZombieKind.HEADLESS) for zombie in found)
    assert outdated(plan, other, case.snapshot) == "100 was hung and is headless now"
    assert outdated(plan, (), replace(case.snapshot, processes=())) is None
    foreign = _plan("foreign-own-job", named=frozenset({"f500"}))
    assert outdated(foreign, (), case.snapshot) is None


def test_stacks_are_offered_and_come_first_where_they_are_wanted() -> None:
    plan = _plan("hung")
    assert StepKind.DUMP not in [step.kind for step in plan.steps]
    assert [step.argv for step in plan.offered] == [("py-spy", "dump", "--pid", "100")]
    wanted = with_dump(plan)
    assert wanted.steps == (*plan.offered, *plan.steps)
    assert wanted.offered == ()
    ended = {target.process for step in plan.steps for target in step.targets}
    assert {target.process for target in plan.offered[0].targets} <= ended
    case, _ = _case("hung")
    assert outdated(wanted, (), case.snapshot) == outdated(plan, (), case.snapshot) is not None
    assert plan_from_journal(json.loads(json.dumps(plan_to_journal(wanted)))) == wanted
    assert _plan("half-dead").offered == ()


def test_a_plan_survives_its_journal() -> None:
    plan = _plan("never-ready")
    again = plan_from_journal(json.loads(json.dumps(plan_to_journal(plan))))
    assert encode(again) == encode(plan)
    data = plan_to_journal(plan)
    data["steps"][0]["kind"] = "format-disk"
    with pytest.raises(ActionFailed, match=r"plan\.steps\[0\]\.kind: wanted one of"):
        plan_from_journal(data)


def test_json_is_the_contracts() -> None:
    _, found = _case("never-ready")
    shape = zombie_to_json(found[0])
    assert list(shape)[:14] == [
        "id", "pid", "start_time", "user", "kind", "resource", "device", "memory_mib",
        "gpu_memory_mib", "score", "evidence", "killable", "why_not", "run_id",
    ]  # fmt: skip
    assert json.loads(json.dumps(shape))["kind"] == "never-ready"
    _, ghosts = _case("ghost-memory")
    assert zombie_to_json(ghosts[0])["resource"] == {"type": "gpu", "gpu": 3}


def test_nothing_printed_or_audited_holds_a_secret(tmp_path: Path) -> None:
    step = Step(StepKind.RUN, "h", "x", argv=("serve", "--api-key", "hunter2hunter2"))
    plan = Plan("p", "x", "h", (step,), summary=("token=abcdefghij",))
    audit = AuditLog(tmp_path / "a" / "audit.jsonl")
    audit.write("plan", detail=plan_to_json(plan))
    text = "\n".join([*plan_lines(plan), json.dumps(plan_to_json(plan)), audit.path.read_text()])
    assert "hunter2" not in text
    assert "abcdefghij" not in text


def test_lines_are_inert() -> None:
    _, found = _case("hostile-title")
    case, _ = _case("hostile-title")
    plan = plan_kill(found, case.snapshot, case.runs, host=HOST)
    assert all(line.isprintable() for line in plan_lines(plan))


def test_audit_refuses_what_is_not_its_owners(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("")
    link = tmp_path / "audit.jsonl"
    link.symlink_to(real)
    with pytest.raises(ActionFailed, match="cannot be written"):
        AuditLog(link).write("x")
    assert real.read_text() == ""


# ---- checks after the kill


GPU = Gpu(0, "GPU-0", "H200", 500.0, 143771.0)
OTHER = build.process({"pid": 7, "line": "python3 train.py", "user": "bob"})
PARAMS: dict[str, object] = {
    "gpus": [0], "baseline_mib": {"0": 4.0}, "idle_mib": {"0": 4.0}, "ports": [30000],
    "processes": [{"pid": 101, "start_ticks": 1010}], "had_nvidia": True,
}  # fmt: skip


def _look(gpu: Gpu, **values: Any) -> Snapshot:
    return Snapshot(build.BOOT, 0.0, 0, values.pop("processes", ()), (gpu,), "nvml", **values)


@pytest.mark.parametrize(
    ("gpu", "values", "reason", "unknown"),
    [
        (replace(GPU, memory_used_mib=60.0), {}, "", ""),
        (GPU, {}, "500 MiB in use (500 MiB by nothing visible here)", ""),
        (replace(GPU, processes=(GpuProcess(7, 496.0),)), {"processes": (OTHER,)}, "", ""),
        (replace(GPU, processes=(GpuProcess(7, 496.0),)), {}, "pid 7, which is not visible", ""),
        (replace(GPU, processes=(GpuProcess(7, None),)), {"processes": (OTHER,)}, "? MiB", ""),
        (replace(GPU, processes=(GpuProcess(101, 400.0),)), {}, "101 is still listed", ""),
        (replace(GPU, memory_used_mib=None), {}, "", "memory cannot be read"),
        (GPU, {"gpu_error": None, "listening": {30000: None}}, "port 30000 is held by nothing", ""),
    ],
)
def test_what_is_still_held(gpu: Gpu, values: Any, reason: str, unknown: str) -> None:
    held = still_held(_look(gpu, **values), PARAMS)
    for found, expected in ((held.reasons, reason), (held.unknown, unknown)):
        assert bool(found) is bool(expected)
        assert expected in "; ".join(found)


def test_a_pid_given_to_somebody_else_is_not_ours() -> None:
    stranger = build.process({"pid": 101, "start": 9, "line": "python3 x.py", "user": "bob"})
    gpu = replace(GPU, processes=(GpuProcess(101, 496.0),))
    assert still_held(_look(gpu, processes=(stranger,)), PARAMS).reasons == ()


def _context(place: LocalHost) -> Context:
    return Context(Plan("p", "x", "here", ()), 0, place.remote, {}, lambda _line: None)


async def test_memory_that_cannot_be_read_is_not_verified(tmp_path: Path) -> None:
    place = LocalHost(tmp_path)
    place.look = lambda snapshot: replace(
        snapshot, gpus=(replace(GPU, memory_used_mib=None),), gpu_error="driver mismatch"
    )
    step = Step(StepKind.VERIFY, "here", "x", timeout_s=5.0, params={**PARAMS, "ports": []})
    outcome = await verify_step(step, _context(place))
    assert (outcome.outcome, outcome.data["verified"]) == ("failed", False)
    assert outcome.detail == "killed, memory NOT verified: GPU 0: driver mismatch"


async def test_memory_that_falls_late_is_waited_for(tmp_path: Path) -> None:
    place = LocalHost(tmp_path)
    used = iter([500.0, 4.0, 300.0, 4.0, 4.0])
    place.look = lambda snapshot: replace(
        snapshot, gpus=(replace(GPU, memory_used_mib=next(used)),)
    )
    step = Step(StepKind.VERIFY, "here", "x", timeout_s=30.0, params={**PARAMS, "ports": []})
    outcome = await verify_step(step, _context(place))
    assert outcome.outcome == "ok"
    assert next(used, None) is None, "one clean look between two others is not enough"


async def test_cleaning_touches_only_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "psm_x"
    path.write_bytes(b"x")
    info = path.stat()
    right = Artefact("shm", str(path), 0, "r", 1, 900.0, info.st_dev, info.st_ino)
    gone = replace(right, path=str(tmp_path / "gone"))
    other = tmp_path / "psm_y"
    other.write_bytes(b"y")
    wrong = replace(right, path=str(other))
    place = LocalHost(tmp_path)
    step = Step(StepKind.CLEAN, "here", "x", artefacts=(right, gone, wrong))
    outcome = await clean_step(step, _context(place))
    assert outcome.outcome == "failed"
    assert outcome.data["removed"] == [str(path)]
    assert outcome.data["kept"] == {str(other): "another file now"}
    assert other.exists()


@pytest.mark.parametrize(
    ("code", "state", "outcome"),
    [
        (0, b"ActiveState=inactive\nMainPID=0\n", "ok"),
        (0, b"ActiveState=failed\nMainPID=0\n", "ok"),
        (0, b"ActiveState=deactivating\nMainPID=77\n", "failed"),
        (5, b"", "failed"),
    ],
)
async def test_a_unit_is_believed_not_its_exit_code(
    tmp_path: Path, code: int, state: bytes, outcome: str
) -> None:
    place = LocalHost(tmp_path)
    place.answers = lambda argv: (
        Completed(0, state, b"") if "show" in argv else Completed(code, b"", b"not loaded")
    )
    step = Step(
        StepKind.STOP_UNIT, "here", "x", argv=("systemctl", "stop", "k.service"), timeout_s=0.1,
        params={"unit": "k.service"},
    )  # fmt: skip
    assert (await stop_unit_step(step, _context(place))).outcome == outcome


# ---- resetting a device


def test_a_reset_needs_the_drivers_word_and_an_empty_device() -> None:
    asks = replace(GPU, recovery_action="gpu reset")
    plan = plan_reset(_look(asks), 0, host=HOST)
    assert plan.steps[0].argv == ("nvidia-smi", "--gpu-reset", "-i", "GPU-0")
    assert plan.confirm == "h:0"
    held = replace(asks, processes=(GpuProcess(7, 1.0),))
    for gpu, why in (
        (GPU, "not known"),
        (replace(GPU, recovery_action="none"), "nothing"),
        (replace(GPU, recovery_action="drain p2p"), "drain p2p .end the jobs that use several"),
        (replace(GPU, recovery_action="node reboot"), "node reboot .reboot the host"),
        (replace(GPU, recovery_action="bus reset"), "bus reset"),
        (replace(GPU, recovery_action="action 12"), "action 12"),
        (replace(asks, uuid=""), "no UUID"),
        (replace(asks, error="processes: Unknown Error"), "not known: processes"),
        (held, "held by 7"),
    ):
        with pytest.raises(Refused, match=why):
            plan_reset(_look(gpu), 0, host=HOST)
    with pytest.raises(Refused, match="cannot be read"):
        plan_reset(_look(asks, gpu_error="gone"), 0, host=HOST)
    with pytest.raises(Refused, match="not every process can be seen"):
        plan_reset(_look(asks, processes_complete=False), 0, host=HOST)


def test_codec_names_the_place_of_what_is_wrong() -> None:
    with pytest.raises(ActionFailed, match="the key pid is missing"):
        decode(GpuProcess, {"memory_mib": 1})
    with pytest.raises(ActionFailed, match=r"GpuProcess\.pid: wanted int"):
        decode(GpuProcess, {"pid": True, "memory_mib": 1})


def test_weights_in_memory_that_a_killed_server_maps_stay() -> None:
    """A segment of the server's libraries goes with it; what somebody put there does not."""
    paths = ("/dev/shm/psm_1a2b3c4d", "/dev/shm/kimi/torch_1_x.safetensors", "/dev/shm/corpus.bin")
    artefacts = tuple(
        Artefact("shm", path, 0, "root", 1 << 20, 9e3, 1, 9, holders=(7,)) for path in paths
    )
    snapshot = Snapshot("b", 1.0, 0, (), artefacts=artefacts)
    (step,) = plan_clean("h", snapshot, (), [ProcessId(7, 70, "b")])
    assert [artefact.path for artefact in step.artefacts] == ["/dev/shm/psm_1a2b3c4d"]
