"""What a launch, a stop and a relaunch consist of, and what they say of themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.actions.codec import decode
from console.actions.launch import (
    again,
    changes,
    plan_launch,
    start_again,
    start_container,
    start_process,
    start_unit,
)
from console.actions.plan import changes_host, plan_from_journal, plan_to_journal
from console.actions.relaunch import plan_relaunch
from console.actions.stop import BOUND_S, SHORT_BOUND_S, plan_stop
from console.cli.serving_run import Begun, summarise, timings
from console.config.presets import load_presets
from console.errors import UsageError
from console.model import (
    Finding,
    Health,
    Host,
    Phase,
    Plan,
    Process,
    ProcessId,
    Run,
    Runner,
    Server,
    ServerState,
    Severity,
    Snapshot,
    Step,
    StepKind,
    StepResult,
)
from console.preflight.units import parse_unit
from console.runners.prepare import Ground, Node
from console.runners.settings import Choice, merge
from console.runners.systemd import Unit
from console.watch.attribution import find

HOST = Host("h")
SERVER = Server("k", "h", engine="sglang", model="/m", draft="/d", port=8000,
                speculative="eagle3-3step")  # fmt: skip
GROUND = Ground(state_dir="/s", python="/py", version="0.5.12.post1")
PRESETS = load_presets()
NOW = 1_000.0


def started(server: Server = SERVER, choice: Choice | None = None) -> Run:
    settings = merge(server, PRESETS, choice)
    return start_process(server, settings, GROUND, host="h", by="me", now=NOW).run


def process(pid: int, ppid: int, title: str, run: Run) -> Process:
    return Process(
        ProcessId(pid, pid, "boot"), ppid, pid, 100, 0, "root", "S", title[:15],
        tuple(title.split()), run_id=run.run_id, age_s=60.0,
    )  # fmt: skip


def stopped(state: ServerState | None = None, server: Server = SERVER) -> Plan:
    run = started(server)
    launcher = process(100, 1, "/py -m sglang.launch_server --port 8000", run)
    ranks = [process(101 + i, 100, f"sglang::scheduler_TP{i}", run) for i in range(2)]
    run = replace(run, launcher=launcher.id)
    snapshot = Snapshot("boot", NOW + 60, 0, (launcher, *ranks), listening={8000: 100})
    found = find(server, [run], snapshot)
    return plan_stop(server, found, state, snapshot, [run], host=HOST)


READY = ServerState("k", Phase.READY, Health.OK, running_requests=3, queued_requests=1)


def test_the_launcher_alone_is_asked_and_then_nothing_of_it_survives() -> None:
    plan = stopped(READY)
    kinds = [step.kind.value for step in plan.steps]
    assert kinds == ["drain", "signal", "wait-gone", "signal", "wait-gone", "verify"]
    drain, ask, wait, kill, *_ = plan.steps
    assert "3 running, 1 queued" in drain.why
    assert (ask.signal, [t.process.pid for t in ask.targets]) == ("TERM", [100])
    assert ask.params["exact"] is True
    assert (kill.signal, {t.process.pid for t in kill.targets}) == ("KILL", {100, 101, 102})
    assert "exact" not in kill.params
    assert drain.timeout_s == wait.timeout_s == BOUND_S


def test_a_server_that_does_not_serve_is_not_waited_for_long() -> None:
    never = ServerState("k", Phase.GRAPH_TARGET, Health.REFUSED)
    assert stopped(never).steps[2].timeout_s == SHORT_BOUND_S == 10.0
    hung = replace(READY, health=Health.TIMEOUT)
    assert stopped(hung).steps[2].timeout_s == SHORT_BOUND_S
    bundled = replace(SERVER, engine="bundled")
    assert stopped(READY, bundled).steps[2].timeout_s == SHORT_BOUND_S


def test_a_stop_without_a_server_has_no_steps() -> None:
    snapshot = Snapshot("boot", NOW, 0, ())
    plan = plan_stop(SERVER, find(SERVER, [], snapshot), None, snapshot, [], host=HOST)
    assert plan.steps == ()
    assert plan.summary[0] == "k is not running"


def test_what_brings_it_back_fits_its_runner() -> None:
    undo = decode(Step, stopped(READY).steps[0].params["again"], place="again")
    assert undo.kind is StepKind.LAUNCH
    assert undo.params["run"]["run_id"] not in stopped(READY).steps[0].params["run_id"]
    kept = replace(SERVER, runner=Runner("systemd", unit="k.service"))
    undo = decode(Step, stopped(READY, kept).steps[0].params["again"], place="again")
    assert (undo.kind, undo.argv[-2:]) == (StepKind.START_UNIT, ("--no-block", "k.service"))


def test_a_launch_checks_starts_and_watches() -> None:
    start = start_process(SERVER, merge(SERVER, PRESETS), GROUND, host="h", by="me", now=NOW)
    error = Finding("draft-context", Severity.ERROR, "too short")
    plan = plan_launch(SERVER, start, host="h", now=NOW, findings=(error,))
    assert [s.kind.value for s in plan.steps] == ["preflight", "launch", "watch"]
    assert plan.steps[0].params["errors"] == 1
    assert changes_host(plan)
    assert plan_from_journal(plan_to_journal(plan)) == plan
    brief = plan_launch(SERVER, start, host="h", now=NOW, preflight=False, watch_s=None)
    assert [s.kind.value for s in brief.steps] == ["launch", "watch"]
    assert brief.steps[-1].params["alive_s"] == 1.0


def test_a_relaunch_says_what_it_changes() -> None:
    before, choice = started(), Choice(speculative="eagle3-1step", nccl="pcie-ll-ring")
    start = start_process(
        SERVER, merge(SERVER, PRESETS, choice), GROUND, host="h", by="me", now=NOW
    )
    plan = plan_relaunch(SERVER, stopped(READY), start, before=before)
    kinds = [step.kind.value for step in plan.steps]
    assert (kinds[0], kinds[-3:]) == ("preflight", ["verify", "launch", "watch"])
    text = "\n".join(plan.summary)
    assert "--speculative-num-steps  3  →  1" in text
    assert "NCCL_PROTO  (unset)  →  LL" in text
    assert changes(before, started())[0].startswith("nothing changes")


UNIT = Unit(
    "k.service",
    "[Service]\nExecStart=/opt/bin/python3 -m sglang.launch_server --model-path /m --port 8000\n",
    None, "/etc/systemd/system/k.service.d/specops.conf",
)  # fmt: skip


def test_a_unit_gets_a_drop_in_and_can_go_back_to_an_earlier_run() -> None:
    server = replace(SERVER, runner=Runner("systemd", unit="k.service"))
    start = start_unit(server, merge(server, PRESETS), UNIT, host="h", by="me", now=NOW)
    write, begin = start.steps
    assert (write.kind, begin.kind) == (StepKind.WRITE_UNIT, StepKind.START_UNIT)
    assert write.params["before"] is None
    edited = replace(UNIT, drop_in="[Service]\nEnvironment=MINE=1\n")
    shown = start_unit(server, merge(server, PRESETS), edited, host="h", by="me", now=NOW)
    assert any("MINE=1" in line for line in shown.summary), "a hand-made edit is shown first"

    back = start_again(start.run, edited, host="h", by="me", now=NOW + 5)
    assert back.run.run_id != start.run.run_id
    text = back.steps[0].params["text"]
    assert parse_unit(UNIT.base + text).args == parse_unit(UNIT.base + write.params["text"]).args
    assert f"SPECOPS_RUN_ID={back.run.run_id}" in text
    assert start.run.run_id not in text


@pytest.mark.parametrize(
    ("own", "args", "meets"),
    [
        ("", {}, "10.0.0.1:20000"),
        ("--dist-init-addr 10.9.9.9:5000", {}, "10.9.9.9:5000"),
        ("--dist-init-addr 10.9.9.9:5000", {"dist-init-addr": "10.0.0.1:20000"}, "10.0.0.1:20000"),
    ],
)
def test_a_unit_of_one_of_several_nodes(own: str, args: dict[str, str], meets: str) -> None:
    unit = replace(UNIT, base=UNIT.base.rstrip() + f" --nnodes 4 {own}\n")
    server = replace(
        SERVER, hosts=("h", "i"), runner=Runner("systemd", unit="k.service"), args=args
    )
    node = Node(("h", "i"), 1, "ab12cd34", "10.0.0.1:20000")
    start = start_unit(
        server, merge(server, PRESETS), unit, host="i", by="me", now=NOW, node=node
    )  # fmt: skip
    flags = dict(parse_unit(unit.base + start.steps[0].params["text"]).flags)
    assert flags["--dist-init-addr"] == (meets,)
    assert (flags["--nnodes"], flags["--node-rank"]) == (("2",), ("1",))
    run = start.run
    assert (run.run_id, run.nodes, run.rank) == ("ab12cd34", ("h", "i"), 1)


def test_the_same_launch_again_has_a_name_of_its_own() -> None:
    run = replace(started(), outcome="ready", launcher=ProcessId(1, 1, "boot"), ended_at=NOW)
    new = again(run)
    assert new.argv == run.argv
    assert new.env["SPECOPS_RUN_ID"] == new.run_id != run.run_id
    assert new.run_id in new.log
    assert (new.launcher, new.outcome, new.ended_at) == (None, None, None)


def test_a_container_takes_no_presets() -> None:
    server = replace(SERVER, runner=Runner("docker", container="sg"))
    settings = merge(server, PRESETS)
    start = start_container(server, settings, host="h", by="me", now=NOW, chosen=False)
    assert start.steps[0].argv == ("docker", "start", "sg")
    with pytest.raises(UsageError, match="keeps the flags"):
        start_container(server, settings, host="h", by="me", now=NOW, chosen=True)


def test_times_have_names_and_add_up() -> None:
    plan = plan_relaunch(
        SERVER, stopped(READY),
        start_process(SERVER, merge(SERVER, PRESETS), GROUND, host="h", by="me", now=NOW),
        before=None,
    )  # fmt: skip
    results = [StepResult(i, "ok", 1.0) for i in range(len(plan.steps) - 1)]
    results.append(StepResult(len(plan.steps) - 1, "ok", 9.0, data={"seconds": 7.0}))
    assert timings(plan, results, 20.0, Begun(0.0, connect_s=0.5, answer_s=0.25)) == {
        "connect_s": 0.5,
        "drain_s": 2.25,  # its answer, the requests', and from SIGTERM to the launcher's own end
        "release_s": 2.0,  # the last of them gone, memory back
        "engine_check_s": 1.0,
        "server_start_s": 7.0,
        "confirm_s": 2.0,  # one completion after it was ready
        "other_s": 5.25,
    }


@pytest.mark.parametrize(
    ("kind", "result", "word", "code"),
    [
        ("watch", StepResult(2, "ok", 1, data={"outcome": "ready"}), "ready", 0),
        ("watch", StepResult(2, "ok", 1, data={"outcome": None}), None, 0),
        ("watch", StepResult(2, "failed", 1, data={"outcome": "failed", "exit_code": 6}),
         "failed", 6),
        ("watch", StepResult(2, "failed", 1, data={"outcome": "stalled", "exit_code": 7}),
         "stalled", 7),
        ("preflight", StepResult(0, "refused", 1, data={"exit_code": 5}), "refused", 5),
        ("launch", StepResult(1, "failed", 1), "failed", 6),
        ("launch", StepResult(1, "refused", 1), "refused", 4),
    ],
)  # fmt: skip
def test_how_a_plan_ended_is_one_word_and_one_code(
    kind: str, result: StepResult, word: str | None, code: int
) -> None:
    start = start_process(SERVER, merge(SERVER, PRESETS), GROUND, host="h", by="me", now=NOW)
    plan = plan_launch(SERVER, start, host="h", now=NOW)
    assert plan.steps[result.step].kind.value == kind
    report = summarise(plan, [result], 2.0)
    assert (report["outcome"], report["exit_code"]) == (word, code)


def test_a_run_that_served_is_known_after_its_end() -> None:
    run = started()
    assert not run.served
    assert not replace(run, outcome="stopped", phases=(("args", 1.0),)).served
    assert replace(run, outcome="stopped", phases=(("args", 1.0), ("ready", 0.0))).served
    assert replace(run, outcome="ready").served
