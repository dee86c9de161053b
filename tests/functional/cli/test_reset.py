"""Resetting a device: only what asks for it, what nobody holds, and what was typed; never by yes.

No device is reset here: the driver is the stub, and its nvidia-smi only notes that it was asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from console.actions.audit import AuditLog
from console.actions.executor import Executor
from console.actions.reset import plan_reset
from console.model import Plan, Snapshot
from console.session import Headless, Session, connect
from tests.functional.cli.conftest import Command
from tests.functional.session.conftest import LOCAL
from tests.nvml import Nvml

PATIENCE_S = 60.0
RESET, REBOOT, DRAIN, DRAIN_AND_RESET = 1, 2, 3, 4
"""Numbers of the driver's recovery actions."""


@pytest.fixture
def specops(specops: Command, nvml: Nvml) -> Command:
    """The command on a host with eight idle devices, whose driver can be asked to reset one."""
    if os.geteuid() != 0:
        pytest.skip("only root sees who holds a device")
    specops.env.update(nvml.env)
    nvml.resets()
    return specops


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_what_asks_and_is_free_is_planned_and_nothing_is_done_by_looking(
    specops: Command, nvml: Nvml
) -> None:
    nvml.set_gpu(3, recovery=RESET)
    ran = specops("reset-gpu", "here", "3", "--dry-run")
    assert ran.code == 1, ran.err
    assert "nvidia-smi --gpu-reset -i GPU-" in ran.out
    assert nvml.reset_calls == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 4, "nobody to confirm it"),
        (("--yes",), 4, "--yes is not enough for this (add --confirm here:3"),
        (("--confirm", "here:4"), 2, "here:4 is not what is to be reset"),
        (("--confirm", "yes"), 2, "yes is not what is to be reset"),
    ],
)
def test_only_the_typed_device_confirms_it(
    specops: Command, nvml: Nvml, words: tuple[str, ...], code: int, said: str
) -> None:
    nvml.set_gpu(3, recovery=RESET)
    ran = specops("reset-gpu", "here", "3", *words)
    assert (ran.code, nvml.reset_calls) == (code, []), ran.err
    assert said in words_of(ran.err)


@pytest.mark.parametrize(("typed", "code"), [("y", 4), ("here", 4), ("here:3", 0)])
def test_it_is_asked_for_on_a_terminal(specops: Command, nvml: Nvml, typed: str, code: int) -> None:
    nvml.set_gpu(3, recovery=RESET)
    ours, theirs = pty.openpty()
    argv = specops.argv("reset-gpu", "here", "3", "--yes")
    with subprocess.Popen(
        argv, env=specops.env, cwd=specops.folder, stdin=theirs, stderr=theirs,
        stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        os.close(theirs)
        said = b""
        while b"to do it: " not in said:
            said += os.read(ours, 4096)
        assert b"Type here:3 to do it" in said
        os.write(ours, typed.encode() + b"\n")
        assert process.wait(PATIENCE_S) == code
    os.close(ours)
    assert len(nvml.reset_calls) == (code == 0)


def test_it_is_reset_once_and_looked_at_again(specops: Command, nvml: Nvml) -> None:
    nvml.set_gpu(3, recovery=DRAIN_AND_RESET)
    uuid = nvml.query("uuid")[3]
    looked = specops("status", "--json")
    assert looked.code == 1, "a device that is not whole is something found"
    before = looked.json["hosts"][0]["gpus"][3]
    assert before["recovery_action"] == "drain and reset"
    shown = specops("zombies", "--quick").out
    assert "its driver asks for: drain and reset; nothing here holds it" in words_of(shown)
    assert "specops reset-gpu here 3" in words_of(shown)
    ran = specops("reset-gpu", "here", "3", "--confirm", "here:3", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["outcome"] == "ok"
    assert "successfully reset" in ran.json["detail"]
    assert "asks for nothing" in ran.json["detail"]
    assert [call[1:] for call in nvml.reset_calls] == [["--gpu-reset", "-i", uuid]]
    after = specops("status", "--json").json["hosts"][0]["gpus"][3]
    assert after["recovery_action"] == "none"
    audit = (specops.folder / "operator" / "specops" / "audit.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in audit]
    assert events == ["plan", "intent", "result", "end"]
    again = specops("reset-gpu", "here", "3", "--confirm", "here:3")
    assert again.code == 4
    assert "its driver asks for: nothing" in again.err


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (REBOOT, "asks for: node reboot (reboot the host)"),
        (DRAIN, "asks for: drain p2p (end the jobs that use several GPUs together"),
    ],
)
def test_what_no_reset_answers_is_refused_with_what_does(
    specops: Command, nvml: Nvml, number: int, said: str
) -> None:
    nvml.set_gpu(3, recovery=number)
    ran = specops("reset-gpu", "here", "3", "--confirm", "here:3")
    assert (ran.code, nvml.reset_calls) == (4, [])
    assert said in words_of(ran.err)


@pytest.mark.parametrize("number", [RESET, DRAIN_AND_RESET])
def test_what_is_held_is_refused_by_name(specops: Command, nvml: Nvml, number: int) -> None:
    nvml.set_gpu(3, recovery=number)
    with subprocess.Popen([sys.executable, "-c", "input()", "job-of-somebody"],
                          stdin=subprocess.PIPE) as holder:  # fmt: skip
        nvml.set_process(3, holder.pid, 40_000)
        ran = specops("reset-gpu", "here", "3", "--confirm", "here:3")
        shown = specops("status", "--json").json["hosts"][0]
        assert ran.code == 4
        assert f"held by {holder.pid} (" in ran.err
        assert "job-of-somebody" in ran.err
        wanted = "end them first" if number == RESET else "what runs may finish"
        assert wanted in ran.err
        evidence = [line for zombie in shown["zombies"] for line in zombie["evidence"]]
        assert any(f"held by {holder.pid}, to be ended first" in line for line in evidence)
        holder.communicate(b"\n")
    nvml.drop_process(3, holder.pid)
    nvml.set_elsewhere(3, 900_000, 40_000)  # of another pid namespace
    ran = specops("reset-gpu", "here", "3", "--confirm", "here:3")
    assert ran.code == 4
    assert "held by 900000 (not visible here)" in ran.err
    assert nvml.reset_calls == []


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("nvmlDeviceGetFieldValues", "is not known"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "who holds it is not known"),
    ],
)
def test_unknown_is_no_leave(specops: Command, nvml: Nvml, function: str, said: str) -> None:
    nvml.set_gpu(3, recovery=RESET)
    nvml.fail(function, 999)
    if function.endswith("Processes_v3"):
        nvml.fail(function.replace("_v3", "_v2"), 999)
    ran = specops("reset-gpu", "here", "3", "--confirm", "here:3")
    assert (ran.code, nvml.reset_calls) == (4, [])
    assert said in ran.err


