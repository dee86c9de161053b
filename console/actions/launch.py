"""Plan a launch: what is written, what is started, how it is watched."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from console.actions.codec import encode
from console.actions.journal import new_plan_id
from console.errors import UsageError
from console.model import Finding, Plan, Run, Server, Step, StepKind
from console.runners.docker import container_run, renewed, version_in
from console.runners.prepare import RUN_VARIABLE, Ground, Node, Prepared, new_run_id, prepare
from console.runners.settings import Settings
from console.runners.systemd import (
    Unit,
    UnitLaunch,
    command_of,
    launch_of,
    systemctl,
    written,
)

WATCH_S = 3600.0
"""Bound on watching a start where none is given; single phases have their own, shorter bounds."""
ALIVE_S = 1.0
"""A launch that nobody waits for must at least live so long: most mistakes end it at once."""


@dataclass(frozen=True, slots=True)
class Start:
    """One launch put together: the run to record and the steps that start it.

    ``secrets`` are the names of the secrets whose values the start needs.
    """

    run: Run
    settings: Settings
    steps: tuple[Step, ...]
    summary: tuple[str, ...] = ()
    version: str | None = None
    secrets: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line that will run."""
        return self.run.argv


def start_process(
    server: Server, settings: Settings, ground: Ground, *, host: str, by: str, now: float
) -> Start:
    """A launch by the process runner."""
    run_id = ground.node.run_id if ground.node else new_run_id()
    made = prepare(server, settings, ground, run_id=run_id, launched_by=by, now=now)
    run = replace(made.run, host=host)
    step = launch_step(run, made)
    log = (f"log: {run.log}",)
    return Start(run, settings, (step,), log, ground.version, made.secret_names)


def launch_step(run: Run, made: Prepared | None = None) -> Step:
    """The step that starts a process of its own and writes its run record."""
    params: dict[str, Any] = {"run": encode(run)}
    if made is not None and made.config:
        params |= {"config_path": made.config_path, "config": dict(made.config)}
    return Step(
        StepKind.LAUNCH,
        run.host,
        f"start {run.server} as run {run.run_id}",
        argv=run.argv,
        dangerous=True,
        verify="it can be executed; it runs in a unit or session of its own",
        timeout_s=60.0,
        params=params,
    )


def start_unit(
    server: Server, settings: Settings, unit: Unit, *, host: str, by: str, now: float,
    version: str | None = None, node: Node | None = None,
) -> Start:  # fmt: skip
    """A launch by systemd: the drop-in, then the unit."""
    run_id = node.run_id if node else new_run_id()
    base = command_of(unit)
    if node is not None:
        more = dict(node.flags)
        if "dist-init-addr" not in settings.flags and "--dist-init-addr" in dict(base.flags):
            del more["dist-init-addr"]  # the unit knows where they meet
        settings = replace(settings, flags={**settings.flags, **more})
    made = launch_of(unit, settings, run_id=run_id, version=version)
    run = Run(
        run_id=run_id,
        server=server.name,
        engine=server.engine,
        host=host,
        argv=made.argv,
        env={name: value for name, value in made.env.items() if name in settings.env},
        cwd=base.cwd or "/",
        log=base.log or "",
        port=server.port,
        launcher=None,
        session=None,
        unit=unit.name,
        launched_at=now,
        launched_by=by,
        model=_value(made.argv, "--model-path") or server.model,
        draft=_value(made.argv, "--speculative-draft-model-path") or server.draft,
        speculative=settings.speculative,
        nccl=settings.nccl,
        preset=settings.preset,
        nodes=node.hosts if node else (),
        rank=node.rank if node else 0,
    )
    return Start(run, settings, unit_steps(run, unit, made), _unit_summary(unit, made))


