"""Each specimen is what it says it is, and nothing of any stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nvml import Nvml
from tests.rig.nspawn import NspawnHost
from tests.rig.nspawn import missing as no_hosts
from tests.rig.plugin import require
from tests.trouble.api import Specimen, TroubleError, make
from tests.trouble.kinds import KINDS, NAMES
from tests.trouble.process import answers, start_ticks, state, until
from tests.trouble.sweeper import thaw_later

pytestmark = pytest.mark.hosts


@pytest.fixture(autouse=True)
def _root() -> None:
    require(no_hosts())


def cmdline(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()


def environ(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")


def parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[1])


def rss_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0


def gone(pid: int, ticks: int | None) -> bool:
    """No such process, or only its unreaped entry."""
    return start_ticks(pid) != ticks or state(pid) in ("Z", "")


def one(kind: str) -> Callable[[Specimen], None]:
    """The check that belongs to a kind."""
    return CHECKS[kind]


def check_orphan(it: Specimen) -> None:
    assert state(it.pids["launcher"]) == ""
    for rank, pid in enumerate(it.ranks):
        assert cmdline(pid) == f"sglang::scheduler_TP{rank}"
        assert Path(f"/proc/{pid}/comm").read_text() == "sglang::schedul\n"
        assert parent(pid) not in it.pids.values()
        assert rss_mib(pid) >= 4
        assert "SPECOPS_RUN_ID=run-0" in environ(pid)


def check_half_dead(it: Specimen) -> None:
    for pid in it.ranks:
        assert state(pid) == "Z"
        tasks = [p.name for p in Path(f"/proc/{pid}/task").iterdir() if p.name != str(pid)]
        assert [state_of_task(pid, task) for task in tasks] in (["S"], ["R"])


def state_of_task(pid: int, task: str) -> str:
    stat = Path(f"/proc/{pid}/task/{task}/stat").read_bytes()
    return chr(stat[stat.rindex(b")") + 2])


def check_headless(it: Specimen) -> None:
    assert cmdline(it.pids["launcher"]).startswith("python3 -m sglang.launch_server")
    assert all(start_ticks(pid) != it.starts["launcher"] for pid in it.ranks)
    assert all(state(pid) == "" for pid in it.ranks)


def check_never_ready(it: Specimen) -> None:
    assert parent(it.ranks[0]) == it.pids["launcher"]
    assert it.ports == ()
    assert time.time() - Path(it.paths[0]).stat().st_mtime > 7000


def check_hung(it: Specimen) -> None:
    assert it.more["answered"] is True
    with socket.create_connection(("127.0.0.1", it.ports[0]), timeout=2) as link:
        link.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        link.settimeout(0.3)
        with pytest.raises(TimeoutError):
            link.recv(1)


def check_defunct(it: Specimen) -> None:
    assert [state(pid) for pid in it.ranks] == ["Z"] * len(it.ranks)
    assert state(it.pids["launcher"]) in ("R", "S")


def check_stuck(it: Specimen) -> None:
    stuck = it.ranks or (it.pids["writer"],)
    assert [state(pid) for pid in stuck] == ["D"] * len(stuck)


def check_leftover(it: Specimen) -> None:
    assert all(Path(path).exists() for path in it.paths)
    assert state(it.more["dead_pid"]) == ""
    maps = Path(f"/proc/{it.pids['user']}/maps").read_text()
    assert it.more["mapped"][0] in maps
    assert not any(path in maps for path in it.paths)
    stale = next(path for path in it.paths if "ipc" in path)
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(stale)


def check_unlinked(it: Specimen) -> None:
    assert not Path(it.more["unlinked"]).exists()
    assert f"{it.more['unlinked']} (deleted)" in Path(f"/proc/{it.ranks[0]}/maps").read_text()


def check_held_port(it: Specimen) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", it.ports[0]))


def check_foreign_user(it: Specimen) -> None:
    assert Path(f"/proc/{it.ranks[0]}").stat().st_uid in (0, 1001)  # root's after a setuid
    status = Path(f"/proc/{it.ranks[0]}/status").read_text()
    assert "Uid:\t1001\t1001\t1001\t1001" in status


def check_training(it: Specimen) -> None:
    assert {"RANK=0", "WORLD_SIZE=8", "LOCAL_RANK=0"} <= set(environ(it.pids["process"]))
    assert cmdline(it.pids["process"]).startswith("python3 train.py")


def check_process(it: Specimen) -> None:
    assert "sglang" not in cmdline(it.pids["process"])


def check_namespace(it: Specimen) -> None:
    there = str(Path(f"/proc/{it.ranks[0]}/ns/pid").readlink())
    assert there == it.more["namespace"] != str(Path("/proc/self/ns/pid").readlink())


def check_healthy(it: Specimen) -> None:
    assert answers(it.ports[0])
    assert parent(it.ranks[0]) == it.pids["launcher"]


def check_busy(it: Specimen) -> None:
    check_healthy(it)
    assert state(it.ranks[0]) == "R"


def check_slow_loader(it: Specimen) -> None:
    def seen() -> tuple[int, int]:
        io = Path(f"/proc/{it.ranks[0]}/io").read_text().split()
        return int(io[1]), Path(it.paths[0]).stat().st_size

    before, deadline = seen(), time.monotonic() + 20
    while not all(now > then for now, then in zip(seen(), before, strict=True)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check_double_fork(it: Specimen) -> None:
    check_healthy(it)
    assert parent(parent(it.ranks[0])) in (1, *_subreapers())


def _subreapers() -> list[int]:
    """Ancestors of this test, one of which may adopt orphans."""
    chain, pid = [], os.getpid()
    while pid > 1:
        pid = parent(pid)
        chain.append(pid)
    return chain


def check_storm(it: Specimen) -> None:
    launcher = it.pids["launcher"]
    os.kill(it.ranks[0], signal.SIGTERM)
    deadline = time.monotonic() + 20
    while len(_sessions_of("sglang::scheduler_TP2")) < 2:
        assert time.monotonic() < deadline, [(pid, state(pid)) for pid in it.pids.values()]
        time.sleep(0.02)
    assert state(launcher) in ("R", "S")


def _sessions_of(title: str) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(title.encode()):
                found.add(os.getsid(int(entry.name)))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


CHECKS: dict[str, Callable[[Specimen], None]] = {
    "orphan": check_orphan,
    "half-dead": check_half_dead,
    "headless": check_headless,
    "never-ready": check_never_ready,
    "hung-stopped": check_hung,
    "hung-deadlocked": check_hung,
    "defunct": check_defunct,
    "stuck-vfork": check_stuck,
    "stuck-frozen": check_stuck,
    "leftover": check_leftover,
    "unlinked": check_unlinked,
    "held-port": check_held_port,
    "foreign-user": check_foreign_user,
    "foreign-training": check_training,
    "foreign-python": check_process,
    "foreign-monitor": check_process,
    "other-namespace": check_namespace,
    "storm": check_storm,
    "healthy": check_healthy,
    "busy": check_busy,
    "slow-loader": check_slow_loader,
    "double-fork": check_double_fork,
}


@pytest.mark.parametrize("kind", NAMES)
def test_is_what_it_says_and_goes_without_a_trace(kind: str) -> None:
    with make(kind, ranks=2, mib=4, run_id="run-{}", age_s=7200) as trouble:
        (specimen,) = trouble.specimens
        assert specimen.kind == kind
        one(kind)(specimen)
    for name, pid in specimen.pids.items():
        assert gone(pid, specimen.starts[name]), name
    left = [*specimen.paths, *specimen.more.get("mapped", ())]
    assert [path for path in left if Path(path).exists()] == []
    assert "specops-trouble" not in Path("/proc/self/mounts").read_text()


def test_every_kind_has_its_check_and_says_what_it_is() -> None:
    assert set(CHECKS) == set(NAMES)
    assert all(made.__doc__ for made in KINDS.values())


@pytest.mark.parametrize("kind", ["orphan", "stuck-frozen", "storm"])
def test_a_killed_maker_leaves_nothing(kind: str) -> None:
    with make(kind, ranks=3) as trouble:
        (specimen,) = trouble.specimens
        os.kill(trouble.pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while not all(gone(pid, specimen.starts[name]) for name, pid in specimen.pids.items()):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_frozen_file_system_is_thawed_by_the_watchdog_too() -> None:
    with make("stuck-frozen") as trouble:
        (specimen,) = trouble.specimens
        pid = specimen.pids["writer"]
        assert state(pid) == "D"
        thaw_later(specimen.paths[0], 0.0)
        until(lambda: state(pid) == "S", "the end of the wait")


def test_many_at_once() -> None:
    with make("orphan", 3, ranks=20, run_id="r{}") as trouble:
        ranks = [pid for specimen in trouble.specimens for pid in specimen.ranks]
        assert len(set(ranks)) == 60
        assert [specimen.run_id for specimen in trouble.specimens] == ["r0", "r1", "r2"]


def test_what_cannot_be_made_says_why() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.trouble", "unheard-of"], capture_output=True, check=False
    )
    assert done.returncode == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(TroubleError, match="Address already in use"):
            make("healthy", port=taken.getsockname()[1])


def test_in_a_host_orphans_belong_to_its_init(nspawn_host: NspawnHost) -> None:
    with make("orphan", 2, ranks=3, mib=2, host=nspawn_host) as trouble:
        for specimen in trouble.specimens:
            for pid in specimen.ranks:
                assert parent(nspawn_host.outer_pid(pid)) == nspawn_host.pid()
    left = nspawn_host.run(["ps", "-eo", "args"]).stdout
    assert b"sglang" not in left


def test_gpu_memory_follows_a_specimen(nvml: Nvml) -> None:
    with make("half-dead", ranks=2) as trouble:
        first, second = trouble.specimens[0].ranks
        nvml.set_process(0, first, 1000)
        nvml.set_process(1, second, 2000)
        assert (nvml.used_mib(0), nvml.used_mib(1)) == (1000, 2000)  # Z, yet a thread lives
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while nvml.used_mib(0) != 0:
            assert time.monotonic() < deadline
        assert nvml.used_mib(1) == 2000
