"""A host whose inside does not answer, reached by way of its hypervisor (``outer`` in hosts.yaml).

First the agent is started inside, by ``pct exec`` or ``docker exec``: all is as ever. Where even
that fails, the hypervisor's agent looks at the container's processes from outside, under the pids
that they have there, and ends them there: which those are is told by the pid namespace of the
container's init. Nothing else of the inside can be had that way, and nothing of the hypervisor's
is taken for it: its files, logs, ports and records stay out of sight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from console.errors import ActionFailed, AgentError, HostError, SpecopsError
from console.model import Host, Outer, Process, ProcessId, Run, Snapshot, Target, Via
from console.remote import Completed, HostFileError, SignalResult
from console.session import Session, dial
from console.transport.prompts import Prompts

if TYPE_CHECKING:
    import httpx

ASK_S = 10.0


async def enter(
    host: Host, *, hosts: Mapping[str, Host], prompts: Prompts, read_only: bool
) -> Session:
    """A session to a host through its hypervisor.

    Raises:
        HostError: that cannot be reached either, or does not run the container.
    """
    assert host.outer is not None
    outer = hosts[host.outer.host]
    via = _via(host.outer)
    inner = replace(outer, via=via, python=host.python)
    try:
        session = await dial(inner, hosts=hosts, prompts=prompts, read_only=read_only)
        if not session.degraded:
            session.host = host
            session.hello = replace(session.hello, through=f"{via.kind} exec on {outer.name}")
            return session
        await session.close()
    except HostError:
        pass  # what is wrong inside shows below, or does not matter any more
    session = await dial(outer, hosts=hosts, prompts=prompts, read_only=read_only)
    try:
        return Contained(session, host, await _init_of(session, host.outer))
    except BaseException:
        await session.close()
        raise


def _via(outer: Outer) -> Via:
    if outer.pct is not None:
        return Via("pct", str(outer.pct))
    if outer.docker is not None:
        return Via("docker", outer.docker)
    raise HostError("outer names no container", hint="outer: {host: NAME, pct: 129}")


async def _init_of(session: Session, outer: Outer) -> Process:
    """The container's init, as the hypervisor sees it.

    Raises:
        HostError: the container is not there, does not run, or has no pids of its own.
    """
    via, place = _via(outer), session.host.name
    argv = ["lxc-info", "-n", via.name, "-p", "-H"]
    if via.kind == "docker":
        argv = ["docker", "inspect", "-f", "{{.State.Pid}}", via.name]
    try:
        done = await session.run(argv, timeout_s=ASK_S)
    except ActionFailed as error:
        raise HostError(f"{argv[0]}: {error.message}", place=place) from error
    said = done.stdout.decode("ascii", "replace").strip()
    if done.code != 0 or not said.isdigit() or int(said) <= 1:
        why = f"container {via.name} does not run"
        raise HostError(why, place=place, hint=f"{' '.join(argv)} said: {said[:40] or 'nothing'}")
    snapshot = await session.snapshot(full=True)
    init = next((p for p in snapshot.processes if p.id.pid == int(said)), None)
    if init is None or not init.pid_namespace or init.inner_pid != 1:
        raise HostError(f"pid {said} is not the init of container {via.name}", place=place)
    if init.pid_namespace == session.hello.pid_namespace:
        raise HostError(f"container {via.name} has no pids of its own", place=place)
    return init


@dataclass(frozen=True, slots=True)
class _Nowhere:
    """Why something of the inside cannot be had."""

    host: str
    outer: str

    def refuse(self, what: str) -> NoReturn:
        """Raise ``HostFileError``."""
        raise HostFileError(f"{what} cannot be had from {self.outer}", place=self.host)


class Contained(Session):
    """The processes of a container from outside: seen, signalled and waited for, no more."""

    def __init__(self, session: Session, host: Host, init: Process) -> None:
        through = f"the processes on {session.host.name}"
        hello = replace(session.hello, through=through, systemd=False)
        super().__init__(host, session._transport, session._client, hello)
        self._init = init
        self._via = _via(host.outer) if host.outer else Via("pct", "0")
        self._nowhere = _Nowhere(host.name, session.host.name)
        self._members: frozenset[ProcessId] = frozenset()

    async def snapshot(self, *, full: bool = False, artefacts: bool = False) -> Snapshot:
        """The whole machine, of which only the container's own processes may be touched.

        Raises:
            HostError: the container was started anew or ended.
        """
        del artefacts  # those of the hypervisor are not this host's
        seen = await super().snapshot(full=full)
        init = next((p for p in seen.processes if p.id == self._init.id), None)
        if init is None or init.pid_namespace != self._init.pid_namespace:
            raise HostError("its container has ended or was started anew", place=self.host.name)
        processes = tuple(self._seen(process) for process in seen.processes)
        self._members = frozenset(p.id for p in processes if not p.foreign_namespace)
        return replace(
            seen,
            processes=processes,
            uid=init.uid,  # root inside may be another user outside
            artefacts=(),
            listening={},
            ports_known=False,
            protected=seen.protected | {init.id.pid},
        )

    def _seen(self, process: Process) -> Process:
        own = process.pid_namespace == self._init.pid_namespace
        container = process.container if not own else None
        return replace(
            process, foreign_namespace=not own, container=container, listening=(), established=()
        )

    async def signal(self, targets: Sequence[Target], signal: str) -> list[SignalResult]:
        """Signal processes that the last look showed inside the container, and none else."""
        mine = [target for target in targets if target.process in self._members]
        sent = {result.process: result for result in await super().signal(mine, signal)}
        outside = "it is not in the container"
        return [sent.get(t.process) or SignalResult(t.process, "denied", outside) for t in targets]

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """A command inside, where the container still takes one; never one of the hypervisor."""
        way = ["pct", "exec", self._via.name, "--"]
        if self._via.kind == "docker":
            way = ["docker", "exec", "-i", self._via.name]
        if env:
            self._nowhere.refuse("a command with variables")
        return await super().run([*way, *argv], timeout_s=timeout_s, stdin=stdin)

    async def runs(self) -> list[Run]:
        """None: the records are inside."""
        return []

    async def journals(self) -> dict[str, list[dict[str, object]]]:
        """The plans that were carried out this way."""
        found = await super().journals()
        return {name: rows for name, rows in found.items() if _is_for(rows, self.host.name)}

    async def open_journals(self) -> dict[str, list[dict[str, object]]]:
        """None: with the records of runs, that are inside, nobody could tell what is over."""
        return {}

    def http(self) -> httpx.AsyncBaseTransport:
        """Answers nothing: a port of the hypervisor is not one of the container."""
        from console.transport.http import no_transport  # noqa: PLC0415 - httpx is heavy

        return no_transport(f"ports of {self.host.name} cannot be asked from outside")

    async def _call(self, verb: str, args: Mapping[str, Any], timeout_s: float = 30.0) -> Any:
        if verb not in _VERBS:
            self._nowhere.refuse(verb.replace("_", " "))
        return await super()._call(verb, args, timeout_s)

    def tail(self, *_args: Any, **_options: Any) -> Any:
        """Not from outside."""
        self._nowhere.refuse("a log")

    def grep(self, *_args: Any, **_options: Any) -> Any:
        """Not from outside."""
        self._nowhere.refuse("a log")


_VERBS = frozenset(
    {"snapshot", "signal", "wait_gone", "run", "journal", "journals", "lock", "unlock", "quiesce"}
)
"""What the hypervisor's agent is asked for; anything else would be about the hypervisor."""


def _is_for(rows: Sequence[Mapping[str, object]], host: str) -> bool:
    plan = rows[0].get("plan") if rows else None
    return isinstance(plan, Mapping) and plan.get("host") == host


def tried(error: HostError, through: SpecopsError) -> HostError:
    """The first error, with what came of the way round."""
    kind = AgentError if isinstance(error, AgentError) else HostError
    way = f"nor through its hypervisor: {through}"
    hint = f"{error.hint}; {way}" if error.hint else way
    return kind(error.message, place=error.place, hint=hint)