def test_what_nvidia_smi_says_is_passed_on(specops: Command, nvml: Nvml) -> None:
    nvml.set_gpu(3, recovery=RESET)
    nvml.resets("in-use")
    ran = specops("reset-gpu", "here", "3", "--confirm", "here:3")
    assert ran.code == 6
    assert "In use by another client" in ran.out
    assert len(nvml.reset_calls) == 3, "the agent's own look may have had it open"


# ---- cut off in the middle


async def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.05)


async def planned(link: Session, index: int) -> Plan:
    """The plan, as soon as the driver has answered."""
    snapshot: Snapshot | None = None
    end = time.monotonic() + PATIENCE_S
    while snapshot is None or snapshot.gpu_error or not snapshot.gpus:
        assert time.monotonic() < end, "the driver never answered"
        snapshot = await link.snapshot(full=True)
    return plan_reset(snapshot, index, host=link.host)


@pytest.mark.parametrize(("how", "calls"), [("wait-after", 1), ("wait-first", 2)])
async def test_cut_off_in_the_middle_a_resume_says_what_is_true(
    specops: Command, nvml: Nvml, monkeypatch: pytest.MonkeyPatch, how: str, calls: int
) -> None:
    """The agent is killed while nvidia-smi resets, after the device was reset or before."""
    nvml.set_gpu(3, recovery=RESET)
    nvml.resets(how)
    for name in ("SPECOPS_STATE_DIR", "XDG_STATE_HOME", "LD_LIBRARY_PATH", "PATH"):
        monkeypatch.setenv(name, specops.env[name])
    link = await connect(LOCAL, hosts={}, prompts=Headless())
    try:
        plan = await planned(link, 3)
        audit = AuditLog()

        async def cut() -> None:
            reset = Path(nvml.folder, "was-reset")
            begun = reset.exists if how == "wait-after" else lambda: bool(nvml.reset_calls)
            await until(begun, "nvidia-smi was called")
            os.kill(link.hello.pid, signal.SIGKILL)
            if how == "wait-first":
                os.kill(int(nvml.reset_calls[0][0]), signal.SIGKILL)

        cutting = asyncio.create_task(cut())
        results = [result async for result in Executor(link, audit).execute(plan)]
        await cutting
    finally:
        await link.close()
    Path(nvml.folder, "go").touch()
    nvml_how = Path(nvml.folder, "how")
    nvml_how.write_text("well")
    assert results[-1].outcome == "failed"
    assert f"specops resume {plan.id}" in results[-1].detail
    specops.write(f"hosts:\n  {LOCAL.name}: {{transport: local}}\n")
    ran = await asyncio.to_thread(specops, "resume", plan.id, "--yes")
    assert ran.code == 0, ran.err
    assert ("it was reset before" in ran.out) is (how == "wait-after"), ran.out
    assert len(nvml.reset_calls) == calls
    assert not AuditLog().open_steps(plan.id)


async def test_said_to_be_done_and_not_done_is_a_failure(
    specops: Command, nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.actions.reset.VERIFY_S", 1.0)
    nvml.set_gpu(3, recovery=RESET)
    nvml.resets("silent")
    for name in ("SPECOPS_STATE_DIR", "XDG_STATE_HOME", "LD_LIBRARY_PATH", "PATH"):
        monkeypatch.setenv(name, specops.env[name])
    link = await connect(LOCAL, hosts={}, prompts=Headless())
    try:
        plan = await planned(link, 3)
        results = [result async for result in Executor(link, AuditLog()).execute(plan)]
    finally:
        await link.close()
    assert results[-1].outcome == "failed"
    assert "NOT verified: its driver still asks for: gpu reset" in results[-1].detail


async def test_who_came_between_the_plan_and_the_reset_stops_it(
    specops: Command, nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.set_gpu(3, recovery=RESET)
    for name in ("SPECOPS_STATE_DIR", "XDG_STATE_HOME", "LD_LIBRARY_PATH", "PATH"):
        monkeypatch.setenv(name, specops.env[name])
    link = await connect(LOCAL, hosts={}, prompts=Headless())
    try:
        plan = await planned(link, 3)
        nvml.set_process(3, os.getpid(), 1_000)
        await until_listed(link)
        results = [result async for result in Executor(link, AuditLog()).execute(plan)]
    finally:
        await link.close()
    assert results[-1].outcome == "refused"
    assert f"held by {os.getpid()}" in results[-1].detail
    assert nvml.reset_calls == []


async def until_listed(link: Session) -> None:
    end = time.monotonic() + PATIENCE_S
    while not any(gpu.processes for gpu in (await link.snapshot(full=True)).gpus):
        assert time.monotonic() < end, "never listed"
