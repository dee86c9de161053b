"""What specops leaves with a host's systemd: drop-ins it wrote, units of launches that failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.errors import ActionFailed
from console.remote import HostFileError
from console.runners.systemd import DROP_IN, MARK, show_properties, systemctl
from console.text import clean

if TYPE_CHECKING:
    from console.remote import Remote

SYSTEM = "/etc/systemd/system"
_OURS = re.compile(r"specops-[A-Za-z0-9][A-Za-z0-9._-]*\.(?:service|scope)")
ASK_S = 10.0


@dataclass(frozen=True, slots=True)
class Units:
    """Of one manager (``user``: the login's own): what is ours, and drop-ins that are not.

    ``drop_ins`` begin with our mark; ``edited`` have our name and somebody else's text; ``failed``
    are transient units of launches.
    """

    user: bool
    drop_ins: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


async def find_units(remote: Remote) -> tuple[Units, ...]:
    """What there is of both managers; nothing where systemd does not run.

    Raises:
        HostError: the link is lost.
    """
    if not remote.hello.systemd:
        return ()
    folder = remote.hello.config_home
    roots = [(False, SYSTEM)]
    roots += [(True, f"{folder}/systemd/user")] * folder.startswith("/")
    found = []
    for user, root in roots:
        ours, edited = await _drop_ins(remote, root)
        found.append(Units(user, ours, edited, await _failed(remote, user=user)))
    return tuple(found)


async def _drop_ins(remote: Remote, root: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    try:
        folders = [e.path for e in await remote.list_dir(root) if e.path.endswith(".d")]
    except HostFileError as error:
        if error.missing:
            return (), ()
        raise
    there = await remote.stat([f"{folder}/{DROP_IN}" for folder in folders]) if folders else []
    ours: list[str] = []
    edited: list[str] = []
    for info in there:
        if info.kind == "file":
            text = await remote.read_file(info.path, limit=256)
            (ours if text.lstrip().startswith(MARK.encode()) else edited).append(info.path)
    return tuple(ours), tuple(edited)


async def _failed(remote: Remote, *, user: bool) -> tuple[str, ...]:
    """Failed units that a launch made: transient and of its kind of name."""
    manager = systemctl(user)
    words = ("list-units", "--all", "--plain", "--no-legend", "--no-pager", "--state=failed")
    listed = await remote.run((*manager, *words, "specops-*"), timeout_s=ASK_S)
    names = [
        line.split()[0] for line in listed.stdout.decode("utf-8", "replace").splitlines() if line
    ]
    found = []
    for name in names:
        if not _OURS.fullmatch(name):
            continue
        shown = await remote.run((*manager, "show", name, "-p", "Transient"), timeout_s=ASK_S)
        if show_properties(shown.stdout.decode("utf-8", "replace")).get("Transient") == "yes":
            found.append(name)
    return tuple(found)


async def remove_units(remote: Remote, units: Units) -> None:
    """Remove the drop-ins, read the units anew, forget the failed ones.

    Raises:
        ActionFailed: something could not be removed.
    """
    manager = systemctl(units.user)
    commands: list[tuple[str, ...]] = []
    if units.drop_ins:
        commands.append(("rm", "-f", "--", *units.drop_ins))
        commands.append((*manager, "daemon-reload"))
    if units.failed:
        commands.append((*manager, "reset-failed", *units.failed))
    for argv in commands:
        done = await remote.run(argv, timeout_s=30.0)
        if done.code != 0:
            why = clean(done.stderr.strip().rsplit(b"\n", 1)[-1])
            raise ActionFailed(f"{' '.join(argv[:3])}: {why}", place=remote.host.name)
    for path in units.drop_ins:  # the folder too, unless something else is in it
        await remote.run(("rmdir", "--", path.rsplit("/", 1)[0]), timeout_s=ASK_S)
