"""The HTTP routes."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from eagle3.answers import Answer, NativeShape, OpenAIShape, Shape, collect, events
from eagle3.client import Batch, SchedulerGone
from eagle3.frontend import Frontend
from eagle3.protocol import BadRequest, Body, Call, parse_body

MAX_BODY = 16 << 20
"""Longest body that is read, bytes; a full context is far below it."""
_CLIENT_GONE = 499
"""Status for the log of an answer that nobody reads any more, as proxies write it."""
_OPEN_PATHS = ("/health", "/metrics")
Handler = Callable[[Request], Awaitable[Response]]


def error(status: int, message: str, param: str | None = None) -> JSONResponse:
    """An error in SGLang's form, which OpenAI's clients read too."""
    kind = {401: "AuthenticationError", 404: "NotFoundError", 503: "ServiceUnavailableError"}.get(
        status, "BadRequestError" if status < 500 else "InternalServerError"
    )
    body = {"object": "error", "message": message, "type": kind, "param": param, "code": status}
    return JSONResponse(body, status)


class ApiKey:
    """Asks for a bearer token everywhere but at health and metrics."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app, self.key = app, f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 401."""
        if scope["type"] == "http" and not scope["path"].startswith(_OPEN_PATHS):
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self.key):
                await error(401, "a bearer token is needed: Authorization: Bearer KEY")(
                    scope, receive, send
                )
                return
        await self.app(scope, receive, send)


async def read_body(request: Request) -> Body:
    """The JSON object of a request.

    Raises:
        BadRequest: malformed.
        HTTPException: 413, longer than ``MAX_BODY``.
    """
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY:
            raise HTTPException(413, f"the body is longer than {MAX_BODY} bytes")
    return parse_body(bytes(data))


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Routes:
    """Handlers over one :class:`Frontend`."""

    def __init__(self, frontend: Frontend) -> None:
        self.frontend = frontend

    async def _answer(self, request: Request, call: Call, shape: Shape) -> Response:
        if self.frontend.status == "draining":
            return error(503, "the server is shutting down")
        batch, answers = self.frontend.submit(call)
        if call.stream:
            body = self._stream(batch, answers, shape, with_usage=call.usage_in_stream)
            return StreamingResponse(body, media_type="text/event-stream")
        work = asyncio.create_task(collect(batch, answers))
        gone = asyncio.create_task(_until_gone(request))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return Response(status_code=_CLIENT_GONE)
            await work
        finally:
            gone.cancel()
            work.cancel()
            batch.close()
        self.frontend.finished(answers)
        return JSONResponse(shape.whole(answers))

    async def _stream(
        self, batch: Batch, answers: list[Answer], shape: Shape, *, with_usage: bool
    ) -> AsyncIterator[str]:
        try:
            async for part in events(batch, answers, shape, with_usage=with_usage):
                yield part
        except SchedulerGone:
            return  # the connection ends without [DONE]
        finally:
            batch.close()
            self.frontend.finished(answers)

    async def completions(self, request: Request) -> Response:
        """``/v1/completions``."""
        call, logprobs = self.frontend.completion(await read_body(request))
        return await self._answer(request, call, self._openai(chat=False, logprobs=logprobs))

    async def chat(self, request: Request) -> Response:
        """``/v1/chat/completions``."""
        call, logprobs = self.frontend.chat(await read_body(request))
        return await self._answer(request, call, self._openai(chat=True, logprobs=logprobs))

    def _openai(self, *, chat: bool, logprobs: bool) -> OpenAIShape:
        name, text = self.frontend.args.served_model_name, self.frontend.coder.text
        return OpenAIShape(name, chat=chat, token_text=text, logprobs=logprobs)

    async def generate(self, request: Request) -> Response:
        """``/generate``."""
        call = self.frontend.generate(await read_body(request))
        params = self.frontend.args.speculative
        shape = NativeShape(
            steps=params.steps if params else None,
            drafted=params.draft_tokens - 1 if params else 0,
            single=call.single,
        )
        return await self._answer(request, call, shape)

    async def health(self, _: Request) -> Response:
        """``/health`` and ``/health_generate``: 200 once a token came out."""
        return Response(status_code=200 if await self.frontend.healthy() else 503)

    async def ping(self, _: Request) -> Response:
        """``/ping``: the HTTP side lives."""
        return Response()

    async def models(self, _: Request) -> Response:
        """``/v1/models``."""
        model = {
            "id": self.frontend.args.served_model_name,
            "object": "model",
            "created": int(self.frontend.started),
            "owned_by": "sglang",
            "root": self.frontend.args.model_path,
            "max_model_len": self.frontend.limits.context,
        }
        return JSONResponse({"object": "list", "data": [model]})

    async def model_info(self, _: Request) -> Response:
        """``/model_info``."""
        return JSONResponse(self.frontend.model_info())

    async def server_info(self, _: Request) -> Response:
        """``/server_info``."""
        return JSONResponse(self.frontend.server_info())

    async def loads(self, _: Request) -> Response:
        """``/v1/loads``."""
        return JSONResponse(self.frontend.loads())

    async def metrics(self, _: Request) -> Response:
        """``/metrics``, with ``--enable-metrics``."""
        data = self.frontend.metrics.render(self.frontend.client.stats)
        return Response(data, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _refused(_: Request, raised: Exception) -> Response:
    return error(400, str(raised), getattr(raised, "param", None))


async def _failed(_: Request, raised: Exception) -> Response:
    assert isinstance(raised, HTTPException)
    return error(raised.status_code, raised.detail)


async def _internal(_: Request, __: Exception) -> Response:
    return error(500, "an error inside the server; its log says which")


async def _nobody_reads(_: Request, __: Exception) -> Response:
    return Response(status_code=_CLIENT_GONE)


async def _scheduler_gone(_: Request, __: Exception) -> Response:
    return error(503, "the server is shutting down or has lost its scheduler")


def application(frontend: Frontend) -> ASGIApp:
    """The application."""
    routes = Routes(frontend)
    get: list[tuple[str, Handler]] = [
        ("/health", routes.health), ("/health_generate", routes.health), ("/ping", routes.ping),
        ("/v1/models", routes.models), ("/v1/loads", routes.loads),
        ("/model_info", routes.model_info), ("/get_model_info", routes.model_info),
        ("/server_info", routes.server_info), ("/get_server_info", routes.server_info),
    ]  # fmt: skip
    if frontend.args.enable_metrics:
        get.append(("/metrics", routes.metrics))
    post: list[tuple[str, Handler]] = [
        ("/v1/completions", routes.completions),
        ("/v1/chat/completions", routes.chat),
        ("/generate", routes.generate),
    ]
    app = Starlette(
        routes=[Route(path, handler, methods=["GET"]) for path, handler in get]
        + [Route(path, handler, methods=["POST"]) for path, handler in post],
        exception_handlers={
            BadRequest: _refused, HTTPException: _failed, SchedulerGone: _scheduler_gone,
            ClientDisconnect: _nobody_reads,
            Exception: _internal,
        },
    )  # fmt: skip
    return ApiKey(app, frontend.args.api_key) if frontend.args.api_key else app