def start_again(
    old: Run, unit: Unit | None, *, host: str, by: str, now: float, run_id: str | None = None
) -> Start:
    """An earlier launch once more, exactly as it was: the way back to what has served."""
    run = replace(again(old, run_id), host=host, launched_by=by, launched_at=now)
    settings = Settings(speculative=old.speculative, nccl=old.nccl, preset=old.preset)
    lines = (f"as run {old.run_id}",)
    if run.argv[:2] == ("docker", "run"):
        name = next(w for w in run.argv if w.startswith("--name=")).partition("=")[2]
        return Start(run, settings, (container_step(run, name, anew=True),), lines)
    if unit is None:
        return Start(run, settings, (launch_step(run),), lines)
    own = {name: value for name, value in old.env.items() if name != RUN_VARIABLE}
    made = written(unit, old.argv, own, {}, run.run_id)
    return Start(run, settings, unit_steps(run, unit, made), (f"as run {old.run_id}",))


def again(run: Run, run_id: str | None = None) -> Run:
    """The same launch as a run of its own, with its own id and log."""
    run_id = run_id or new_run_id()
    return replace(
        run,
        run_id=run_id,
        argv=renewed(run.argv, run.run_id, run_id) if run.argv[0] == "docker" else run.argv,
        env={**run.env, RUN_VARIABLE: run_id},
        log=run.log.replace(run.run_id, run_id),
        launcher=None,
        session=None,
        outcome=None,
        ended_at=None,
        phases=(),
        failure="",
        adopted=False,
        acknowledged=False,
        cleared="",
    )


def unit_steps(run: Run, unit: Unit, made: UnitLaunch) -> tuple[Step, ...]:
    """Write the drop-in, then start."""
    manager = systemctl(unit.user)
    write = write_step(run.host, unit.drop_in_path, made.text, before=unit.drop_in, manager=manager)
    return (write, start_step(run, unit.name, manager))


def start_step(run: Run, unit: str, manager: Sequence[str]) -> Step:
    """Let systemd start a unit, recorded as this run."""
    return Step(
        StepKind.START_UNIT,
        run.host,
        f"start unit {unit} as run {run.run_id}",
        argv=(*manager, "start", "--no-block", unit),
        dangerous=True,
        verify="systemd takes the job",
        timeout_s=30.0,
        params={"run": encode(run), "unit": unit, "systemctl": list(manager)},
    )


def write_step(
    host: str, path: str, text: str | None, *, before: str | None, manager: Sequence[str]
) -> Step:
    """Replace (or, with ``None``, remove) a drop-in; undone by writing what was there before."""
    return Step(
        StepKind.WRITE_UNIT,
        host,
        f"write {path}" if text is not None else f"remove {path}",
        dangerous=True,
        verify="the file holds exactly this; systemd has read it again",
        timeout_s=30.0,
        params={"path": path, "text": text, "before": before, "systemctl": list(manager)},
    )


def _unit_summary(unit: Unit, made: UnitLaunch) -> tuple[str, ...]:
    if made.foreign_edit is None:
        return ()
    lines = difflib.unified_diff(
        made.foreign_edit.splitlines(), made.text.splitlines(), "now", "after", lineterm="", n=1
    )
    return (f"{unit.drop_in_path} was edited by hand; this replaces it:", *lines)


def start_container(
    server: Server, settings: Settings, *, host: str, by: str, now: float, chosen: bool
) -> Start:
    """A launch by docker: a container of its own from the image, or the one that is there.

    Raises:
        UsageError: presets were asked for without an image; a container keeps the flags it was
            made with.
    """
    runner = server.runner
    if runner.image is not None:
        version = version_in(runner)
        ground = Ground(state_dir="", python=server.python or "python3", version=version)
        made = prepare(server, settings, ground, run_id=new_run_id(), launched_by=by, now=now)
        run = replace(container_run(made, runner), host=host)
        step = container_step(run, runner.container or "", anew=True)
        return Start(run, settings, (step,), (), version, made.secret_names)
    if chosen:
        hint = "image: NAME beside docker: in hosts.yaml makes a container anew for each launch"
        raise UsageError(
            f"container '{runner.container}' keeps the flags it was made with",
            place=server.name,
            hint=hint,
        )
    run = Run(
        run_id=new_run_id(), server=server.name, engine=server.engine, host=host,
        argv=("docker", "start", runner.container or ""), env={}, cwd="/", log="",
        port=server.port, launcher=None, session=None, unit=None,
        launched_at=now, launched_by=by, model=server.model, draft=server.draft,
    )  # fmt: skip
    return Start(run, settings, (container_step(run, runner.container or "", anew=False),))


