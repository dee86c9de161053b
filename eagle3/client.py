"""The launcher's end of the link: submits requests, hands their outputs to whoever waits."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from typing import Any

from eagle3.link import Message, encode
from eagle3.sampling_params import SamplingParams

_LINE_LIMIT = 1 << 24


class SchedulerGone(Exception):
    """The scheduler ended, or open requests were cut off."""


class Batch:
    """Requests of one HTTP call; iterating yields (which one, its next output) to the end."""

    def __init__(self, client: SchedulerClient, ids: list[str]) -> None:
        self._client, self._ids = client, ids
        self._open = set(ids)
        self._queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def put(self, output: dict[str, Any] | None) -> None:
        """Called by the client; None means the scheduler is gone."""
        self._queue.put_nowait(output)

    async def __aiter__(self) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        """Yield outputs.

        Raises:
            SchedulerGone: the scheduler ended meanwhile.
        """
        try:
            while self._open:
                output = await self._queue.get()
                if output is None:
                    raise SchedulerGone
                if output["finish"]:
                    self._open.discard(output["id"])
                yield self._ids.index(output["id"]), output
        finally:
            self.close()

    def close(self) -> None:
        """Cancel whatever has not finished."""
        self._client.forget(self._ids, sorted(self._open))
        self._open.clear()


class SchedulerClient:
    """Multiplexes the requests of all HTTP calls over one link."""

    def __init__(self) -> None:
        self.stats: dict[str, Any] = {}
        self.heard = asyncio.Event()
        self._waiting: dict[str, Batch] = {}
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self, sock: socket.socket, args: Message) -> None:
        """Open the link and send the scheduler its arguments."""
        self._reader, self._writer = await asyncio.open_connection(sock=sock, limit=_LINE_LIMIT)
        self._send({"op": "args", "args": args})

    async def ready(self) -> dict[str, Any]:
        """Wait until the models are loaded; what the scheduler can hold.

        Raises:
            SchedulerGone: it ended instead.
        """
        line = await self._reader.readline()
        if not line:
            raise SchedulerGone
        capacity: dict[str, Any] = json.loads(line)["capacity"]
        return capacity

    async def listen(self) -> None:
        """Hand out what arrives until the link closes."""
        try:
            while line := await self._reader.readline():
                message = json.loads(line)
                self.stats = message["stats"]
                self.heard.set()
                for output in message["out"]:
                    batch = self._waiting.get(output["id"])
                    if batch is not None:
                        batch.put(output)
        except ConnectionError:
            pass  # the same as the end of the stream
        self.cut_off()

    def cut_off(self) -> None:
        """End every open request."""
        for batch in self._waiting.values():
            batch.put(None)

    @property
    def open_requests(self) -> int:
        """Requests that have not finished."""
        return len(self._waiting)

    def submit(self, jobs: Sequence[tuple[list[int], SamplingParams]]) -> Batch:
        """Start generating for (token ids, parameters) pairs."""
        ids = [uuid.uuid4().hex for _ in jobs]
        batch = Batch(self, ids)
        for identity, (tokens, params) in zip(ids, jobs, strict=True):
            self._waiting[identity] = batch
            fields = asdict(params) | {
                "stop": list(params.stop),
                "stop_ids": sorted(params.stop_ids),
            }
            self._send({"op": "generate", "id": identity, "ids": tokens, "params": fields})
        return batch

    def forget(self, ids: Sequence[str], unfinished: Sequence[str]) -> None:
        """Stop waiting for ``ids`` and tell the scheduler to drop those not finished."""
        for identity in ids:
            self._waiting.pop(identity, None)
        for identity in unfinished:
            self._send({"op": "abort", "id": identity})

    def stop(self) -> None:
        """Ask the scheduler to end."""
        self._send({"op": "stop"})

    def _send(self, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(message))
