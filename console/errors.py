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

import re
from collections.abc import Iterator
from contextlib import contextmanager
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

    def at(self, place: str) -> str:
        """The line for where ``place`` is shown beside it already."""
        return str(self).removeprefix(f"{place}: ")


class UsageError(SpecopsError):
    """The command line cannot be understood."""

    exit_code = 2
    code = "usage"


class ConfigError(SpecopsError):
    """A configuration file is wrong; ``place`` is ``file:line:column`` where that is known.

    ``others`` are the further mistakes of the same reading, in the file's order.
    """

    exit_code = 2
    code = "config"
    others: tuple[ConfigError, ...] = ()

    def __str__(self) -> str:
        """The first mistake on one line, and how many more there are."""
        more = f"; {len(self.others)} more after it" if self.others else ""
        return f"{super().__str__()}{more}"

    @property
    def each(self) -> tuple[ConfigError, ...]:
        """All mistakes, each an error of its own."""
        first = ConfigError(self.message, place=self.place, hint=self.hint)
        return (first, *self.others)


class Mistakes:
    """The mistakes of one reading: all are told at once, not one after each edit."""

    def __init__(self) -> None:
        self._found: dict[str, ConfigError] = {}

    def add(self, error: ConfigError) -> None:
        """One more; the same is told once."""
        for one in error.each:
            self._found.setdefault(str(one), one)

    def __iter__(self) -> Iterator[ConfigError]:
        """Each of them, in the order of their places."""
        return iter(sorted(self._found.values(), key=lambda one: _in_order(one.place)))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A ``ConfigError`` within is kept, and the reading goes on after it."""
        try:
            yield
        except ConfigError as error:
            self.add(error)

    def tell(self) -> None:
        """End here if there were any.

        Raises:
            ConfigError: the first of them by line, with the others.
        """
        if self._found:
            first, *others = self
            error = ConfigError(first.message, place=first.place, hint=first.hint)
            error.others = tuple(others)
            raise error


def _in_order(place: str) -> tuple[str, int, int]:
    """File, line and column of a place; what names no line comes first."""
    found = re.fullmatch(r"(.*?)(?::(\d+))?(?::(\d+))?", place, re.DOTALL)
    return (found[1], int(found[2] or 0), int(found[3] or 0)) if found else (place, 0, 0)


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
