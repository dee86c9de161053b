"""The kill verb: identity and signal in one call, through a pidfd. Not in a read-only archive."""

from __future__ import annotations

import errno
import os
import signal
from typing import Any

from console.agent import identity, proc
from console.agent.calls import Call, VerbError, Verbs
from console.agent.gone import process_ids

ALLOWED = ("TERM", "KILL", "INT", "QUIT", "HUP", "CONT", "STOP", "USR1", "USR2", "ABRT")


def signal_all(call: Call) -> list[dict[str, str]]:
    """The verb: for each target, verify who it is and signal exactly that process."""
    name = call.text("signal")
    if name not in ALLOWED:
        raise VerbError(
            "usage", "signal {!r} is not one of {}".format(name[:20], ", ".join(ALLOWED))
        )
    number = getattr(signal, "SIG" + name)
    targets = call.args.get("targets")
    triples = process_ids(targets)
    assert isinstance(targets, list)
    session, above = os.getsid(0), identity.ancestors()
    return [
        _known_or_denied(triple, target.get("run_id"), number, session, above)
        for triple, target in zip(triples, targets)
    ]


def _known_or_denied(
    triple: tuple[int, int, str], run_id: Any, number: int, session: int, above: set[int]
) -> dict[str, str]:
    """The outcome of one; without descriptors or memory nobody knows who it is: no signal."""
    try:
        return _signal_one(triple, run_id, number, session, above)
    except OSError as error:
        return _outcome("denied", error.strerror or "it cannot be looked at")


def _signal_one(
    triple: tuple[int, int, str], run_id: Any, number: int, session: int, above: set[int]
) -> dict[str, str]:
    pid, start, boot = triple
    try:
        descriptor: int | None = identity.pidfd_open(pid)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM, *identity.GONE):
            return _outcome("denied", error.strerror or "")
        descriptor = None  # gone, being reaped, or a kernel without pidfds: /proc decides
    try:
        # The descriptor pins the process first; what is verified afterwards cannot change.
        seen = identity.same(pid, start, boot)
        if seen is None:
            return _outcome("gone", "")
        if isinstance(seen, str):
            return _outcome("changed", seen)
        why = identity.never_signal(pid, seen, session, above) or _other_run(pid, seen, run_id)
        if why:
            return _outcome("denied", why)
        if identity.all_threads_gone(pid, start):
            return _outcome("gone", "finished; its parent has not read its status")
        return _send(pid, descriptor, number)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _other_run(pid: int, seen: proc.Stat, run_id: Any) -> str | None:
    """Why the process is not of the run it was shown under; an unreadable one is a reason."""
    if run_id is None:
        return None
    try:
        with open(proc.base(pid, seen.state) + "/environ", "rb") as source:
            data = source.read(256 * 1024)
    except ProcessLookupError:
        return None  # a finished leader hides its variables; its start time is proof enough
    except OSError as error:
        return "its run id cannot be read: {}".format(error.strerror)
    found = proc.kept_variables(data).get("SPECOPS_RUN_ID")
    if found == run_id or (found is None and _ends(pid)):
        return None
    return "it is not of run {}".format(str(run_id)[:64])


def _ends(pid: int) -> bool:
    """Whether it is being taken apart: its variables go first, its state stays R for a while."""
    now = proc.stat(pid)
    return now is None or now.exiting or now.state in "ZX"


def _send(pid: int, descriptor: int | None, number: int) -> dict[str, str]:
    try:
        if descriptor is None:
            os.kill(pid, number)
        else:
            identity.pidfd_send(descriptor, number)
    except ProcessLookupError:
        return _outcome("gone", "")
    except OSError as error:
        return _outcome("denied", error.strerror or "the host refused")
    return _outcome("signalled", "")


def _outcome(outcome: str, detail: str) -> dict[str, str]:
    return {"outcome": outcome, "detail": detail}


VERBS: Verbs = {"signal": signal_all}
