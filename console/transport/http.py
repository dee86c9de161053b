"""An httpx transport whose connections the agent opens, on the host's side."""

# ruff: noqa: ASYNC109 - httpcore's interface passes timeouts as parameters

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Protocol

import httpcore
import httpx

from console.errors import SpecopsError
from console.transport.client import Stream

CONNECT_S = 10.0


class Streams(Protocol):
    """What of an agent's client is needed here."""

    async def stream(self, verb: str, args: Mapping[str, Any]) -> Stream:
        """Start a streaming call; raises ``AgentError`` where there is no agent."""
        ...


class AgentStream(httpcore.AsyncNetworkStream):
    """One TCP connection of the agent, as httpcore wants it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._rest = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Some bytes, ``b""`` at the end."""
        if not self._rest:
            try:
                async with asyncio.timeout(timeout):
                    item = await self._stream.next()
            except TimeoutError:
                raise httpcore.ReadTimeout from None
            except SpecopsError as error:
                raise httpcore.ReadError(str(error)) from None
            self._rest = b"" if item is None else item[1]
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all."""
        try:
            async with asyncio.timeout(timeout):
                await self._stream.send(buffer)
        except TimeoutError:
            raise httpcore.WriteTimeout from None
        except SpecopsError as error:
            raise httpcore.WriteError(str(error)) from None

    async def aclose(self) -> None:
        """End the connection."""
        self._stream.close()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Servers on a host's own ports speak plain HTTP."""
        raise httpcore.ConnectError("https is not spoken through the agent")

    def get_extra_info(self, info: str) -> Any:
        """Httpcore asks whether an idle connection has ended before it is used again."""
        return self._stream.ended if info == "is_readable" else None


class AgentBackend(httpcore.AsyncNetworkBackend):
    """Opens connections through an agent."""

    def __init__(self, client: Streams) -> None:
        self._client = client

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to a port of the host itself."""
        del local_address, socket_options
        stream: Stream | None = None
        try:
            async with asyncio.timeout(timeout or CONNECT_S):
                stream = await self._client.stream("connect", {"host": host, "port": port})
                first = await stream.next()
        except TimeoutError:
            if stream is not None:
                stream.close()
            raise httpcore.ConnectTimeout from None
        except SpecopsError as error:
            raise httpcore.ConnectError(str(error)) from None
        if first is None:
            raise httpcore.ConnectError("the agent opened no connection")
        return AgentStream(stream)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Not offered."""
        raise httpcore.ConnectError("unix sockets are not spoken through the agent")

    async def sleep(self, seconds: float) -> None:
        """Between retries."""
        await asyncio.sleep(seconds)


class _Body(httpx.AsyncByteStream):
    """A response's body with httpcore's errors as httpx's."""

    def __init__(self, parts: Any) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._parts:
                yield part
        except _ERRORS as error:
            raise _as_httpx(error) from None

    async def aclose(self) -> None:
        await self._parts.aclose()


_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


def _as_httpx(error: Exception) -> Exception:
    kind = getattr(httpx, type(error).__name__, httpx.TransportError)
    return kind(str(error)) if isinstance(kind, type) else httpx.TransportError(str(error))


class AgentTransport(httpx.AsyncBaseTransport):
    """Requests through an agent. A server's port is on the host, whatever the URL's host says."""

    def __init__(self, client: Streams) -> None:
        self._pool = httpcore.AsyncConnectionPool(network_backend=AgentBackend(client))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One request."""
        assert isinstance(request.stream, httpx.AsyncByteStream)
        wanted = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            answer = await self._pool.handle_async_request(wanted)
        except _ERRORS as error:
            raise _as_httpx(error) from None
        return httpx.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close idle connections."""
        await self._pool.aclose()


def agent_transport(client: Streams) -> AgentTransport:
    """The transport over a client."""
    return AgentTransport(client)


class _Nowhere(httpx.AsyncBaseTransport):
    """Refuses every request without saying anything of the server."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raise: nothing is known."""
        raise httpx.UnsupportedProtocol(self._why, request=request)


def no_transport(why: str) -> httpx.AsyncBaseTransport:
    """A transport where no port can be asked."""
    return _Nowhere(why)
