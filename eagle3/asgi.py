"""The HTTP server itself, imported only once the models are loading."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import uvicorn

from eagle3.client import SchedulerClient
from eagle3.frontend import Frontend
from eagle3.http import application
from eagle3.logs import uvicorn_config
from eagle3.server_args import ServerArgs

_CLOSE_SECONDS = 5


class Server(uvicorn.Server):
    """Uvicorn without its own signal handling: the launcher decides when to end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def build(
    args: ServerArgs, client: SchedulerClient, capacity: dict[str, Any]
) -> tuple[Frontend, Server]:
    """The state of a server and the server, not started."""
    frontend = Frontend(args, client, capacity)
    config = uvicorn.Config(
        application(frontend),
        host=args.host,
        port=args.port,
        lifespan="off",
        log_config=uvicorn_config(args.log_level_http or args.log_level),
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )
    return frontend, Server(config)
