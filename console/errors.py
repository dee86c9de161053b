"""One family of errors: each names the place, what was wrong, what to do, and its exit code.

SpecopsError
├── UsageError          2  a command line or argument that makes no sense
├── ConfigError         2  hosts.yaml or a preset: place is file:line
├── HostError           3  a host that cannot be reached or refuses login
│   ├── AuthError       3  credentials or host key
│   └── AgentError      3  reached, but the agent cannot run or broke off
├── Refused             4  read-only, or no confirmation
├── PreflightFailed     5  a launch that would fail
├── ActionFailed        6  a launch, kill or check that failed
└── TimedOut            7  a bound was reached, or a server stalled
"""

from __future__ import annotations

from typing import ClassVar

PRECEDENCE: tuple[int, ...] = (2, 4, 5, 6, 7, 3, 1, 0)
"""Which exit code wins where several apply."""


class SpecopsError(Exception):
    """Base of all errors that an operator sees as one clear line.

    ``place`` is where (a file and line, a host, a flag), ``hint`` what to do about it.
    """

    exit_code: ClassVar[int] = 6
    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, place: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        """Place, message and hint on one line."""
        where = f"{self.place}: " if self.place else ""
        todo = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.message}{todo}"


class UsageError(SpecopsError):
    """The command line cannot be understood."""

    exit_code = 2
    code = "usage"


class ConfigError(SpecopsError):
    """A configuration file is wrong; ``place`` is ``file:line``."""

    exit_code = 2
    code = "config"


class HostError(SpecopsError):
    """A host cannot be reached."""

    exit_code = 3
    code = "unreachable"


class AuthError(HostError):
    """A host refused the login, or its key is not the known one."""

    code = "auth-failed"


class AgentError(HostError):
    """The host was reached, but the agent cannot run there or broke off."""

    code = "no-agent"


class Refused(SpecopsError):
    """The action is not allowed as asked: read-only, or nobody confirmed it."""

    exit_code = 4
    code = "refused"


class PreflightFailed(SpecopsError):
    """The launch would fail; nothing was changed."""

    exit_code = 5
    code = "preflight"


class ActionFailed(SpecopsError):
    """A step failed, or its check did."""

    exit_code = 6
    code = "failed"


class TimedOut(SpecopsError):
    """A bound was reached before the thing waited for happened."""

    exit_code = 7
    code = "timeout"


def worst(codes: list[int]) -> int:
    """The exit code to use where several apply; 0 for an empty list."""
    for code in PRECEDENCE:
        if code in codes:
            return code
    return max(codes, default=0)
