"""Which processes are a server, and which only look like one."""

from dataclasses import replace

from console.cli.documents import status_host
from console.model import (
    Health,
    Host,
    HostState,
    HostView,
    Phase,
    Process,
    ProcessId,
    Run,
    Runner,
    Server,
    ServerState,
    Snapshot,
)
from console.planning.looking import runs_already
from console.watch.attribution import answers_for, argv_port, find, looks_like_server, unlisted
from console.watch.eye import note

BOOT = "b"
SERVER = Server("k25", "h", engine="sglang", port=30000, model="/m")
LAUNCH = ("/py", "-m", "sglang.launch_server", "--model-path", "/m", "--port", "30000")


def process(pid: int, *argv: str, ppid: int = 1, run_id: str | None = None) -> Process:
    return Process(
        id=ProcessId(pid, pid * 10, BOOT), ppid=ppid, pgid=pid, sid=pid, uid=0, user="root",
        state="S", comm="x", argv=argv, run_id=run_id,
    )  # fmt: skip


def snapshot(*processes: Process, listening: dict[int, int | None] | None = None) -> Snapshot:
    return Snapshot(BOOT, 100.0, 0, processes, listening=listening or {})


def run(run_id: str, launcher: int | None = None, at: float = 1.0) -> Run:
    who = ProcessId(launcher, launcher * 10, BOOT) if launcher else None
    return Run(
        run_id=run_id, server="k25", engine="sglang", host="h", argv=LAUNCH, env={}, cwd="/",
        log="/l", port=30000, launcher=who, session=None, unit=None, launched_at=at,
        launched_by="me",
    )  # fmt: skip


def test_a_run_is_found_by_its_id_and_its_launcher_is_the_main_process() -> None:
    worker = process(11, "sglang::scheduler_TP0", ppid=10, run_id="r1")
    launcher = process(10, *LAUNCH, run_id="r1")
    found = find(SERVER, [run("r1", 10)], snapshot(worker, launcher))
    assert found.how == "run"
    assert found.main == launcher
    assert found.processes == (worker, launcher)


def test_a_worker_that_outlived_its_launcher_is_still_the_server() -> None:
    worker = process(11, "sglang::scheduler_TP0", run_id="r1")
    found = find(SERVER, [run("r1", 10)], snapshot(worker))
    assert found.alive
    assert found.main == worker


def test_a_reused_pid_is_not_the_launcher() -> None:
    stranger = process(10, "vim")
    again = replace(run("r1", 10), launcher=ProcessId(10, 999, BOOT))
    found = find(SERVER, [again], snapshot(stranger))
    assert not found.alive
    assert found.run == again


def test_an_old_run_that_lives_beats_a_newer_record_without_processes() -> None:
    old = process(10, *LAUNCH, run_id="old")
    found = find(SERVER, [run("new", 77, at=9.0), run("old", 10, at=1.0)], snapshot(old))
    assert found.run is not None
    assert found.run.run_id == "old"


def test_a_run_serves_where_it_listens_not_where_hosts_yaml_says() -> None:
    mine = process(10, *LAUNCH, run_id="r1")
    theirs = process(20, *LAUNCH)
    record = replace(run("r1", 10), port=30077)
    seen = snapshot(mine, theirs, listening={30077: 10, 30000: 20})
    found = find(SERVER, [record], seen)
    assert (found.main, found.port) == (mine, 30077)
    assert note(SERVER, found) == "runs on 30077, hosts.yaml says 30000"
    assert answers_for(found, 30077, seen)
    assert not answers_for(found, 30000, seen)
    assert find(SERVER, [record], snapshot(mine, theirs, listening={30000: 20})).port == 30077
    assert find(SERVER, [record], snapshot(mine, listening={30000: 10})).port == 30000


def test_a_proxy_may_hold_a_servers_port() -> None:
    mine, proxy = process(10, *LAUNCH, run_id="r1"), process(20, "docker-proxy")
    seen = snapshot(mine, proxy, listening={30000: 20})
    found = find(SERVER, [run("r1", 10)], seen)
    assert found.port == 30000
    assert answers_for(found, 30000, seen)
    assert note(SERVER, found) is None


def test_who_started_a_server_by_hand_is_said() -> None:
    found = find(SERVER, [], snapshot(process(10, *LAUNCH), listening={30000: 10}))
    assert note(SERVER, found) == "not launched by specops: pid 10 of root"
    error = runs_already(SERVER, found, "h")
    assert "not launched by specops: pid 10 of root" in str(error)
    assert "relaunch" not in error.hint, "what is not ours is not offered to be ended"
    assert "specops adopt h 10" in error.hint
    assert "pid 10" in str(runs_already(SERVER, replace(found, run=run("r1", 10)), "h"))


def test_a_wrapper_is_not_the_main_process() -> None:
    wrapper = process(9, "timeout", "600", *LAUNCH)
    launcher = process(10, "python3", *LAUNCH[1:], ppid=9)
    child = process(11, "python3", "-c", "from multiprocessing.spawn import x", ppid=10)
    found = find(SERVER, [], snapshot(wrapper, launcher, child, listening={30000: 11}))
    assert found.main == launcher