def container_step(run: Run, name: str, *, anew: bool) -> Step:
    """Start a container, recorded as this run; ``anew``: made from its image for it."""
    return Step(
        StepKind.START_CONTAINER,
        run.host,
        f"{'run' if anew else 'start'} container {name} as run {run.run_id}",
        argv=run.argv,
        dangerous=True,
        verify="docker starts it; a stopped one of ours under that name is removed first"
        if anew
        else "docker starts it",
        timeout_s=120.0,
        params={"run": encode(run), "name": name, "anew": anew},
    )


def watch_step(server: Server, host: str, run_id: str | None, timeout_s: float | None) -> Step:
    """Follow the start until it is ready, has failed or stalls; ``None``: only see it alive."""
    if timeout_s is None:
        return Step(
            StepKind.WATCH,
            host,
            f"see {server.name} alive for {ALIVE_S:.0f} s",
            verify="its process runs; specops watch follows it to ready",
            timeout_s=30.0,
            params={"server": server.name, "run_id": run_id, "alive_s": ALIVE_S},
        )
    return Step(
        StepKind.WATCH,
        host,
        f"watch {server.name} until it is ready",
        verify="/health 200 and the ready line, then one real completion",
        timeout_s=timeout_s,
        params={"server": server.name, "run_id": run_id},
    )


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"


def preflight_step(host: str, command: Sequence[str], findings: Sequence[Finding]) -> Step:
    """The check before anything is touched; own rules have spoken, the engine is asked now."""
    errors = sum(f.severity.value == "error" for f in findings)
    return Step(
        StepKind.PREFLIGHT,
        host,
        f"preflight: {_counted(len(findings), 'finding')}, {_counted(errors, 'error')}",
        argv=tuple(command),
        verify="no error from the rules or from the engine's own argument check",
        timeout_s=25.0,
        params={"errors": errors},
    )


def plan_launch(
    server: Server, start: Start, *, host: str, now: float,
    findings: Sequence[Finding] = (), preflight: bool = True, watch_s: float | None = WATCH_S,
) -> Plan:  # fmt: skip
    """Preflight → launch → watch."""
    steps = [preflight_step(host, start.argv, findings)] if preflight else []
    steps += [*start.steps, watch_step(server, host, start.run.run_id, watch_s)]
    return Plan(
        id=new_plan_id("launch"),
        action="launch",
        host=host,
        server=server.name,
        steps=tuple(steps),
        created_at=now,
        summary=(f"launch {server.name} with {start.settings.label}", *start.summary),
        findings=tuple(findings),
    )


def changes(before: Run | None, after: Run) -> tuple[str, ...]:
    """What differs from an earlier run, one line a flag or variable: name, before, after."""
    if before is None:
        return ()
    old, new = _flags(before.argv), _flags(after.argv)
    lines = [
        f"{name}  {old.get(name, '(unset)')}  →  {new.get(name, '(unset)')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and name not in ("--config", "--env", "--label")
    ]
    for name in sorted({*before.env, *after.env} - {"SPECOPS_RUN_ID", "PYTHONPATH"}):
        if before.env.get(name) != after.env.get(name):
            was, is_ = (e.get(name, "(unset)") for e in (before.env, after.env))
            lines.append(f"{name}  {was}  →  {is_}")
    if not lines:
        return (f"nothing changes against run {before.run_id}",)
    what = f"{len(lines)} setting" + ("s" if len(lines) > 1 else "")
    return (f"this changes {what} against run {before.run_id}", *(f"  {line}" for line in lines))


def _flags(argv: Sequence[str]) -> Mapping[str, str]:
    out: dict[str, str] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name, eq, value = word.partition("=")
            out[name] = value if eq else ""
        elif name:
            out[name] = f"{out[name]} {word}".strip()
    return {key: value or "(set)" for key, value in out.items()}


def _value(argv: Sequence[str], flag: str) -> str | None:
    return _flags(argv).get(flag)


def config_text(values: Mapping[str, str]) -> bytes:
    """A YAML file of flags: JSON strings are YAML, and no quoting rule is left to chance."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in values.items()).encode()
