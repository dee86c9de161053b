"""A host without python: what ``ps`` and ``nvidia-smi`` say, to look at and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from console.agent import smi
from console.errors import AgentError, HostError
from console.model import Host
from console.transport.base import Transport
from console.transport.bundle import wrapped
from console.transport.client import Stream

COMMAND_S = 15.0
OUTPUT = 8 << 20
PS = (
    "ps",
    "-ww",
    "-eo",
    "pid=,ppid=,pgid=,sid=,uid=,user:32=,stat=,etimes=,nlwp=,rss=,comm:32=,args=",
)
TICKS = 100
WHY = "no python on this host: only what nvidia-smi says is shown, and nothing can be changed"


def parse_ps(output: bytes, uptime_s: float) -> list[dict[str, Any]]:
    """Rows as the agent sends them; times are whole seconds, so no row is an identity."""
    rows = []
    for raw in output.splitlines():
        words = raw.decode("utf-8", "backslashreplace").split(None, 11)
        numbers = [*words[:5], *words[7:10]]
        if len(words) < 11 or not all(word.isdigit() for word in numbers):
            continue
        pid, ppid, pgid, sid, uid, etimes, threads, rss = (int(word) for word in numbers)
        if pid == 2 or ppid == 2:  # kthreadd and its children
            continue
        rows.append(
            {
                "pid": pid,
                "ppid": ppid,
                "pgid": pgid,
                "sid": sid,
                "uid": uid,
                "user": words[5],
                "state": words[6],
                "start": max(0, int((uptime_s - etimes) * TICKS)),
                "threads": threads,
                "rss": rss * 1024,
                "comm": words[10],
                "argv": words[11].split() if len(words) > 11 else [],
                "ticks": 0,
                "readable": False,
            }
        )
    return rows


class PlainClient:
    """Stands in for the agent's client: knows ``snapshot`` and refuses everything else."""

    def __init__(self, transport: Transport, host: Host) -> None:
        self.host = host.name
        self.error: HostError | None = None
        self.lost = asyncio.Event()
        self._config = host
        self._transport = transport

    async def hello(self) -> dict[str, Any]:
        """What can be said of the host; raises ``AgentError`` where there is no usable ps."""
        rows = parse_ps(await self._output(PS), time.time())
        if not rows:
            raise AgentError("neither python nor a ps that lists processes", place=self.host)
        return {
            "agent_version": "",
            "python": "",
            "hostname": self._config.address,
            "uid": int((await self._output(("id", "-u"))).strip() or b"0"),
            "user": self._config.user,
            "pid": 0,
            "boot_id": "",
            "pid_namespace": "",
            "init_namespace": False,
            "kernel": "",
            "systemd": False,
            "state_dir": "",
            "config_home": "",
            "read_only": True,
            "clock_ticks": TICKS,
            "time": time.time(),
        }

    async def call(self, verb: str, args: Mapping[str, Any], *, timeout_s: float = 30.0) -> Any:
        """A snapshot, or ``AgentError``."""
        del args, timeout_s
        if verb != "snapshot":
            raise AgentError(WHY, place=self.host, hint="install python3, or set python:")
        try:
            return await self._snapshot()
        except HostError as error:
            self.error = error
            self.lost.set()
            raise

    async def stream(self, verb: str, args: Mapping[str, Any]) -> Stream:
        """Always ``AgentError``."""
        raise AgentError(f"{verb}: {WHY}", place=self.host, hint="install python3, or set python:")

    async def close(self) -> None:
        """Nothing is held."""

    async def _snapshot(self) -> dict[str, Any]:
        now = time.time()
        rows = parse_ps(await self._output(PS), now)
        answer: dict[str, Any] = {"gpus": [], "gpu_source": None, "gpu_error": None}
        output = await self._output(smi_words("--query-gpu=" + ",".join(smi.CORE)))
        if output:
            answer["gpu_source"] = "nvidia-smi"
            try:
                answer["gpus"] = smi.parse_gpus(output.decode("utf-8", "replace"), smi.CORE)
                users = await self._output(
                    smi_words("--query-compute-apps=gpu_uuid,pid,used_memory")
                )
                smi.add_processes(users.decode("utf-8", "replace"), answer["gpus"])
            except ValueError as error:
                answer["gpu_error"] = str(error)
        return {
            **answer,
            "boot_id": "",
            "time": now,
            "uptime": now,
            "uid": 0,
            "processes": {"whole": True, "rows": rows, "gone": []},
            "listening": [],
            "protected": [row["pid"] for row in rows],
            "cpu": None,
            "artefacts": None,
            "complete": False,
        }

    async def _output(self, argv: Sequence[str]) -> bytes:
        """A command's output, ``b""`` when it cannot run; bounded in time and size."""
        channel = await self._transport.open(wrapped(self._config, list(argv)))
        data = bytearray()
        try:
            async with asyncio.timeout(COMMAND_S):
                while (piece := await channel.read(65536)) and len(data) < OUTPUT:
                    data += piece
        except TimeoutError:
            raise HostError(f"{argv[0]} did not answer in 15 s", place=self.host) from None
        finally:
            await channel.close()
        return bytes(data)


def smi_words(query: str) -> tuple[str, ...]:
    """A query to nvidia-smi."""
    return ("nvidia-smi", query, "--format=csv,noheader,nounits")
