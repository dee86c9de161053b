"""``run`` for a read-only archive: only commands that look."""

from __future__ import annotations

import os
from typing import Any

from console.agent import command
from console.agent.calls import Call, VerbError, Verbs

LOOKS: dict[str, tuple[str, ...]] = {
    "systemctl": ("show", "cat", "status", "is-active", "list-units", "--version"),
    "docker": ("ps", "inspect", "logs", "version", "info"),
    "lxc-info": (),
    "journalctl": (),
    "uname": (),
    "lspci": (),
    "df": (),
    "ps": (),
    "ss": (),
    "lscpu": (),
    "numactl": ("--hardware",),
}
"""Allowed programs; where words are listed, the first argument must be one of them."""
_CHANGES = ("--vacuum", "--rotate", "--flush", "--sync", "--setup-keys", "--update-catalog", "-K")


def run(call: Call) -> dict[str, Any]:
    """The verb: refuses everything that is not known to be harmless."""
    argv = call.words("argv")
    name = os.path.basename(argv[0]) if argv else ""
    words = argv[1:]
    if name == "systemctl" and words[:1] == ["--user"]:
        words = words[1:]  # the login's own units, looked at all the same
    first = words[0] if words else ""
    allowed = name in LOOKS and (not LOOKS[name] or first in LOOKS[name])
    if not allowed or any(word.startswith(_CHANGES) for word in argv[1:]):
        raise VerbError("refused", "read-only: {} may change something".format(" ".join(argv[:2])))
    return command.run(call)


VERBS: Verbs = {"run": run}
