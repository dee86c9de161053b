"""What is taken for left behind on this machine, through a real agent."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

from console.session import Session


async def test_a_socket_with_somebody_behind_it_stays_wherever_he_listens(
    session: Session, tmp_path: Path
) -> None:
    """A path bound relatively is not in the kernel's list under the name it is found by."""
    folder = Path(tempfile.mkdtemp(prefix="specops-zmq-", dir="/tmp"))
    before = Path.cwd()
    sockets = {name: socket.socket(socket.AF_UNIX) for name in ("live-ipc", "stale-ipc")}
    try:
        os.chdir(folder)
        for name, item in sockets.items():
            item.bind(name)
            item.listen(1)
        sockets["stale-ipc"].close()
        snapshot = await session.snapshot(full=True, artefacts=True)
        found = {Path(item.path).name: item for item in snapshot.artefacts}
        assert found["live-ipc"].holders is None
        assert found["stale-ipc"].holders == ()
        results = await session.remove([found["live-ipc"], found["stale-ipc"]])
        assert [bool(why) for _, why in results] == [True, False]
        assert sorted(path.name for path in folder.iterdir()) == ["live-ipc"]
    finally:
        os.chdir(before)
        for item in sockets.values():
            item.close()
        shutil.rmtree(folder)


async def test_a_lock_of_another_program_is_no_leftover(session: Session) -> None:
    mine, other = (Path(f"/tmp/{name}-{os.getpid()}.lock") for name in ("triton", "backup"))
    try:
        mine.touch()
        other.touch()
        found = {item.path for item in (await session.snapshot(artefacts=True)).artefacts}
        assert str(mine) in found
        assert str(other) not in found
    finally:
        mine.unlink()
        other.unlink()


async def test_a_new_file_with_the_number_of_an_old_one_stays(session: Session) -> None:
    """A lock that a build has just made may have got the number of the stale one it replaces."""
    path = Path(f"/tmp/triton-{os.getpid()}.lock")
    try:
        path.touch()
        then = path.stat().st_mtime - 7200
        os.utime(path, (then, then))
        found = {item.path: item for item in (await session.snapshot(artefacts=True)).artefacts}
        # What the plan remembers of the old one: the same device and number, two hours of age.
        old = replace(found[str(path)], age_s=7200.0)
        ((_, why),) = await session.remove([old])
        assert why == "it has changed since it was looked at"
        assert path.exists()
        ((_, why),) = await session.remove([found[str(path)]])
        assert (why, path.exists()) == ("", False)
    finally:
        path.unlink(missing_ok=True)
