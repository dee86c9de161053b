"""Measure a server over its host's connection, and keep what came out on this machine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.errors import ActionFailed, UsageError
from console.planning.past import folder, rows

if TYPE_CHECKING:
    from console.bench import Level
    from console.model import Server
    from console.remote import Remote


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of the server: requests a level are ``per_worker`` times the concurrency."""

    concurrency: tuple[int, ...]
    per_worker: int
    tokens: int

    @property
    def requests(self) -> int:
        """All requests together, without the two that warm up."""
        return sum(self.concurrency) * self.per_worker


@dataclass(frozen=True, slots=True)
class Bench:
    """One measurement as the history keeps it. ``at`` is in seconds since 1970.

    ``levels`` are whole, with those where requests failed. ``server`` is empty in histories that
    did not keep it.
    """

    host: str
    server: str
    at: float
    model: str
    presets: str
    run_id: str
    tokens: int
    levels: tuple[Level, ...]
    running: bool = False
    """Not yet at its end; such a one is never in the history."""

    @property
    def key(self) -> tuple[float, str]:
        """Its identity within a host."""
        return self.at, self.run_id

    @property
    def accept_length(self) -> float | None:
        """Under the highest load that told one."""
        known = [x.accept_length for x in self.levels if x.accept_length is not None]
        return known[-1] if known else None


def levels(text: str) -> tuple[int, ...]:
    """``1,8,32`` as numbers.

    Raises:
        UsageError: something else.
    """
    try:
        found = tuple(int(word) for word in text.split(","))
    except ValueError:
        found = ()
    if not found or any(not 1 <= n <= 4096 for n in found):
        raise UsageError(f"'{text}' is no list of numbers", place="--concurrency", hint="1,8,32")
    return found


async def run_levels(
    remote: Remote, server: Server, load: Load, tell: Callable[[str], None]
) -> tuple[list[Level], dict[str, Any]]:
    """Warm up, then each concurrency; and which run and presets it was that were measured.

    ``tell`` is told how far it is, every few seconds.

    Raises:
        ActionFailed: the server does not complete.
        HostError: the link is lost.
    """
    ran = await running(remote, server)
    found: list[Level] = []
    async for level in each_level(remote, server, load, tell):
        tell(f"at {level.concurrency}: {level.tokens_per_s:.1f} tokens/s")
        found.append(level)
    return found, ran


async def each_level(
    remote: Remote, server: Server, load: Load, tell: Callable[[str], None] = lambda _line: None
) -> AsyncGenerator[Level]:
    """Warm up, then one level after the other, as they come.

    Raises:
        ActionFailed: the server does not complete.
        HostError: the link is lost.
    """
    from console.bench import measure, warm_up  # noqa: PLC0415 - httpx, only when measured
    from console.watch import probe  # noqa: PLC0415

    key = api_key(server)
    client = probe.open_client(remote.http())
    try:
        url = probe.address(server, await _port(remote, server))
        tell(f"warming up, then {load.requests} requests of {load.tokens} tokens")
        try:
            await warm_up(client, url, load.tokens, key)
        except ActionFailed as error:
            if await _is_there(remote, server):
                raise
            hint = f"specops launch {server.name}"
            raise ActionFailed("it is stopped", place=server.name, hint=hint) from error
        for count in load.concurrency:
            yield await measure(client, url, concurrency=count, tokens=load.tokens, key=key,
                                requests=count * load.per_worker, tell=tell)  # fmt: skip
    finally:
        await client.aclose()


async def _port(remote: Remote, server: Server) -> int | None:
    """Where its processes serve, which need not be what hosts.yaml says."""
    from console.watch.attribution import find  # noqa: PLC0415 - only when measured

    return find(server, await remote.runs(), await remote.snapshot()).port


async def _is_there(remote: Remote, server: Server) -> bool:
    """Whether anything of it lives, or anything listens where it should."""
    from console.watch.attribution import find  # noqa: PLC0415 - only when measured

    snapshot = await remote.snapshot()
    return bool(
        find(server, await remote.runs(), snapshot).alive or server.port in snapshot.listening
    )


