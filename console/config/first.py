"""A first hosts.yaml: the hosts that the operator's ssh knows."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from pathlib import Path

from console.config.sshconfig import Proposal, proposals
from console.errors import ConfigError

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
