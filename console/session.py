"""A connected host: ``console.remote.Remote`` over the agent."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from console.errors import AgentError, AuthError, HostError, SpecopsError
from console.model import Artefact, Hello, Host, ProcessId, Run, Snapshot, Target
from console.remote import (
    MOST_HITS,
    Completed,
    Cursor,
    ExitStatus,
    FileStat,
    HostFileError,
    Launch,
    LogChunk,
    LogSource,
    SignalResult,
    UnitStatus,
)
from console.text import clean
from console.transport import bundle, decode
from console.transport.base import Transport
from console.transport.client import Client
from console.transport.opening import open_transport, start_agent
from console.transport.plain import WHY, PlainClient
from console.transport.prompts import Headless, Prompts
from console.transport.said import NoPython

if TYPE_CHECKING:
    import httpx

__all__ = ["Headless", "Prompts", "Session", "connect"]

CLOSE_S = 5.0


async def connect(
    host: Host, *, hosts: Mapping[str, Host], prompts: Prompts, read_only: bool = False
) -> Session:
    """Connect to a host and start its agent, through its hypervisor where it does not answer.

    A host without python gives a session whose ``degraded`` says so and that only takes snapshots.
    Raises ``HostError`` (unreachable), ``AuthError`` (login, host key) or ``AgentError`` (reached,
    but with nothing to work with); each names the host and what to do.
    """
    if host.outer is None:
        return await dial(host, hosts=hosts, prompts=prompts, read_only=read_only)
    from console.outer import enter, tried  # noqa: PLC0415 - it stands on this module

    plain: Session | None = None
    failed = HostError("no agent can run inside", place=host.name)
    try:
        plain = await dial(host, hosts=hosts, prompts=prompts, read_only=read_only)
        if not plain.degraded:
            return plain
    except AuthError:
        raise  # it answers, and refuses: not a matter of going round it
    except HostError as error:
        failed = error
    try:
        session = await enter(host, hosts=hosts, prompts=prompts, read_only=read_only)
    except SpecopsError as error:
        if plain is not None:
            return plain
        raise tried(failed, error) from error
    if plain is not None:
        await plain.close()
    return session


async def dial(
    host: Host, *, hosts: Mapping[str, Host], prompts: Prompts, read_only: bool
) -> Session:
    """Connect to a host by its own address alone; raises as :func:`connect`."""
    transport = await open_transport(host, hosts, prompts)
    client: Client | PlainClient
    try:
        try:
            client, said = await start_agent(transport, host, prompts, read_only=read_only)
        except NoPython:
            client = PlainClient(transport, host)
            said = await client.hello()
    except BaseException:
        await transport.close()
        raise
    session = Session(
        host, transport, client, decode.checked(host.name, lambda: decode.hello(said))
    )
    if said.get("nvml"):
        await session.provide_nvml()
    return session


class Session:
    """Implements :class:`console.remote.Remote`; raises ``HostError`` once the link is lost."""

    def __init__(
        self, host: Host, transport: Transport, client: Client | PlainClient, hello: Hello
    ) -> None:
        self.host = host
        self.hello = hello
        self._transport = transport
        self._client = client
        self._snapshots = decode.SnapshotBuilder(hello)
        self._sampling = asyncio.Lock()

    @property
    def degraded(self) -> str:
        """Why only snapshots are possible, "" where the agent runs."""
        return WHY if isinstance(self._client, PlainClient) else ""

    @property
    def lost(self) -> asyncio.Event:
        """Set as soon as the link is known to be lost."""
        return self._client.lost

    async def _call(self, verb: str, args: Mapping[str, Any], timeout_s: float = 30.0) -> Any:
        return await self._client.call(verb, args, timeout_s=timeout_s)

    async def provide_nvml(self) -> None:
        """Send NVIDIA's binding to a host that has NVIDIA's library."""
        source = bundle.pynvml_source()
        if source is not None:
            for start in range(0, len(source), 512 * 1024):
                piece = source[start : start + 512 * 1024]
                last = start + len(piece) >= len(source)
                data = base64.b64encode(piece).decode()
                await self._call("provide_nvml", {"data": data, "last": last})

    # ---- looking

    async def snapshot(self, *, full: bool = False, artefacts: bool = False) -> Snapshot:
        """Sample the host; see :class:`console.remote.Remote`."""
        async with self._sampling:
            first = not self._snapshots.whole
            args = {"full": full, "artefacts": artefacts, "whole": first}
            try:
                value = await self._call("snapshot", args, 30.0)
            except BaseException as error:
                self._snapshots.whole = False  # an answer may be lost: start afresh
                if isinstance(error, HostFileError):  # no descriptors or memory are left there
                    raise HostError(
                        f"it cannot be looked at: {error.message}", place=self.host.name
                    ) from error
                raise
            return decode.checked(self.host.name, lambda: self._snapshots.build(value))

    async def stat(self, paths: Sequence[str]) -> list[FileStat]:
        """Stat several paths."""
        rows = await self._call("stat", {"paths": list(paths)})
        return decode.checked(self.host.name, lambda: [decode.file_stat(row) for row in rows])

    async def list_dir(self, path: str) -> list[FileStat]:
        """The entries of a directory."""
        rows = await self._call("list_dir", {"path": path})
        return decode.checked(self.host.name, lambda: [decode.file_stat(row) for row in rows])

    async def read_file(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Bytes of a file; raises ``HostFileError``."""
        args = {"path": path, "offset": offset, "limit": limit}
        value = await self._call("read_file", args, 60.0)
        return decode.checked(self.host.name, lambda: base64.b64decode(value, validate=True))

    async def runs(self) -> list[Run]:
        """All run records, newest first; damaged ones are left out."""
        found = []
        for row in await self._call("runs", {}):
            with contextlib.suppress(AgentError):
                found.append(decode.checked(self.host.name, functools.partial(decode.run, row)))
        return sorted(found, key=lambda run: run.launched_at, reverse=True)

    async def journals(self) -> dict[str, list[dict[str, object]]]:
        """The plan journals of the host."""
        value: dict[str, list[dict[str, object]]] = await self._call("journals", {})
        return value

    async def open_journals(self) -> dict[str, list[dict[str, object]]]:
        """The journals without an end."""
        value: dict[str, list[dict[str, object]]] = await self._call("open_journals", {})
        return value

    async def unit_status(self, unit: str, *, user_unit: bool = False) -> UnitStatus:
        """What systemd says of a unit."""
        row = await self._call("unit_status", {"unit": unit, "user_unit": user_unit})
        return decode.checked(self.host.name, lambda: decode.unit_status(unit, row))

    async def exit_status(self, run_id: str) -> ExitStatus | None:
        """How a launched run ended."""
        row = await self._call("exit_status", {"run_id": run_id})
        if row is None:
            return None
        return decode.checked(self.host.name, lambda: decode.exit_status(row))

    async def quiesce(self, seconds: float = 60.0) -> None:
        """Let go of the NVIDIA driver for a while."""
        await self._call("quiesce", {"seconds": seconds})

    # ---- changing

    async def signal(self, targets: Sequence[Target], signal: str) -> list[SignalResult]:
        """Verify and signal each target."""
        rows = [{**asdict(item.process), "run_id": item.run_id} for item in targets]
        value = await self._call("signal", {"targets": rows, "signal": signal}, 10.0)

        def build() -> list[SignalResult]:
            if len(value) != len(targets):
                raise ValueError("one outcome for each target")
            return [
                SignalResult(item.process, _outcome(row["outcome"]), str(row.get("detail", "")))
                for item, row in zip(targets, value, strict=True)
            ]

        return decode.checked(self.host.name, build)

    async def wait_gone(self, processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
        """Wait until every thread of all is gone; returns those still there."""
        rows = [asdict(item) for item in processes]
        args = {"processes": rows, "timeout_s": timeout_s}
        left = await self._call("wait_gone", args, timeout_s)
        return decode.checked(self.host.name, lambda: [processes[index] for index in left])

    async def launch(self, launch: Launch) -> Run:
        """Start a detached server; raises ``ActionFailed`` when it cannot even be executed."""
        args = {
            "run": decode.run_record(launch.run),
            "secrets": dict(launch.secrets),
            "scope": launch.scope,
        }
        value = await self._call("launch", args, 60.0)
        return decode.checked(self.host.name, lambda: decode.run(value))

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a short command."""
        args = {
            "argv": list(argv),
            "timeout_s": timeout_s,
            "stdin": base64.b64encode(stdin).decode(),
            "env": dict(env or {}),
        }
        row = await self._call("run", args, timeout_s + 5.0)

        def build() -> Completed:
            out, err = (base64.b64decode(row[name], validate=True) for name in ("stdout", "stderr"))
            return Completed(None if row["code"] is None else int(row["code"]), out, err)

        return decode.checked(self.host.name, build)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Replace a file whole and atomically."""
        args = {"path": path, "data": base64.b64encode(data).decode(), "mode": mode}
        await self._call("write_file", args)

    async def remove(self, artefacts: Sequence[Artefact]) -> list[tuple[str, str]]:
        """Remove leftovers that are still the same and unheld."""
        value = await self._call("remove", {"artefacts": [asdict(item) for item in artefacts]})
        return decode.checked(
            self.host.name, lambda: [(str(path), str(why)) for path, why in value]
        )

    async def save_run(self, run: Run) -> None:
        """Write a run record."""
        await self._call("save_run", {"run": decode.run_record(run)})

    async def journal(self, plan_id: str, entry: Mapping[str, object]) -> None:
        """Append one fsynced line to a plan's journal."""
        await self._call("journal", {"plan": plan_id, "entry": dict(entry)})

    async def lock_owner(self) -> str | None:
        """Who holds the host's lock."""
        value = await self._call("lock_owner", {})
        return None if value is None else clean(str(value), limit=200)

    async def lock(self, owner: str) -> None:
        """Take the host's lock; raises ``Refused``."""
        await self._call("lock", {"owner": owner})

    async def unlock(self) -> None:
        """Release the host's lock."""
        await self._call("unlock", {})

    # ---- streams

    async def tail(
        self,
        source: LogSource,
        *,
        cursor: Cursor | None = None,
        last_lines: int | None = None,
        follow: bool = True,
    ) -> AsyncIterator[LogChunk]:
        """Follow a log; raises ``HostError`` on a lost link: resume with the last cursor."""
        args = {
            "source": asdict(source),
            "cursor": None if cursor is None else asdict(cursor),
            "last_lines": last_lines,
            "follow": follow,
        }
        stream = await self._client.stream("tail", args)
        try:
            while (item := await stream.next()) is not None:
                yield self._chunk(*item)
        finally:
            stream.close()

    def _chunk(self, meta: Mapping[str, Any], data: bytes) -> LogChunk:
        return decode.checked(
            self.host.name,
            lambda: LogChunk(
                data=data,
                cursor=decode.cursor(meta["cursor"]),
                gap_bytes=int(meta.get("gap_bytes", 0)),
                event=meta.get("event"),
                lag_bytes=int(meta.get("lag_bytes", 0)),
            ),
        )

    async def grep(
        self,
        source: LogSource,
        pattern: str | Sequence[str],
        *,
        max_lines: int = MOST_HITS,
        ignore_case: bool = False,
        newest: bool = False,
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Matching lines with their byte offsets, searched on the host."""
        args = {
            "source": asdict(source),
            "pattern": pattern if isinstance(pattern, str) else list(pattern),
            "max_lines": max_lines,
            "ignore_case": ignore_case,
            "newest": newest,
        }
        stream = await self._client.stream("grep", args)
        try:
            while (item := await stream.next()) is not None:
                for offset, line in decode.matches(self.host.name, *item):
                    yield offset, line
        finally:
            stream.close()

    def http(self) -> httpx.AsyncBaseTransport:
        """An httpx transport over the agent."""
        from console.transport.http import agent_transport  # noqa: PLC0415 - httpx is heavy

        return agent_transport(self._client)

    async def close(self) -> None:
        """End the agent and give the connection back; never raises."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._client.close()
        except (TimeoutError, HostError, OSError):
            pass
        await self._transport.close()


def _outcome(word: Any) -> Any:
    if word not in ("signalled", "gone", "changed", "denied"):
        raise ValueError("unknown outcome of a signal")
    return word