def test_an_adopted_run_is_its_launcher_with_all_below_it() -> None:
    launcher = process(10, *LAUNCH)
    front = process(11, *LAUNCH, ppid=10)
    seen = snapshot(launcher, front, process(12, *LAUNCH), listening={30000: 11})
    found = find(SERVER, [replace(run("r1", 10), adopted=True)], seen)
    assert found.processes == (launcher, front)
    assert answers_for(found, 30000, seen)


def test_servers_started_by_hand_are_told_apart_from_the_configured_ones() -> None:
    mine = process(10, "python3", *LAUNCH[1:], run_id="r1")
    inner = process(11, "python3", *LAUNCH[1:], ppid=10)
    wrapper = process(20, "timeout", "600", *LAUNCH)
    other = process(21, "python3", *LAUNCH[1:-1], "30091", ppid=20)
    worker = process(22, "sglang::scheduler_TP0", ppid=21)
    editor = process(23, "vim", "sglang.launch_server")
    state = ServerState("k25", Phase.READY, Health.OK, pid=10, run_id="r1")
    seen = snapshot(mine, inner, wrapper, other, worker, editor)
    view = HostView(Host("h"), HostState.OK, snapshot=seen, servers=(state,))
    assert unlisted(view) == [other]
    told = status_host(view, 0.0)["unlisted"]
    assert [(one["pid"], one["port"]) for one in told] == [(21, 30091)]
    assert unlisted(HostView(Host("h"), HostState.UNREACHABLE)) == []


def test_a_stranger_at_the_port_is_not_the_server() -> None:
    nginx = process(20, "nginx")
    assert not find(SERVER, [], snapshot(nginx, listening={30000: 20})).alive


def test_a_server_started_by_hand_is_found_by_port_and_by_command_line() -> None:
    launcher = process(10, *LAUNCH)
    child = process(11, "sglang::detokenizer", ppid=10)
    at_port = find(SERVER, [], snapshot(launcher, child, listening={30000: 11}))
    assert at_port.how == "port"
    assert at_port.main == launcher
    loading = find(SERVER, [], snapshot(launcher, child))
    assert loading.how == "argv"
    assert loading.processes == (launcher, child)


def test_another_servers_port_in_the_command_line_is_not_ours() -> None:
    other = process(10, *LAUNCH[:-1], "30001")
    assert not find(SERVER, [], snapshot(other)).alive


def test_a_unit_is_recognised_by_its_cgroup() -> None:
    server = replace(SERVER, runner=Runner("systemd", unit="k.service"))
    inside = replace(process(10, "/opt/start.sh"), unit="k.service")
    found = find(server, [], snapshot(inside, process(11, "x")))
    assert (found.how, found.processes) == ("unit", (inside,))


def test_the_dead_are_not_the_server() -> None:
    dead = replace(process(10, *LAUNCH, run_id="r1"), state="Z")
    assert not find(SERVER, [run("r1", 10)], snapshot(dead)).alive
    half = replace(dead, task_states={10: "Z", 12: "S"})
    assert find(SERVER, [run("r1", 10)], snapshot(half)).alive


def test_what_a_server_looks_like() -> None:
    assert looks_like_server(process(1, "sglang", "serve", "--port", "1"))
    assert looks_like_server(process(1, "/py", "/v/bin/vllm", "serve", "m"))
    assert not looks_like_server(process(1, "grep", "sglang"))
    assert argv_port(process(1, "sglang", "serve"), "sglang") == 30000
    assert argv_port(process(1, "vllm", "serve", "m", "--port=9"), "vllm") == 9
    assert argv_port(process(1, "sglang::scheduler_TP0"), "sglang") is None


def test_a_server_of_another_name_at_the_same_port_is_not_this_one() -> None:
    other = replace(run("r9", 10), server="k26")
    launcher = process(10, *LAUNCH, run_id="r9")
    assert not find(SERVER, [other], snapshot(launcher, listening={30000: 10})).alive


def test_another_engine_or_another_model_at_the_port_is_somebody_elses() -> None:
    vllm = process(10, "/py", "-m", "vllm.entrypoints.openai.api_server", "--port", "30000")
    model = process(11, *(word if word != "/m" else "/theirs" for word in LAUNCH))
    for stranger in (vllm, model):
        found = find(SERVER, [], snapshot(stranger, listening={30000: stranger.id.pid}))
        assert not found.alive
    same = process(12, *(word if word != "/m" else "/m/" for word in LAUNCH))
    assert find(SERVER, [], snapshot(same, listening={30000: 12})).alive
    by_name = process(13, *(word if word != "/m" else "org/m" for word in LAUNCH))
    assert find(SERVER, [], snapshot(by_name, listening={30000: 13})).alive


def test_what_outlives_its_launcher_is_orphaned_and_a_new_launcher_takes_its_place() -> None:
    worker = process(11, "sglang::scheduler_TP0", run_id="r1")
    helper = process(12, "python", run_id="r1")
    runs = [run("r1", 10)]
    found = find(SERVER, runs, snapshot(worker, helper))
    assert found.orphaned
    assert found.remains == "pid 11 and 1 more are left of it"
    assert "remains of run r1" in runs_already(SERVER, found, "h").message
    again = process(13, *LAUNCH, run_id="r1")  # its unit has restarted it
    assert not find(SERVER, runs, snapshot(worker, again)).orphaned
    assert not find(SERVER, runs, snapshot(process(10, *LAUNCH, run_id="r1"), worker)).orphaned
    assert not find(SERVER, [run("r1")], snapshot(worker)).orphaned, "its launcher is not known"
