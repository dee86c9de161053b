"""Ask a host's own SGLang about a launch: run there, bounded, remembered on this machine.

The question and the meaning of the answer are :mod:`console.preflight.engine_check`'s. An answer is
kept under the flags, both configs, the version, host and interpreter; an absence is never kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from console.actions.codec import decode, encode
from console.config import state_dir
from console.config.whole import write_atomically
from console.errors import ActionFailed, Refused, SpecopsError
from console.model import Finding, Run
from console.planning.hostfacts import configs, engine_version
from console.preflight import HostFacts, LaunchCommand, ModelFacts, from_argv
from console.preflight.engine_check import (
    ENV,
    TIMEOUT_S,
    cache_key,
    lacks_engine,
    missing,
    parse_result,
    request,
    script,
)
from console.preflight.handover import handed_over
from console.remote import Remote
from console.text import is_secret_name

ABSENT, MISSING = "engine-check-absent", "engine-missing"


async def engine_findings(
    remote: Remote,
    command: LaunchCommand,
    facts: HostFacts | None = None,
    *,
    sure: bool = False,
) -> tuple[Finding, ...]:
    """What the host's own SGLang says of the launch; nothing for other engines and containers.

    ``facts`` are those gathered for the own rules, so that nothing is asked twice. Never raises for
    an engine that is not there, hangs or may not be asked: that is a warning among the findings.
    ``sure``: the command is a process of the login's own, with all its variables; where its
    interpreter then says that it has no SGLang, that is an error.

    Raises:
        HostError: the link is lost.
    """
    if facts is not None:
        command = handed_over(command, facts)
    if command.engine != "sglang" or command.container is not None:
        return ()
    if facts is None:
        target, draft = await configs(remote, command)
        version = await engine_version(remote, command)
    else:
        target, draft, version = facts.target, facts.draft, facts.sglang
    python = command.python or remote.host.python
    asked = (remote.host.name, python, *command.args)
    place = _folder() / f"{cache_key(asked, [_hash(target), _hash(draft)], version or '')}.json"
    if version is not None and (kept := _load(place)) is not None:
        return kept
    found = await _ask(remote, command, python, draft, sure=sure)
    if version is not None and not any(f.rule in (ABSENT, MISSING) for f in found):
        _save(place, found)
    return found


async def ask_engine(
    remote: Remote, argv: tuple[str, ...], run: Run | None = None
) -> tuple[Finding, ...]:
    """The same for an argument vector, as the PREFLIGHT step of a plan has it.

    ``run``: what the plan will start, whose environment and directory the answer then holds for.

    Raises:
        HostError: the link is lost.
        UsageError: the vector starts no model server.
    """
    if run is None:
        return await engine_findings(remote, from_argv(argv))
    command = from_argv(argv, run.env, run.cwd)
    return await engine_findings(remote, command, sure=run.unit is None)


async def _ask(
    remote: Remote, command: LaunchCommand, python: str, draft: ModelFacts | None, *, sure: bool
) -> tuple[Finding, ...]:
    plain = {k: v for k, v in command.env.items() if not is_secret_name(k)}
    try:
        done = await remote.run(
            (python, "-c", script()),
            timeout_s=TIMEOUT_S,
            stdin=request(command.args, draft=draft.path if draft else None),
            env={**plain, **ENV},
        )
    except (ActionFailed, Refused) as error:
        return parse_result(str(error).encode())
    out = done.stdout or done.stderr
    if sure and lacks_engine(out) and await _imports_alike(remote, command):
        return (missing(python, remote.host.name),)
    return parse_result(out, timed_out=done.code is None)


async def _imports_alike(remote: Remote, command: LaunchCommand) -> bool:
    """Whether the launch would look for the engine just where the question did.

    It does not behind a wrapper (``conda run``), with a file of variables, or where its directory,
    which ``-m`` searches first, holds a folder of that name.
    """
    plain = not (command.wrapper or command.env_files or command.unresolved)
    if command.cwd is None or not plain or not command.entry.startswith("-m sglang"):
        return False
    names = [f"{command.cwd}/sglang", f"{command.cwd}/sglang.py"]
    return all(found.kind == "missing" for found in await remote.stat(names))


def _hash(model: ModelFacts | None) -> str:
    config = None if model is None else model.config
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _folder() -> Path:
    return state_dir() / "engine-checks"


def _load(path: Path) -> tuple[Finding, ...] | None:
    """A kept answer; one that cannot be read is asked for again."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return tuple(decode(Finding, row, place=str(path)) for row in rows)
    except (OSError, ValueError, TypeError, SpecopsError):
        return None


def _save(path: Path, findings: Sequence[Finding]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, json.dumps([encode(f) for f in findings]))
    except OSError:  # a full disk here must not stop a launch there
        return
