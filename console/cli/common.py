"""Options and connections that the commands share."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from console.cli.output import warn
from console.errors import AgentError, AuthError, HostError, Refused, SpecopsError, UsageError

if TYPE_CHECKING:
    from console.config import Config
    from console.config.presets import Presets
    from console.errors import Mistakes
    from console.model import Host, HostState
    from console.remote import Remote

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cli:
    """The options every command has, and what is read because of them."""

    hosts: Path | None = None
    demo: bool = False
    json: bool = False

    def config(self, *, quiet: bool = False, mistakes: Mistakes | None = None) -> Config:
        """The hosts.yaml in use; says on stderr why a nearer one was passed over, unless quiet.

        Raises:
            ConfigError: it cannot be used; with ``mistakes`` those in it are kept there.
        """
        from console.config import load, shipped_hosts

        config = load(shipped_hosts() if self.demo else self.hosts, mistakes)
        if config.note and not quiet:
            warn(config.note, head="specops")
        return config

    def presets(self, *, quiet: bool = False) -> Presets:
        """All presets in reach; those that cannot be read are named on stderr, unless quiet."""
        from console.config.presets import load_presets

        found = load_presets(self.hosts)
        for error in () if quiet else found.broken.values():
            warn(f"preset left out: {error}", head="warning")
        return found

    def select(self, config: Config, names: Sequence[str]) -> list[Host]:
        """The hosts named, or all of them."""
        chosen = [config.host(name) for name in dict.fromkeys(names)] or list(config.hosts.values())
        if not chosen:
            raise UsageError("no hosts", place=str(config.path), hint="specops config init")
        return chosen


def common(*, json: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--hosts``, ``--demo`` (and ``--json``); the function gets them as one :class:`Cli`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, hosts: Path | None, demo: bool, **options: Any) -> Any:
            as_json = options.pop("as_json", False)
            if hosts and demo:
                raise UsageError("--hosts and --demo together", hint="give one of them")
            return function(Cli(hosts, demo, as_json), *args, **options)

        wrapped = click.option(
            "--hosts",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The hosts.yaml to use.",
        )(wrapper)
        wrapped = click.option(
            "--demo", is_flag=True, help="This machine with the bundled server, no hosts.yaml."
        )(wrapped)
        if json:
            wrapped = click.option(
                "--json", "as_json", is_flag=True, help="One JSON document on stdout."
            )(wrapped)
        return wrapped

    return decorate


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end; SIGTERM and SIGHUP cancel, so that agents are closed and locks fall."""

    async def guarded() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(main)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@asynccontextmanager
async def connected(
    config: Config, host: Host, *, read_only: bool = False
) -> AsyncIterator[Remote]:
    """A connection that is closed again whatever happens."""
    from console.cli.prompts import prompts
    from console.session import connect

    remote = await connect(host, hosts=config.hosts, prompts=prompts(), read_only=read_only)
    try:
        yield remote
    finally:
        await asyncio.shield(remote.close())


@asynccontextmanager
async def connected_all(
    config: Config, names: Sequence[str], *, read_only: bool = False,
    lost: dict[str, HostError] | None = None,
) -> AsyncIterator[dict[str, Remote]]:  # fmt: skip
    """Connections to several hosts by name, in their order; all are closed whatever happens.

    With ``lost`` the hosts that are not reached are put there, and only all of them are an error.
    """
    async with AsyncExitStack() as stack:
        found: dict[str, Remote] = {}
        for name in dict.fromkeys(names):
            try:
                found[name] = await stack.enter_async_context(
                    connected(config, config.host(name), read_only=read_only)
                )
            except HostError as error:
                if lost is None or len(lost) + 1 == len(set(names)):
                    raise
                lost[name] = error
        yield found


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What one host answered, or why it did not."""

    host: Host
    value: T | None = None
    error: SpecopsError | None = None

    @property
    def state(self) -> HostState:
        """The host's state in the contract's words."""
        from console.model import HostState

        if self.error is None:
            return HostState.OK
        return state_of(self.error)


def state_of(error: SpecopsError) -> HostState:
    """The state of a host that gave this error."""
    from console.model import HostState

    if isinstance(error, AuthError):
        return HostState.AUTH_FAILED
    if isinstance(error, AgentError):
        return HostState.NO_AGENT
    return HostState.UNREACHABLE


async def ask(
    config: Config,
    hosts: Sequence[Host],
    question: Callable[[Remote], Awaitable[T]],
    *,
    read_only: bool = True,
) -> list[Answer[T]]:
    """Ask all hosts at once; one that is lost answers with its error, the others do not wait."""

    async def one(host: Host) -> Answer[T]:
        try:
            async with connected(config, host, read_only=read_only) as remote:
                return Answer(host, await question(remote))
        except HostError as error:
            return Answer(host, error=error)

    return list(await asyncio.gather(*(one(host) for host in hosts)))


def confirm(question: str, *, yes: bool) -> None:
    """Ask before a host is changed; ``y`` and Enter, nothing else, is a yes.

    Raises:
        Refused: no, or nobody there to ask.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(
            "nobody to confirm it", hint="add --yes, or --dry-run to see what would be done"
        )
    sys.stderr.write(f"{question} Type y to do it: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != "y":
        raise Refused("not confirmed", hint="nothing was changed")


def confirm_typed(question: str, word: str, *, given: str | None = None, yes: bool = False) -> None:
    """Ask for a whole word before something that a slip must not do; a yes is not enough.

    ``given`` is what the command line has as that word already.

    Raises:
        Refused: another word, or nobody there to ask.
    """
    if given == word:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        what = "--yes is not enough for this" if yes else "nobody to confirm it"
        hint = f"add --confirm {word}, or --dry-run to see what would be done"
        raise Refused(what, hint=hint)
    sys.stderr.write(f"{question} Type {word} to do it: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != word:
        raise Refused("not confirmed", hint="nothing was changed")
