"""``specops doctor --purge HOST``: take away everything that specops keeps on a host.

That is the state directory (run records, plan journals, logs below it, files of secrets, the lock)
and what it left with systemd: its drop-ins and the failed units of its launches. Known entries are
removed by name, then the folder if it is empty: what somebody else put there stays and is named.
Nothing is removed while a server that specops launched still runs, unless told, or while another
console holds the host's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from console.cli.common import Cli, confirm, connected
from console.cli.output import print_json, say, warn
from console.cli.traces import Units, find_units, remove_units
from console.errors import ActionFailed, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.model import Run, Snapshot
    from console.remote import Remote

ENTRIES = ("runs", "journals", "logs", "secrets", "lock")
"""What specops makes in its state directory."""
BOUND_S = 60.0


@dataclass(frozen=True, slots=True)
class Traces:
    """What is there: ``ours`` will be removed, ``foreign`` stays, ``outside`` is named only."""

    folder: str
    ours: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    exists: bool = False
    units: tuple[Units, ...] = ()

    @property
    def drop_ins(self) -> tuple[str, ...]:
        """Drop-ins that specops wrote."""
        return tuple(path for units in self.units for path in units.drop_ins)

    @property
    def failed(self) -> tuple[str, ...]:
        """Failed units of its launches."""
        return tuple(name for units in self.units for name in units.failed)

    @property
    def found(self) -> tuple[str, ...]:
        """All that will go."""
        return (*self.drop_ins, *self.failed, *self.ours)

    @property
    def stays(self) -> tuple[str, ...]:
        """What is not ours to remove."""
        edited = (path for units in self.units for path in units.edited)
        return (*self.foreign, *edited, *self.outside)


async def purge_host(cli: Cli, name: str, *, dry_run: bool, yes: bool, force: bool = False) -> int:
    """Show what is there, ask, remove, say what is left; returns the exit code.

    ``force``: also while a launched server runs, which is nobody's after that.

    Raises:
        Refused: a launched server runs, the lock is held, or nobody said yes.
        ActionFailed: the host refused, or something is left.
    """
    config = cli.config()
    host = config.host(name)
    async with connected(config, host, read_only=dry_run) as remote:
        runs = await remote.runs()
        if not force:
            running(runs, await remote.snapshot(full=True), host.name)
        traces = await find(remote, runs)
        if not cli.json:
            _say(traces)
        if dry_run or not (traces.exists or traces.found):
            if cli.json:
                print_json(_document(host.name, traces, (), dry_run=dry_run))
            return int(traces.exists or bool(traces.found))
        confirm(f"Remove these from {host.name} for good?", yes=yes)
        removed = await remove(remote, force=force)
    if cli.json:
        print_json(_document(host.name, traces, removed, dry_run=False))
    else:
        say(f"{host.name}: removed {len(removed)} traces")
    return 0


def running(runs: Sequence[Run], snapshot: Snapshot, host: str) -> None:
    """Refuse while a server that was launched with one of these records is alive. Pure.

    An adopted one was there before its record and does not need it.

    Raises:
        Refused: names the runs.
    """
    living = [p for p in snapshot.processes if p.state not in ("Z", "X")]
    carried, identities = {p.run_id for p in living}, {p.id for p in living}
    alive = [
        run
        for run in runs
        if not run.adopted and (run.run_id in carried or run.launcher in identities)
    ]
    if alive:
        words = ", ".join(f"{run.server} ({run.run_id})" for run in alive)
        hint = "specops stop them first, or add --force: without its record a server is nobody's"
        raise Refused(f"servers that specops launched still run: {words}", place=host, hint=hint)


async def find(remote: Remote, runs: Sequence[Run]) -> Traces:
    """What specops has left on a host, as it is now.

    Raises:
        HostError: the link is lost.
        ActionFailed: the folder is not one that specops would use, or cannot be read.
    """
    folder = remote.hello.state_dir
    if folder.count("/") < 2 or folder.endswith("/"):
        raise ActionFailed(f"'{folder}' is no state directory", place=remote.host.name)
    (info,) = await remote.stat([folder])
    outside = tuple(
        dict.fromkeys(r.log for r in runs if r.log and not r.log.startswith(f"{folder}/"))
    )
    units = await find_units(remote)
    if info.kind == "missing":
        return Traces(folder, outside=outside, units=units)
    if info.kind != "dir":
        raise ActionFailed("is no folder", place=f"{remote.host.name}:{folder}")
    names = [entry.path.rsplit("/", 1)[-1] for entry in await remote.list_dir(folder)]
    return Traces(
        folder,
        tuple(f"{folder}/{n}" for n in names if n in ENTRIES),
        tuple(f"{folder}/{n}" for n in names if n not in ENTRIES),
        outside,
        exists=True,
        units=units,
    )


async def remove(remote: Remote, *, force: bool = False) -> tuple[str, ...]:
    """Remove the known entries under the host's lock; returns what was removed.

    Written to this machine's audit file before and after: the host's own journal goes with it.

    Raises:
        Refused: another console holds the lock, or a launch came in between.
        ActionFailed: something could not be removed.
    """
    from console.actions.audit import AuditLog

    audit = AuditLog()
    await remote.lock(f"{audit.user}: purge")
    try:
        runs = await remote.runs()
        if not force:
            running(runs, await remote.snapshot(full=True), remote.host.name)
        traces = await find(remote, runs)  # again: taking the lock makes folders that were missing
        argv = ("rm", "-rf", "--one-file-system", "--", *traces.ours)
        said = {"argv": list(argv), "drop_ins": traces.drop_ins, "failed": traces.failed}
        audit.write("purge", host=remote.host.name, detail=said)
        for units in traces.units:
            await remove_units(remote, units)
        done = await remote.run(argv, timeout_s=BOUND_S)
        if not traces.foreign:
            await remote.run(("rmdir", "--", traces.folder), timeout_s=10.0)
        left = [s.path for s in await remote.stat(list(traces.ours)) if s.kind != "missing"]
        outcome = "failed" if left else "ok"
        audit.write("purged", host=remote.host.name, detail={"outcome": outcome, "left": left})
    finally:
        await remote.unlock()
    if left:
        from console.text import clean

        why = clean(done.stderr.strip().rsplit(b"\n", 1)[-1]) or "it came back"
        raise ActionFailed(f"{', '.join(left)} could not be removed: {why}", place=remote.host.name)
    return traces.found


def _document(
    host: str, traces: Traces, removed: tuple[str, ...], *, dry_run: bool
) -> dict[str, Any]:
    return {
        "host": host,
        "folder": traces.folder,
        "found": list(traces.found),
        "removed": list(removed),
        "left": list(traces.stays),
        "dry_run": dry_run,
    }


def _say(traces: Traces) -> None:
    from console.text import clean

    if not traces.exists:
        say(f"{traces.folder} is not there")
    for path in (*traces.drop_ins, *traces.ours):
        say(f"remove  {clean(path)}")
    for name in traces.failed:
        say(f"forget  {clean(name)} (a launch that failed)")
    for path in (path for units in traces.units for path in units.edited):
        warn(f"stays   {clean(path)} (specops did not write it)")
    for path in traces.foreign:
        warn(f"stays   {clean(path)} (specops did not make it)")
    for path in traces.outside:
        warn(f"stays   {clean(path)} (a log outside the state directory)")
