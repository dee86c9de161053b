"""Steps of serving that were interrupted and are begun again: nothing happens twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from console.actions.codec import decode
from console.actions.launch import launch_step, preflight_step, start_step, write_step
from console.actions.serving import Serving, launch, start_unit, write_unit
from console.actions.steps import Context, Outcome
from console.errors import ConfigError
from console.model import (
    Finding,
    Host,
    Plan,
    Process,
    ProcessId,
    Run,
    Severity,
    Snapshot,
    Step,
    StepKind,
)
from console.remote import Completed, FileStat, HostFileError, Launch, Remote

RUN = Run(
    "ab12cd34", "k", "sglang", "h", ("/py", "-m", "sglang.launch_server"),
    {"SPECOPS_RUN_ID": "ab12cd34"}, "/", "/s/k.log", 8000, None, None, None, 5.0, "me",
)  # fmt: skip
PATH = "/etc/systemd/system/k.service.d/specops.conf"


class Machine:
    """Files, records and processes of a host, and what was asked of it."""

    def __init__(self) -> None:
        self.host = Host("h")
        self.hello = type("Hello", (), {"uid": 0, "user": "root", "read_only": False})()
        self.files: dict[str, bytes] = {"/s/k.log": b"older run\n"}
        self.records: dict[str, Run] = {}
        self.processes: tuple[Process, ...] = ()
        self.listening: list[dict[int, int | None]] = [{}]
        self.launched: list[Launch] = []
        self.commands: list[tuple[str, ...]] = []

    async def snapshot(self, *, full: bool = False, artefacts: bool = False) -> Snapshot:
        listening = self.listening.pop(0) if len(self.listening) > 1 else self.listening[0]
        return Snapshot("boot", 100.0, 0, self.processes, listening=listening)

    async def runs(self) -> list[Run]:
        return list(self.records.values())

    async def save_run(self, run: Run) -> None:
        self.records[run.run_id] = run

    async def stat(self, paths: list[str]) -> list[FileStat]:
        return [FileStat(p, "file", len(self.files[p])) for p in paths]

    async def launch(self, launch: Launch) -> Run:
        self.launched.append(launch)
        started = replace(launch.run, launcher=ProcessId(7, 7, "boot"))
        self.records[started.run_id] = started
        return started

    async def read_file(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        if path not in self.files:
            raise HostFileError("not there", errno=2)
        return self.files[path]

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        self.files[path] = data

    async def run(self, argv: tuple[str, ...], **_: Any) -> Completed:
        self.commands.append(tuple(argv))
        if argv[0] == "rm":
            del self.files[argv[-1]]
        said = b'{"__CURSOR":"s=1"}\n' if argv[0] == "journalctl" else b""
        return Completed(0, said, b"")


def context(machine: Machine, step: Step) -> Context:
    plan = Plan("p", "launch", "h", (step,))
    return Context(plan, 0, cast("Remote", machine), {}, lambda _line: None, in_doubt=True)


async def launched(machine: Machine, run: Run = RUN) -> Outcome:
    step = launch_step(run)
    return await launch(step, context(machine, step))


async def test_a_start_notes_what_was_there_before() -> None:
    machine = Machine()
    outcome = await launched(machine)
    assert outcome.outcome == "ok"
    (asked,) = machine.launched
    assert asked.run.log_offset == len(b"older run\n")
    undo = decode(Step, outcome.data["undo"], place="undo")
    assert (undo.signal, undo.targets[0].process.pid) == ("KILL", 7)
    assert (await launched(machine)).outcome == "ok"
    assert len(machine.launched) == 1, "a recorded run is not started again"


async def test_a_run_alive_but_not_recorded_is_found_by_its_id() -> None:
    machine = Machine()
    machine.processes = tuple(
        Process(
            ProcessId(pid, pid, "boot"), ppid, pid, 50, 0, "root", "S", "py",
            run_id=RUN.run_id, unit="specops-ab12cd34.service", age_s=9.0,
        )
        for pid, ppid in ((51, 50), (50, 1))
    )  # fmt: skip
    outcome = await launched(machine)
    assert machine.launched == []
    found = machine.records[RUN.run_id]
    assert found.launcher is not None
    assert (found.launcher.pid, found.launched_at) == (50, 91.0)
    undo = decode(Step, outcome.data["undo"], place="undo")
    assert (undo.kind, undo.argv) == (
        StepKind.STOP_UNIT, ("systemctl", "stop", "specops-ab12cd34.service"),
    )  # fmt: skip


async def test_a_port_that_is_just_going_is_waited_for() -> None:
    machine = Machine()
    machine.listening = [{8000: 3}, {8000: 3}, {}]
    assert (await launched(machine)).outcome == "ok"


async def test_a_taken_port_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.actions.launched.PORT_S", 0.0)
    machine = Machine()
    machine.listening = [{8000: 3}]
    outcome = await launched(machine)
    assert (outcome.outcome, outcome.detail) == ("failed", "port 8000 is taken by pid 3")
    assert machine.launched == []


async def test_secrets_are_put_in_at_the_last_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(RUN, env={**RUN.env, "HF_TOKEN": "secret:MY_TOKEN"})
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    monkeypatch.delenv("MY_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="MY_TOKEN"):
        await launched(Machine(), run)
    monkeypatch.setenv("MY_TOKEN", "hush")
    machine = Machine()
    await launched(machine, run)
    assert machine.launched[0].secrets == {"HF_TOKEN": "hush"}
    assert machine.launched[0].run.env["HF_TOKEN"] == "secret:MY_TOKEN"


@pytest.mark.parametrize(
    ("severity", "outcome"), [(Severity.ERROR, "refused"), (Severity.WARNING, "ok")]
)
async def test_the_hosts_own_engine_has_a_say_before_anything_is_stopped(
    severity: Severity, outcome: str
) -> None:
    asked: list[tuple[str, ...]] = []

    async def engine(
        _remote: Remote, argv: tuple[str, ...], _run: Run | None
    ) -> tuple[Finding, ...]:
        asked.append(argv)
        return (Finding("engine-refuses", severity, "SGLang refuses these flags"),)

    step = preflight_step("h", RUN.argv, ())
    result = await Serving({}, engine).preflight(step, context(Machine(), step))
    assert (result.outcome, asked) == (outcome, [RUN.argv])
    assert "SGLang refuses these flags" in result.detail
    assert result.data["findings"][0]["rule"] == "engine-refuses"
    assert result.data.get("exit_code") == (5 if severity is Severity.ERROR else None)


async def written(machine: Machine, text: str | None, before: str | None) -> Outcome:
    step = write_step("h", PATH, text, before=before, manager=("systemctl",))
    return await write_unit(step, context(machine, step))


async def test_a_drop_in_is_written_read_again_and_undone() -> None:
    machine = Machine()
    outcome = await written(machine, "new", None)
    assert machine.files[PATH] == b"new"
    assert machine.commands == [("systemctl", "daemon-reload")]
    assert (await written(machine, "new", None)).outcome == "ok", "begun again after a crash"
    undo = decode(Step, outcome.data["undo"], place="undo")
    assert (await write_unit(undo, context(machine, undo))).outcome == "ok"
    assert PATH not in machine.files


async def test_a_drop_in_that_changed_meanwhile_is_left_alone() -> None:
    machine = Machine()
    machine.files[PATH] = b"by hand"
    assert (await written(machine, "new", "old")).outcome == "refused"
    assert machine.files[PATH] == b"by hand"


async def test_a_unit_is_recorded_once_and_again_after_its_end() -> None:
    machine = Machine()
    run = replace(RUN, unit="k.service", log="")
    step = start_step(run, "k.service", ("systemctl",))
    await start_unit(step, context(machine, step))
    assert machine.records[run.run_id].log_cursor == "s=1"
    marked = replace(machine.records[run.run_id], log_cursor="s=0")
    machine.records[run.run_id] = marked
    await start_unit(step, context(machine, step))
    assert machine.records[run.run_id] == marked, "its part of the journal begins where it began"
    machine.records[run.run_id] = replace(marked, outcome="stopped", ended_at=9.0)
    await start_unit(step, context(machine, step))
    fresh = machine.records[run.run_id]
    assert (fresh.outcome, fresh.ended_at, fresh.log_cursor) == (None, None, "s=1")
    assert machine.commands[-1] == ("systemctl", "start", "--no-block", "k.service")
