"""Steps over docker: make or start a server's container, and ask docker how it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from console.actions.codec import decode
from console.actions.launched import at_start, port_taken, still_alive
from console.actions.steps import Context, Outcome
from console.errors import ActionFailed, Refused
from console.model import Run, Step
from console.planning.secretstore import resolve
from console.remote import HostFileError, Remote
from console.runners.docker import STATUS, Container, ended, inspected
from console.runners.settings import REFERENCE
from console.text import clean, mask

ASK_S = 15.0


async def container_of(remote: Remote, name: str) -> Container | None:
    """What docker says of a container; ``None``: there is none, or docker cannot be asked."""
    try:
        done = await remote.run(("docker", "inspect", "--type=container", name), timeout_s=ASK_S)
    except (ActionFailed, Refused):  # no docker there, or a session that may run nothing
        return None
    return inspected(done.stdout) if done.code == 0 else None


async def need_image(remote: Remote, image: str, server: str) -> None:
    """See that an image is on the host before anything is stopped for it.

    Raises:
        ActionFailed: it is not, or docker cannot be asked.
    """
    words = ("docker", "image", "inspect", "--format={{.Id}}", image)
    try:
        done = await remote.run(words, timeout_s=ASK_S)
    except HostFileError as error:
        hint = "install docker there, or give the server another runner"
        raise ActionFailed(f"docker: {error.message}", place=server, hint=hint) from error
    if done.code != 0:
        hint = f"docker pull {image}"
        raise ActionFailed(f"{image}: {_said(done.stderr)}", place=server, hint=hint)


async def start_container(step: Step, context: Context) -> Outcome:
    """START_CONTAINER: run the image as a new container, or start the one that is there.

    A stopped container of the same name is removed first where it was made by specops, because the
    flags of a container never change. ``params``: ``run``, ``name``, ``anew``.
    """
    run = decode(Run, step.params["run"], place="run")
    name, anew, remote = str(step.params["name"]), bool(step.params["anew"]), context.remote
    if (alive := await still_alive(step, remote)) is not None:
        return alive
    there = await container_of(remote, name)
    if there is not None and there.running:
        if any(r.run_id == run.run_id for r in await remote.runs()):
            return Outcome("ok", f"run {run.run_id} was started before", {"run_id": run.run_id})
        return Outcome("failed", f"container {name} runs already")
    if anew and there is not None and there.run_id is None:
        return Outcome(
            "refused", f"a container {name} is there that specops has not made: rename or remove it"
        )
    snapshot = await remote.snapshot()
    if (taken := await port_taken(remote, run.port, snapshot)) is not None:
        return Outcome("failed", taken)
    if anew and there is not None:
        done = await remote.run(("docker", "rm", name), timeout_s=ASK_S)
        if done.code != 0:
            return Outcome("failed", f"docker rm {name}: {_said(done.stderr)}")
    begun = await at_start(remote, run, snapshot)
    cursor = _from(snapshot.time) if anew else await _log_end(remote, name)
    begun = replace(begun, log_cursor=cursor)
    await remote.save_run(begun)
    names = [v.removeprefix(REFERENCE) for v in run.env.values() if v.startswith(REFERENCE)]
    values = resolve(names)
    env = {
        key: values[value.removeprefix(REFERENCE)]
        for key, value in run.env.items()
        if value.startswith(REFERENCE)
    }
    done = await remote.run(step.argv, timeout_s=step.timeout_s, env=env)
    if done.code != 0:
        why = STATUS.get(done.code or 0, "no end in time" if done.code is None else "")
        text = "; ".join(part for part in (why, _said(done.stderr)) if part)
        await remote.save_run(replace(begun, outcome="failed", failure=text[:200]))
        data: dict[str, Any] = {"code": done.code, "run_id": run.run_id}
        return Outcome("failed", f"docker: exit {done.code}: {text}", data)
    return Outcome("ok", f"run {run.run_id}, container {name}", {"run_id": run.run_id})


async def container_ending(remote: Remote, name: str) -> str | None:
    """How a server's container ended, in words; ``None`` where docker does not say."""
    found = await container_of(remote, name)
    return None if found is None else clean(ended(found), limit=300)


def _from(moment: float) -> str:
    """A place in a container's log by the host's clock, as its lines are stamped."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") + "#0"


async def _log_end(remote: Remote, name: str) -> str:
    """The last line that an earlier life of the container wrote: what comes now is after it."""
    words = ("docker", "logs", "--timestamps", "--tail=1", name)
    done = await remote.run(words, timeout_s=ASK_S)
    last = (done.stdout or done.stderr).strip().rsplit(b"\n", 1)[-1]
    stamp = last.split(b" ", 1)[0].decode("ascii", "replace")
    return f"{stamp}#1" if stamp else ""


def _said(text: bytes) -> str:
    """What docker said, in one line: its own lines begin with ``docker:``, then comes advice."""
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(("docker:", "Error"))]
    return clean(mask((own or lines or ["no output"])[0]), limit=300)
