"""Changing files: write whole, remove leftovers. Not in a read-only archive."""

from __future__ import annotations

import base64
import binascii
import os
import stat as stats
from typing import Any

from console.agent import artefacts, machine
from console.agent.calls import Call, VerbError, Verbs
from console.agent.files import absolute

CLOCK_S = 1.0


def replace(path: str, data: bytes, mode: int) -> None:
    """Write a file whole: new content under another name, synced, then renamed over the old."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755 if mode & 0o044 else 0o700, exist_ok=True)
    temporary = "{}/.{}.{}".format(folder, os.path.basename(path)[:100], os.urandom(6).hex())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, mode)
    try:
        with open(descriptor, "wb") as target:
            os.fchmod(descriptor, mode)
            target.write(data)
            target.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except OSError as error:
        os.unlink(temporary)
        raise OSError(error.errno, error.strerror, path) from None


def write_file(call: Call) -> None:
    """The verb: content in base64."""
    try:
        data = base64.b64decode(call.text("data"), validate=True)
    except binascii.Error:
        raise VerbError("usage", "data is not base64") from None
    mode = call.number("mode", 0o600)
    if not 0 <= mode <= 0o777:
        raise VerbError("usage", "mode must be 0 to 0o777")
    replace(absolute(call.text("path")), data, mode)


def remove(call: Call) -> list[list[str]]:
    """The verb: (path, "" or why not) for each artefact, looked at afresh right before."""
    wanted = call.args.get("artefacts")
    if not isinstance(wanted, list):
        raise VerbError("usage", "artefacts must be a list")
    holders = artefacts.Holders()
    return [[str(item.get("path")), _remove_one(item, holders)] for item in wanted]


def _remove_one(item: dict[str, Any], holders: artefacts.Holders) -> str:
    path, kind = str(item.get("path")), item.get("type")
    if kind not in ("shm", "socket", "lock"):
        return "only segments, sockets and lock files can be removed"
    if not path.startswith("/") or os.path.normpath(path) != path:
        return "not a plain absolute path"
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return "already gone"
    if (info.st_dev, info.st_ino) != (item.get("device"), item.get("inode")):
        return "it is another file now"
    age = machine.file_age(info)
    # Segments are written to by those that are killed, and their numbers are not used again.
    if kind != "shm" and age + CLOCK_S < float(item.get("age_s") or 0.0):
        return "it has changed since it was looked at"  # or is a new file with the old number
    if info.st_uid != item.get("uid"):
        return "its owner has changed"
    if os.geteuid() not in (0, info.st_uid):
        return "it belongs to {}".format(machine.user_name(info.st_uid))
    if not (stats.S_ISREG(info.st_mode) or stats.S_ISSOCK(info.st_mode)):
        return "neither a file nor a socket"
    held = holders.of(path, info)
    if held is None:
        return "whether somebody holds it cannot be seen"
    if held:
        return "held by pid {}".format(", ".join(str(pid) for pid in held[:8]))
    try:
        os.unlink(path)
    except OSError as error:
        return error.strerror or str(error)
    return ""


VERBS: Verbs = {"write_file": write_file, "remove": remove}
