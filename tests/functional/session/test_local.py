"""The whole way through a real agent on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest

from console.errors import ActionFailed, HostError, Refused
from console.model import ProcessId, Target
from console.remote import HostFileError, Launch, LogSource
from console.session import Headless, Session, connect
from tests.functional.session.conftest import LOCAL, make_run

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def target_of(process: ProcessId, run_id: str | None = None) -> Target:
    return Target(process, os.getuid(), "me", "test", run_id)


async def launch_sleeper(session: Session, home: Path, run_id: str) -> ProcessId:
    run = await session.launch(Launch(make_run(run_id, SLEEPER, home / "log"), scope=False))
    assert run.launcher is not None
    return run.launcher


async def kill(session: Session, process: ProcessId) -> None:
    await session.signal([target_of(process)], "KILL")
    assert await session.wait_gone([process], 10) == []


async def test_says_who_it_is(session: Session) -> None:
    assert session.hello.uid == os.getuid()
    assert session.hello.pid != os.getpid()
    assert session.hello.clock_ticks == os.sysconf("SC_CLK_TCK")
    assert not session.hello.read_only


async def test_snapshot_sees_a_launched_server_and_its_port(session: Session, home: Path) -> None:
    code = (
        "import socket,time;s=socket.socket();s.bind(('127.0.0.1',0));s.listen();"
        "print(s.getsockname()[1],flush=True);time.sleep(600)"
    )
    run = make_run("r-port", [sys.executable, "-c", code], home / "log", env={"NCCL_ALGO": "Ring"})
    started = await session.launch(Launch(run, secrets={"HF_TOKEN": "hush"}, scope=False))
    assert started.launcher is not None
    async for chunk in session.tail(LogSource(path=str(home / "log"))):
        if chunk.data.endswith(b"\n"):
            port = int(chunk.data)
            break
    snapshot = await session.snapshot(full=True, artefacts=True)
    mine = [item for item in snapshot.processes if item.id == started.launcher]
    assert len(mine) == 1
    assert mine[0].run_id == "r-port"
    assert mine[0].env["NCCL_ALGO"] == "Ring"
    assert "HF_TOKEN" not in mine[0].env
    assert mine[0].listening == (port,)
    assert snapshot.listening[port] == mine[0].id.pid
    assert [art.holders for art in snapshot.artefacts if art.port == port] == [(mine[0].id.pid,)]
    assert os.getpid() in snapshot.protected
    assert mine[0].id.pid not in snapshot.protected
    record = json.loads((home / "state" / "runs" / "r-port.json").read_text())
    assert "hush" not in json.dumps(record)
    assert record["format"] == 1
    await kill(session, started.launcher)
    async with asyncio.timeout(60):  # it is dead at once, and gone when its parent has asked
        later = await session.snapshot()
        while started.launcher in {item.id for item in later.processes}:
            await asyncio.sleep(0.1)
            later = await session.snapshot()
    assert port not in later.listening


async def test_incremental_snapshots_agree_with_a_whole_one(session: Session, home: Path) -> None:
    process = await launch_sleeper(session, home, "r-inc")
    await session.snapshot()
    several = [await session.snapshot() for _ in range(3)]
    whole = await session.snapshot(full=True)
    before = next(item for item in several[-1].processes if item.id == process)
    after = next(item for item in whole.processes if item.id == process)
    assert (before.argv, before.env, before.cgroup) == (after.argv, after.env, after.cgroup)
    await kill(session, process)


async def test_another_start_time_is_another_process(session: Session, home: Path) -> None:
    process = await launch_sleeper(session, home, "r-reuse")
    other = ProcessId(process.pid, process.start_ticks + 1, process.boot_id)
    rebooted = ProcessId(process.pid, process.start_ticks, "another boot")
    results = await session.signal([target_of(other), target_of(rebooted)], "KILL")
    assert [item.outcome for item in results] == ["changed", "changed"]
    wrong_run = await session.signal([target_of(process, "somebody-else")], "KILL")
    assert wrong_run[0].outcome == "denied"
    os.kill(process.pid, 0)
    right = await session.signal([target_of(process, "r-reuse")], "TERM")
    assert right[0].outcome == "signalled"
    assert await session.wait_gone([process], 10) == []
    again = await session.signal([target_of(process)], "KILL")
    assert again[0].outcome == "gone"


async def test_never_signals_itself_its_ancestors_or_init(session: Session) -> None:
    snapshot = await session.snapshot(full=True)
    by_pid = {item.id.pid: item.id for item in snapshot.processes}
    for pid in (1, os.getpid(), session.hello.pid):
        result = await session.signal([target_of(by_pid[pid])], "CONT")
        assert result[0].outcome == "denied", pid


@pytest.mark.parametrize("pid", [0, -1, 1 << 22, True, 1.5])
async def test_impossible_pids_are_refused(session: Session, pid: int) -> None:
    bad = ProcessId(pid, 1, session.hello.boot_id)
    with pytest.raises(Exception, match="a process needs pid"):
        await session.signal([target_of(bad)], "KILL")


async def test_exit_status_is_kept(session: Session, home: Path) -> None:
    for run_id, code, expected in (("r-three", "raise SystemExit(3)", 3),
                                   ("r-sig", "import os;os.kill(os.getpid(), 9)", -9)):  # fmt: skip
        run = make_run(run_id, [sys.executable, "-c", code], home / "log")
        started = await session.launch(Launch(run, scope=False))
        assert started.launcher is not None
        assert await session.wait_gone([started.launcher], 10) == []
        for _ in range(100):
            status = await session.exit_status(run_id)
            if status is not None:
                break
            await asyncio.sleep(0.05)
        assert status is not None
        assert status.code == expected
    outcomes = {run.run_id: run.outcome for run in await session.runs()}
    assert outcomes == {"r-three": "exit 3", "r-sig": "exit -9"}


async def test_exec_failure_is_reported_at_once(session: Session, home: Path) -> None:
    with pytest.raises(ActionFailed, match=r"/no/such/python: No such file"):
        await session.launch(Launch(make_run("r-no", ["/no/such/python"], home / "l"), scope=False))
    assert await session.runs() == []
    bad = make_run("r-cwd", SLEEPER, home / "l", cwd="/no/such/folder")
    with pytest.raises(ActionFailed, match="no such directory"):
        await session.launch(Launch(bad, scope=False))
    twice = make_run("r-twice", SLEEPER, home / "l")
    await session.save_run(twice)
    with pytest.raises(ActionFailed, match="exists already"):
        await session.launch(Launch(twice, scope=False))


async def test_ending_the_waiting_process_leaves_the_server_running(
    session: Session, home: Path
) -> None:
    process = await launch_sleeper(session, home, "r-keeper")
    snapshot = await session.snapshot(full=True)
    me = next(item for item in snapshot.processes if item.id == process)
    os.kill(me.ppid, signal.SIGKILL)
    await asyncio.sleep(0.2)
    os.kill(process.pid, 0)
    await kill(session, process)


async def test_server_outlives_its_agent(home: Path) -> None:
    first = await connect(LOCAL, hosts={}, prompts=Headless())
    process = await launch_sleeper(first, home, "r-life")
    await first.close()
    second = await connect(LOCAL, hosts={}, prompts=Headless())
    assert [run.launcher for run in await second.runs()] == [process]
    await kill(second, process)
    await second.close()


async def test_a_thread_that_outlives_its_leader_is_not_gone(session: Session, home: Path) -> None:
    code = (
        "import ctypes,threading,time;"
        "threading.Thread(target=time.sleep,args=(600,)).start();"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    run = make_run("r-half", [sys.executable, "-c", code], home / "log")
    started = await session.launch(Launch(run, scope=False))
    process = started.launcher
    assert process is not None
    for _ in range(100):
        snapshot = await session.snapshot()
        seen = next(item for item in snapshot.processes if item.id == process)
        if seen.state == "Z":
            break
        await asyncio.sleep(0.05)
    assert seen.state == "Z"
    assert set(seen.task_states.values()) - {"Z", "X"}
    assert seen.run_id == "r-half"
    assert await session.wait_gone([process], 0.3) == [process]
    fresh = await connect(LOCAL, hosts={}, prompts=Headless())  # has never seen it whole
    other = next(item for item in (await fresh.snapshot()).processes if item.id == process)
    assert other.run_id == "r-half"
    await fresh.close()
    await kill(session, process)


async def test_run_is_bounded(session: Session) -> None:
    done = await session.run(["cat"], stdin=b"\xff\x00hello")
    assert (done.code, done.stdout) == (0, b"\xff\x00hello")
    slow = await session.run(["sleep", "60"], timeout_s=0.3)
    assert slow.code is None
    words = await session.run(["printf", "%s|", "a b", "$(id)", "x;y", ""])
    assert words.stdout == b"a b|$(id)|x;y||"
    with pytest.raises(HostFileError) as caught:
        await session.run(["/no/such/program"])
    assert caught.value.missing
    long = await session.run(["head", "-c", "9000000", "/dev/zero"])
    assert len(long.stdout) == 8 << 20


async def test_files(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    await session.write_file(str(path), b"0123456789", mode=0o640)
    assert path.stat().st_mode & 0o777 == 0o640
    assert await session.read_file(str(path), offset=-4) == b"6789"
    assert await session.read_file(str(path), offset=2, limit=3) == b"234"
    assert [item.path for item in await session.list_dir(str(tmp_path / "a"))] == [str(path)]
    missing, there = await session.stat([str(tmp_path / "no"), str(path)])
    assert (missing.kind, there.kind, there.size_bytes) == ("missing", "file", 10)
    with pytest.raises(HostFileError) as caught:
        await session.read_file(str(tmp_path / "no"))
    assert caught.value.missing
    big = os.urandom(3 << 20)
    (tmp_path / "big").write_bytes(big)
    assert await session.read_file(str(tmp_path / "big"), limit=4 << 20) == big


async def test_leftovers_are_removed_only_when_unheld_and_unchanged(session: Session) -> None:
    held = Path(f"/dev/shm/sgl_shm_test_{os.getpid()}_held")
    free = Path(f"/dev/shm/sgl_shm_test_{os.getpid()}_free")
    swapped = Path(f"/dev/shm/sgl_shm_test_{os.getpid()}_swapped")
    try:
        for path in (held, free, swapped):
            path.write_bytes(b"x" * 8192)
        with held.open("rb"):
            snapshot = await session.snapshot(full=True, artefacts=True)
            found = {item.path: item for item in snapshot.artefacts}
            assert os.getpid() in (found[str(held)].holders or ())
            assert found[str(free)].holders == ()
            swapped.rename(free.with_name(free.name + "2"))
            swapped.write_bytes(b"y")
            wanted = [found[str(path)] for path in (held, free, swapped)]
            results = dict(await session.remove(wanted))
        assert results[str(held)].startswith("held by pid")
        assert results[str(free)] == ""
        assert results[str(swapped)] == "it is another file now"
        assert held.exists()
        assert not free.exists()
        assert swapped.exists()
    finally:
        for path in (held, free, swapped, free.with_name(free.name + "2")):
            path.unlink(missing_ok=True)


async def test_journal_lock_and_records(session: Session, home: Path) -> None:
    await session.journal("plan-1", {"step": 0, "event": "intent"})
    path = home / "state" / "journals" / "plan-1.jsonl"
    with path.open("ab") as cut:
        cut.write(b'{"step": 0, "eve')
    await session.journal("plan-1", {"step": 0, "event": "result"})
    entries = (await session.journals())["plan-1"]
    assert [entry["event"] for entry in entries] == ["intent", "result"]
    assert path.stat().st_mode & 0o777 == 0o600
    await session.lock("alice on laptop")
    other = await connect(LOCAL, hosts={}, prompts=Headless())
    with pytest.raises(Refused, match="alice on laptop"):
        await other.lock("bob")
    await session.close()
    await other.lock("bob")
    await other.unlock()
    record = home / "state" / "runs" / "r-new.json"
    record.write_text(json.dumps({"format": 2, "run_id": "r-new"}))
    with pytest.raises(ActionFailed, match="newer specops"):
        await other.save_run(make_run("r-new", ["x"], home / "l"))
    for bad in ("../x", "a/b", ".hidden", ""):
        with pytest.raises(Exception, match="cannot be an id"):
            await other.journal(bad, {})
    await other.close()


async def test_read_only_agent_lacks_what_changes(home: Path) -> None:
    session = await connect(LOCAL, hosts={}, prompts=Headless(), read_only=True)
    assert session.hello.read_only
    snapshot = await session.snapshot()
    assert snapshot.processes
    me = ProcessId(os.getpid(), 1, session.hello.boot_id)
    with pytest.raises(Refused, match="read-only"):
        await session.signal([target_of(me)], "CONT")
    with pytest.raises(Refused, match="read-only"):
        await session.run(["touch", "x"])
    with pytest.raises(Refused, match="read-only"):
        await session.run(["systemctl", "--user", "stop", "x"])
    # A login's own units are looked at as any; systemctl need not be there.
    with contextlib.suppress(HostFileError):
        await session.run(["systemctl", "--user", "show", "x"])
    with pytest.raises(Refused, match="read-only"):
        await session.write_file("/x", b"")
    with pytest.raises(Refused, match="read-only"):
        await session.launch(Launch(make_run("r", ["true"], home / "l")))
    assert (await session.run(["uname"])).stdout == b"Linux\n"
    await session.close()


async def test_http_through_the_agent(session: Session) -> None:
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        bodies.append(await reader.readexactly(length))
        size = len(bodies[-1]) * 2
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size)
        writer.write(bodies[-1] * 2)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    body = os.urandom(1 << 20)
    async with httpx.AsyncClient(transport=session.http()) as client:
        answer = await client.post(f"http://127.0.0.1:{port}/generate", content=body)
        assert answer.content == body * 2
        server.close()
        await server.wait_closed()
        with pytest.raises(httpx.ConnectError, match="refused"):
            await client.get(f"http://127.0.0.1:{port}/health")
        with pytest.raises(httpx.ConnectError, match="not a port of this host"):
            await client.get("http://192.0.2.1:80/")
    assert bodies == [body]


async def test_http_read_timeout(session: Session) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        async with httpx.AsyncClient(transport=session.http(), timeout=0.3) as client:
            with pytest.raises(httpx.ReadTimeout):
                await client.get(url)


async def test_a_killed_agent_is_a_lost_host(session: Session) -> None:
    waiting = asyncio.create_task(session.run(["sleep", "30"], timeout_s=60))
    await asyncio.sleep(0.3)
    os.kill(session.hello.pid, signal.SIGKILL)
    with pytest.raises(HostError, match="here: the agent ended"):
        await waiting
    await asyncio.wait_for(session.lost.wait(), 5)
    with pytest.raises(HostError):
        await session.snapshot()


async def test_unit_status_without_systemd_is_said(session: Session) -> None:
    if session.hello.systemd:
        status = await session.unit_status("no-such-thing.service")
        assert not status.loaded
    else:
        with pytest.raises(ActionFailed, match="systemd does not run"):
            await session.unit_status("ssh.service")
