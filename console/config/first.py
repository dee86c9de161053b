"""A first hosts.yaml: the hosts that the operator's ssh knows, and writing it once, whole."""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from console.config.sshconfig import Proposal, proposals
from console.errors import ActionFailed, ConfigError, UsageError

LARGEST = 1 << 20
"""Bytes of an included file that are read; what is larger is no ssh_config."""


def ssh_config() -> Path:
    """The operator's own ssh_config."""
    return Path.home() / ".ssh" / "config"


def ssh_hosts() -> tuple[Proposal, ...]:
    """The hosts that the operator's ssh knows by name, with those of included files.

    Raises:
        ConfigError: the file is missing or cannot be read.
    """
    path = ssh_config()
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        hint = "specops config init writes one to fill in"
        raise ConfigError(error.strerror or str(error), place=str(path), hint=hint) from error
    return proposals(text, getpass.getuser(), included)


def included(word: str) -> Sequence[str]:
    """The files that a word after ``Include`` means: a glob, relative to ``~/.ssh``.

    One that cannot be read is passed over, as by ssh.
    """
    path = Path(word).expanduser()
    if not path.is_absolute():
        path = ssh_config().parent / path
    texts = []
    for found in sorted(Path("/").glob(str(path).lstrip("/"))):
        try:
            if found.is_file() and found.stat().st_size <= LARGEST:
                texts.append(found.read_text("utf-8", "replace"))
        except OSError:
            continue
    return texts


def write_new(path: Path, text: str) -> None:
    """Write a file whole, for its owner alone, and never over one that is there.

    Raises:
        UsageError: there is one already.
        ActionFailed: it cannot be written.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:  # mkstemp makes it 0600
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, this fails where there is a file
    except FileExistsError as error:
        hint = "edit it, or name another file"
        raise UsageError(error.strerror or str(error), place=str(path), hint=hint) from error
    except OSError as error:
        hint = "name a file that can be written, with --hosts"
        raise ActionFailed(error.strerror or str(error), place=str(path), hint=hint) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
