"""A stand-in for Proxmox VE's ``pct``, over a container booted by this rig.

``install`` writes the commands ``pct`` and ``lxc-info`` into a folder for a PATH. What it keeps of
the real ones is what an operator's program meets (PVE 8, pct.pm and lxc-attach): stdin goes through
unbuffered, the command's status comes back, its environment is the caller's plus ``container=lxc``,
``--`` before the command is optional. Without such a container the status is 2, with a stopped one
1, on wrong usage 255, each with its message on stderr.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.rig.inside import Inside
from tests.rig.kept import ROOT

WRONG_USAGE = 255
NO_SUCH_CONTAINER = 2
NOT_ATTACHED = 1
_SYNOPSIS = {
    "exec": "pct exec <vmid> [<extra-args>]",
    "status": "pct status <vmid> [OPTIONS]",
    "list": "pct list",
}


def install(folder: Path, containers: Mapping[int, int | None]) -> Path:
    """Write ``folder/pct`` for containers by number, each its leader's pid or None when stopped.

    Call it again to change them. Returns the command's path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "pct.json"
    table.write_text(json.dumps({str(vmid): leader for vmid, leader in containers.items()}))
    command = folder / "pct"
    python, source = shlex.quote(sys.executable), shlex.quote(str(ROOT))
    # Not PYTHONPATH or cd: both would show in the command's environment or folder.
    start = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from tests.rig.pct import main; main()"
    )
    line = f"exec {python} -I -c {shlex.quote(start)} {source} {shlex.quote(str(table))}"
    for program, words in ((command, ""), (folder / "lxc-info", " lxc-info")):
        program.write_text(f'#!/bin/sh\n{line}{words} "$@"\n')
        program.chmod(0o755)
    return command


def _info(table: Mapping[str, int | None], argv: list[str]) -> int:
    """``lxc-info -n VMID -p -H``: the init's pid, nothing for a stopped one."""
    if len(argv) != 4 or argv[0] != "-n" or sorted(argv[2:]) != ["-H", "-p"]:
        return _fail(1, "lxc-info: this stand-in knows -n VMID -p -H")
    if argv[1] not in table:
        return _fail(1, f"{argv[1]} doesn't exist")
    if table[argv[1]] is not None:
        print(table[argv[1]])
    return 0


def _fail(status: int, text: str) -> int:
    print(text, file=sys.stderr)
    return status


def _usage(verb: str, why: str) -> int:
    return _fail(WRONG_USAGE, f"400 {why}\n{_SYNOPSIS[verb]}")


def _exec(vmid: str, leader: int | None, argv: list[str]) -> int:
    if argv[:1] == ["--"]:
        argv = argv[1:]
    if not argv:
        return _fail(WRONG_USAGE, "missing command at /usr/share/perl5/PVE/CLI/pct.pm line 150.")
    if leader is None or not Path(f"/proc/{leader}").exists():
        where = f"lxc-attach: {vmid}: ../src/lxc/attach.c"
        return _fail(
            NOT_ATTACHED,
            f"{where}: get_attach_context: 405 Connection refused - Failed to get init pid\n"
            f"{where}: lxc_attach: 1469 Connection refused - Failed to get attach context",
        )
    env = {**os.environ, "container": "lxc"}
    status = subprocess.run(Inside(leader).enter_argv(argv, env), check=False).returncode
    return status if status >= 0 else 128 - status


def run(table: Mapping[str, int | None], argv: list[str]) -> int:
    """``pct ARGV`` against the table of containers; the exit status."""
    verb, rest = (argv[0], argv[1:]) if argv else ("help", [])
    if verb == "lxc-info":
        return _info(table, rest)
    if verb not in _SYNOPSIS:
        return _fail(
            WRONG_USAGE,
            f"ERROR: unknown command 'pct {verb}'"
            if argv
            else "ERROR: no command specified\nUSAGE: pct <COMMAND> [ARGS] [OPTIONS]",
        )
    if verb == "list":
        print("VMID       Status     Lock         Name")
        for vmid, leader in sorted(table.items()):
            print(f"{vmid:<10} {'running' if leader else 'stopped':<10} {'':<12} ct{vmid}")
        return 0
    if not rest:
        return _usage(verb, "not enough arguments")
    vmid = rest[0]
    if not (vmid.isdigit() and 100 <= int(vmid) <= 999_999_999):
        return _usage(
            verb,
            "Parameter verification failed.\n"
            "vmid: invalid format - value does not look like a valid VM ID\n",
        )
    if vmid not in table:
        return _fail(
            NO_SUCH_CONTAINER, f"Configuration file 'nodes/pve1/lxc/{vmid}.conf' does not exist"
        )
    if verb == "status":
        print(f"status: {'running' if table[vmid] else 'stopped'}")
        return 0
    return _exec(vmid, table[vmid], rest[1:])


def main() -> None:
    """The command: ``TABLE ARGV…``."""
    sys.exit(run(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2:]))
