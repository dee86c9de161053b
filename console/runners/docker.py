"""A server kept by docker: the `docker run` line that makes its container, and what docker says.

A container keeps the flags it was made with, so other flags mean another container under the same
name: the stopped one is removed and a new one made, and only if specops had made the old one too.
Facts: the docker run reference (exit status 125 of docker itself, 126 and 127 of the command).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from console.errors import UsageError
from console.model import Run, Runner
from console.preflight.docker import image_version
from console.runners.prepare import Prepared
from console.runners.settings import REFERENCE

LABEL = "specops.run"
NETWORK = ("--network", "--net", "--publish", "-p", "--publish-all", "-P")
SHARED = ("--ipc", "--shm-size")
"""Ranks of one server share tensors through /dev/shm, of which a container has 64 MiB."""

STATUS: Mapping[int, str] = {
    125: "docker itself refused",
    126: "the command in the image cannot be executed",
    127: "the command is not in the image",
}


@dataclass(frozen=True, slots=True)
class Container:
    """What ``docker inspect`` tells of one. ``run_id`` is its label, ``None``: not made by us."""

    running: bool
    exit_code: int | None
    oom_killed: bool
    error: str
    run_id: str | None


def version_in(runner: Runner) -> str | None:
    """The engine's version, as the image's tag tells it."""
    return image_version(runner.image or "")


def container_run(made: Prepared, runner: Runner) -> Run:
    """The launch as a container of its own: its argument vector is the whole `docker run` line.

    Raises:
        UsageError: a flag holds a secret, which would have to be in a file inside the image.
    """
    run = made.run
    if made.config:
        flags = ", ".join(f"--{name}" for name in made.config)
        hint = "give it by a variable that the engine reads, or mount a --config file of your own"
        raise UsageError(f"{flags}: no secret in a container's flags", place=run.server, hint=hint)
    given = [word.partition("=")[0] for word in runner.options]
    options = list(runner.options)
    if not any(name in given for name in NETWORK):
        options.append("--network=host")
    if not any(name in given for name in SHARED):
        options.append("--ipc=host")
    if "--pull" not in given:
        options.append("--pull=never")  # gigabytes are not fetched while a server is down
    for name, value in run.env.items():
        options += ["--env", name if value.startswith(REFERENCE) else f"{name}={value}"]
    argv = (
        "docker", "run", "--detach", f"--name={runner.container}", f"--label={LABEL}={run.run_id}",
        *options, runner.image or "", *run.argv,
    )  # fmt: skip
    return replace(run, argv=argv, log="", unit=None)


def renewed(argv: Sequence[str], old: str, new: str) -> tuple[str, ...]:
    """A container's line for another run: only its label and its variable name the run."""
    return tuple(word.replace(old, new) if old in word else word for word in argv)


def inspected(output: bytes) -> Container | None:
    """The answer of ``docker inspect NAME``; ``None`` where there is no such container."""
    try:
        (row,) = json.loads(output)
        state = row["State"]
        labels = row["Config"].get("Labels") or {}
        running = bool(state["Running"])
        return Container(
            running=running,
            exit_code=None if running else int(state["ExitCode"]),
            oom_killed=bool(state.get("OOMKilled")),
            error=str(state.get("Error") or ""),
            run_id=str(labels[LABEL]) if LABEL in labels else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def ended(found: Container) -> str:
    """How a container ended, in words."""
    if found.running:
        return "its container runs"
    parts = [f"its container exited with code {found.exit_code}"]
    code = found.exit_code or 0
    if found.oom_killed:
        parts = ["its container was killed because memory ran out"]
    elif code > 128:
        parts.append(f"killed by signal {code - 128}")
    elif code in STATUS and found.error:
        parts.append(STATUS[code])
    return "; ".join([*parts, *([found.error] if found.error else [])])
