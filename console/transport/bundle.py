"""The agent as it travels: the command that starts it, and the archive sent to its input."""

from __future__ import annotations

import functools
import io
import re
import secrets
import zipfile
from importlib import resources

from console import __version__
from console.agent import child, wire
from console.errors import ConfigError
from console.model import Host

LOOKING = ("sample", "gpu", "gone", "files", "state", "units", "tail", "grep", "tcp")
CHANGING = ("kill", "launch", "change", "record", "command")
READ_ONLY = ("look",)
"""Modules with verbs: always sent, sent unless read-only, sent only read-only."""
WITHHELD = ("kill", "launch", "starter", "change", "record")
"""Modules that a read-only archive does not hold at all."""

_PYTHON = re.compile(r"^[A-Za-z0-9_./+-]+$")
_INNER = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
_OLD = (
    'sys.version_info<(3,8) and sys.exit("specops: python 3.8 or newer is needed, '
    'this is "+".".join(map(str,sys.version_info[:2])))'
)


def sentinel() -> str:
    """A random word that nobody else can print before the agent is there."""
    return secrets.token_hex(16)


def start_argv(host: Host, mark: str) -> list[str]:
    """The words that start the agent; valid in sh, csh and fish once each is quoted.

    The sentinel is printed from two halves, so that a shell that echoes its command line does
    not print it.
    """
    if not _PYTHON.match(host.python) or host.python.startswith("-"):
        raise ConfigError(f"python: {host.python!r} is not a program's path", place=host.name)
    half = len(mark) // 2
    code = (
        f"import sys;{_OLD};"
        f'sys.stdout.write("{mark[:half]}"+"{mark[half:]}"+chr(10));sys.stdout.flush();'
    ) + child.BOOT.replace("import sys;", "", 1)
    return [host.python, "-I", "-S", "-u", "-c", code]


def wrapped(host: Host, argv: list[str], sudo: tuple[str, ...] = ()) -> list[str]:
    """The command inside the host's inner target, and as root where it is asked for."""
    if host.via is not None:
        if not _INNER.match(host.via.name):
            raise ConfigError(f"via: {host.via.name!r} is not a container", place=host.name)
        if host.via.kind == "pct":
            argv = ["pct", "exec", host.via.name, "--", *argv]
        else:
            argv = ["docker", "exec", "-i", host.via.name, *argv]
    return [*sudo, *argv]


@functools.cache
def archive(*, read_only: bool = False) -> bytes:
    """The zip archive of the agent's own modules."""
    config = {
        "version": __version__,
        "read_only": read_only,
        "modules": [*LOOKING, *(READ_ONLY if read_only else CHANGING)],
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("console/__init__.py", "")
        for item in sorted(
            resources.files("console.agent").iterdir(), key=lambda entry: entry.name
        ):
            stem, _, ending = item.name.partition(".")
            if ending == "py" and not (read_only and stem in WITHHELD):
                bundle.writestr(f"console/agent/{item.name}", item.read_bytes())
        bundle.writestr("config.json", wire.dumps(config))
    return buffer.getvalue()


@functools.cache
def start_message(*, read_only: bool = False) -> bytes:
    """What is sent to the agent's input once its sentinel was seen."""
    loader = resources.files("console.agent").joinpath("loader.py").read_bytes()
    return child.start_message(loader, archive(read_only=read_only), "console.agent.main")


@functools.cache
def pynvml_source() -> bytes | None:
    """The source of NVIDIA's binding as installed beside specops, or ``None``."""
    import importlib.util  # noqa: PLC0415 - only where a host has the library

    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return None
    with open(spec.origin, "rb") as source:  # noqa: PTH123 - a path from the import system
        return source.read()
