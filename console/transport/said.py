"""What an agent, or what stands before it, says of a failure, as the house's errors."""

from __future__ import annotations

from typing import Any

from console.errors import (
    ActionFailed,
    AgentError,
    AuthError,
    HostError,
    Refused,
    SpecopsError,
    UsageError,
)
from console.remote import HostFileError
from console.text import clean


class NoPython(AgentError):
    """The host was reached, but the python asked for is not there."""


def remote_error(host: str, value: Any) -> SpecopsError:
    """The exception for an error frame."""
    if not isinstance(value, dict):
        return AgentError("the agent reported something unreadable", place=host)
    message, hint = clean(str(value.get("message")), limit=600), clean(str(value.get("hint") or ""))
    kind, number = value.get("kind"), value.get("errno")
    if kind == "refused":
        return Refused(message, place=host, hint=hint)
    if kind == "usage":
        return UsageError(message, place=host, hint=hint)
    if kind == "os":
        code = number if isinstance(number, int) else None
        return HostFileError(message, place=host, hint=hint, errno=code)
    return ActionFailed(message, place=host, hint=hint)


_SSH_SAYS = (
    ("identification has changed", "the host key has changed", "compare before removing the old"),
    ("host key verification failed", "the host key is unknown or has changed",
     "run ssh HOST once by hand and compare the key"),
    ("permission denied (", "the login was refused", "check user, keys and agent (ssh-add -l)"),
    ("too many authentication failures", "the login was refused: too many keys were offered",
     "set identity_files: for this host"),
)  # fmt: skip
_UNREACHABLE = (
    "could not resolve", "connection refused", "timed out", "no route to host",
    "network is unreachable", "connection closed by", "connection reset by",
)  # fmt: skip
"""What the system's ssh says, in small letters."""


def start_error(host: str, said: str, everything: str) -> HostError:
    """Why the agent's command ended before it could speak, from its last and all its words."""
    low = everything.lower()
    for words, message, hint in _SSH_SAYS:
        if words in low:
            return AuthError(message, place=host, hint=hint)
    if any(words in low for words in _UNREACHABLE):
        return HostError(said.removeprefix("ssh: "), place=host)
    if "specops: python" in low:
        return AgentError(
            said.removeprefix("specops: "), place=host, hint="set python: for this host"
        )
    if "not found" in low or "no such file" in low or "unknown command" in low:
        return NoPython(f"no python there: {said}", place=host, hint="set python: for this host")
    if "not available" in low or "nologin" in low:
        hint = "give the account a shell, or name another one with user:"
        return AgentError(f"the account may not run commands: {said}", place=host, hint=hint)
    hint = f"does python3 run there? python: names another one; specops doctor {host} looks closer"
    message = f"the agent could not start{': ' + said if said else ''}"
    return AgentError(message, place=host, hint=hint)
