"""Which form a launch text has, told from the text itself."""

from __future__ import annotations

import re

from console.errors import UsageError
from console.preflight.beside import Reader, with_files
from console.preflight.command import LaunchCommand
from console.preflight.compose import parse_compose
from console.preflight.manifests import (
    is_json_argv,
    parse_dockerfile,
    parse_json,
    parse_manifest,
)
from console.preflight.parse import ENGINE_HINT, parse_shell
from console.preflight.units import parse_unit


def parse_command(
    text: str, *, place: str = "command", read: Reader | None = None
) -> LaunchCommand:
    """The one launch in a text, whatever form it has.

    A shell command or script, docker, a systemd unit, a compose file, a Kubernetes manifest, a
    Dockerfile, a JSON list of words. ``read`` gives the files that it names (``beside.reader``);
    without it they stay unread.

    Raises ``UsageError`` (with ``place`` and line) where there is no launch in it, more than one,
    or the text is not well formed.
    """
    command = _parse(text, place, read or (lambda _: None))
    return with_files(command, read) if read else command


def _parse(text: str, place: str, read: Reader) -> LaunchCommand:
    if not text.strip():
        raise UsageError("the text is empty", place=place, hint=ENGINE_HINT)
    if "\0" in text:
        raise UsageError("the text holds a NUL byte", place=place, hint="give a text file")
    if re.search(r"(?m)^services\s*:", text):
        return parse_compose(text, place=place)
    if re.search(r"(?m)^\s*(?:- )?containers\s*:\s*$", text):
        return parse_manifest(text, place=place)
    if re.search(r"(?m)^FROM\s+\S", text) and re.search(r"(?m)^(?:CMD|ENTRYPOINT)\s", text):
        return parse_dockerfile(text, place=place)
    if is_json_argv(text):
        return parse_json(text, place=place)
    if re.search(r"(?m)^\s*\[Service\]|^\s*ExecStart\s*=", text):
        return parse_unit(text, place=place, read=read)
    return parse_shell(text, place=place)
