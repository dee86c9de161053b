"""Values behind ``secret:NAME``: from this operator's own environment or files, kept nowhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from console.config.paths import config_dir
from console.errors import ConfigError


def resolve(names: Iterable[str]) -> dict[str, str]:
    """The value of each secret.

    Looked for in the environment variable of that name, then in ``secrets/NAME`` beside the
    operator's hosts.yaml, a file that nobody else may read.

    Raises:
        ConfigError: neither is there, or others can read the file.
    """
    return {name: _value(name) for name in names}


def _value(name: str) -> str:
    if value := os.environ.get(name):
        return value
    path = config_dir() / "secrets" / name
    try:
        info = path.stat()
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        hint = f"export {name}=… before specops, or write it to {path} with mode 0600"
        raise ConfigError(f"no value for secret:{name}", place=str(path), hint=hint) from error
    if info.st_uid != os.getuid() or info.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError("others may read this secret", place=str(path), hint=f"chmod 600 {path}")
    if not text or "\n" in text or "\0" in text:
        raise ConfigError("a secret is one line of text", place=str(path))
    return text
