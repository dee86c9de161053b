"""How a unit or a detached run ended."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from console.agent import machine, state
from console.agent.calls import Call, VerbError, Verbs

FIELDS = (
    "LoadState", "ActiveState", "SubState", "Result", "MainPID", "ExecMainCode",
    "ExecMainStatus", "NRestarts", "Restart", "ControlGroup", "FragmentPath",
)  # fmt: skip


def unit_status(call: Call) -> dict[str, str]:
    """The verb: the unit's properties as systemd names them, the user's own units on request."""
    unit = call.text("unit")
    if not unit or unit.startswith("-"):
        raise VerbError("usage", "{!r} cannot be a unit".format(unit[:80]))
    if not machine.has_systemd():
        raise VerbError("failed", "systemd does not run on this host")
    command = ["systemctl", "show", "--property=" + ",".join(FIELDS), unit]
    if call.args.get("user_unit"):
        command.insert(1, "--user")
    env = dict(os.environ)
    env.setdefault("XDG_RUNTIME_DIR", "/run/user/{}".format(os.geteuid()))
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
            env=env,
        )
    except subprocess.TimeoutExpired:
        raise VerbError("failed", "systemctl did not answer in 10 s") from None
    if done.returncode != 0:
        why = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise VerbError("failed", "systemctl: " + " ".join(why[-1:]))
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def exit_status(call: Call) -> dict[str, Any] | None:
    """The verb: how a launched run ended, ``None`` while it runs or when nobody saw its end."""
    name = state.checked_name(call.text("run_id"))
    return state.load(os.path.join(state.folder("runs"), name + ".exit"))


VERBS: Verbs = {"unit_status": unit_status, "exit_status": exit_status}
