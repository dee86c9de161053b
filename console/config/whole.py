"""Files written whole: a crash leaves what was there or what is new, never half of one."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from console.errors import ActionFailed, UsageError


def write_atomically(path: Path, text: str) -> None:
    """Replace a file; its mode stays, a new one is 0644."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    with _beside(path, text) as temporary:
        temporary.chmod(mode)
        temporary.replace(path)


def write_new(path: Path, text: str) -> None:
    """Write a file for its owner alone, and never over one that is there.

    Raises:
        UsageError: there is one already.
        ActionFailed: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _beside(path, text) as temporary:
            os.link(temporary, path)  # unlike a rename, this fails where there is a file
    except FileExistsError as error:
        hint = "edit it, or name another file"
        raise UsageError(error.strerror or str(error), place=str(path), hint=hint) from error
    except OSError as error:
        hint = "name a file that can be written, with --hosts"
        raise ActionFailed(error.strerror or str(error), place=str(path), hint=hint) from error


def as_name(text: str) -> str:
    """Text that a host may have given, as part of a file's name: never a way out of its folder."""
    return re.sub("[^A-Za-z0-9_-]", "_", text)[:128]


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only the operator can read, over an older one; raises ``OSError``."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)


@contextmanager
def _beside(path: Path, text: str) -> Iterator[Path]:
    """A file next to this one that holds the text, on the disk, for its owner alone."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
