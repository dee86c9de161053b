"""Which form a launch text has, told from the text itself."""

from __future__ import annotations

import re

from console.errors import UsageError
from console.preflight.command import LaunchCommand
from console.preflight.compose import parse_compose
from console.preflight.parse import ENGINE_HINT, parse_shell
from console.preflight.units import parse_unit


def parse_command(text: str, *, place: str = "command") -> LaunchCommand:
    """The one launch in a text: a shell command or script, docker, a systemd unit, a compose file.

    Raises ``UsageError`` (with ``place`` and line) where there is no launch in it, more than one,
    or the text is not well formed.
    """
    if not text.strip():
        raise UsageError("the text is empty", place=place, hint=ENGINE_HINT)
    if "\0" in text:
        raise UsageError("the text holds a NUL byte", place=place, hint="give a text file")
    if re.search(r"(?m)^services\s*:", text):
        return parse_compose(text, place=place)
    if re.search(r"(?m)^\s*\[Service\]|^\s*ExecStart\s*=", text):
        return parse_unit(text, place=place)
    return parse_shell(text, place=place)