async def running(remote: Remote, server: Server) -> dict[str, Any]:
    """Which run, model and presets serve now."""
    from console.watch.attribution import find  # noqa: PLC0415 - only when measured

    newest = find(server, await remote.runs(), await remote.snapshot()).run
    return {
        "server": server.name,
        "run_id": newest.run_id if newest else None,
        "model": (newest.model if newest else "") or server.model,
        "speculative": newest.speculative if newest else server.speculative,
        "nccl": newest.nccl if newest else server.nccl,
        "preset": newest.preset if newest else None,
    }


def api_key(server: Server) -> str | None:
    """The server's API key, where its entry names a secret for it.

    Raises:
        ConfigError: it does, and nothing on this machine knows it.
    """
    from console.planning.secretstore import resolve  # noqa: PLC0415 - only where one is named
    from console.runners.settings import REFERENCE  # noqa: PLC0415

    value = server.args.get("api-key")
    if not isinstance(value, str) or not value.startswith(REFERENCE):
        return None
    name = value.removeprefix(REFERENCE)
    return resolve([name])[name]


# ---- kept


def level_to_json(level: Level) -> dict[str, Any]:
    """One concurrency as JSON; percentiles as p50, p90, p99 in seconds."""
    body = asdict(level)
    for key in ("ttft_s", "itl_s"):
        body[key] = {f"p{p}": round(value, 6) for p, value in body[key].items()}
    return body


def level_of(row: Mapping[str, Any]) -> Level:
    """The level that :func:`level_to_json` wrote; raises ``KeyError`` and the like for others."""
    from console.bench import Level  # noqa: PLC0415 - httpx, only where there is a history

    def seconds(name: str) -> dict[int, float]:
        return {int(p[1:]): float(value) for p, value in row[name].items()}

    accept = row.get("accept_length")
    return Level(
        int(row["concurrency"]), int(row["requests"]), int(row["failed"]), float(row["seconds"]),
        int(row["tokens"]), float(row["tokens_per_s"]), seconds("ttft_s"), seconds("itl_s"),
        None if accept is None else float(accept), str(row.get("error") or ""),
    )  # fmt: skip


def keep(host: str, ran: Mapping[str, Any], found: Sequence[Level], load: Load) -> None:
    """Append to this operator's history of measurements, one JSON line a measurement.

    Raises:
        OSError: it cannot be written.
    """
    path = history_path(host)
    row = {
        "format": 1, "time": time.time(), "host": host, **ran, "tokens": load.tokens,
        "per_worker": load.per_worker, "levels": [level_to_json(x) for x in found],
    }  # fmt: skip
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(json.dumps(row) + "\n")


def history_path(host: str) -> Path:
    """Where measurements of a host are kept."""
    return folder() / f"{host}.jsonl"


def history(host: str, server: str, model: str = "") -> tuple[Bench, ...]:
    """What was measured of a server before, newest first.

    Older lines do not name the server; those of the same model are taken for its own.
    """
    found = (bench_of(row) for row in rows(history_path(host)))
    mine = [
        one for one in found
        if one is not None and (one.server == server or (not one.server and one.model == model))
    ]  # fmt: skip
    return tuple(sorted(mine, key=lambda one: -one.at))


def bench_of(row: Mapping[str, Any]) -> Bench | None:
    """One line of the history; ``None`` for what is none."""
    try:
        if row["format"] != 1:
            return None
        return Bench(
            str(row["host"]), str(row.get("server") or ""), float(row["time"]),
            str(row.get("model") or ""), " + ".join(_names(row)) or "no preset",
            str(row.get("run_id") or ""), int(row["tokens"]),
            tuple(level_of(level) for level in row["levels"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("preset", "speculative", "nccl"):
        name = row.get(kind)
        if isinstance(name, str) and name and (kind != "nccl" or name != "default"):
            yield name
