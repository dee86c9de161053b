"""Messages between launcher and scheduler: one JSON document a line over a socket pair."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

Message = dict[str, Any]


class Closed(Exception):
    """The other side is gone."""


class Link:
    """The scheduler's end, blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._pending = b""

    def send(self, message: Message) -> None:
        """Send one message.

        Raises:
            Closed: the launcher is gone.
        """
        try:
            self.sock.sendall(encode(message))
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self, *, block: bool) -> list[Message]:
        """All messages that are there; with ``block``, wait for one.

        Raises:
            Closed: the launcher is gone.
        """
        messages: list[Message] = []
        while True:
            timeout = None if block and not messages else 0
            if not select.select([self.sock], [], [], timeout)[0]:
                return messages
            try:
                data = self.sock.recv(1 << 16)
            except OSError as error:
                raise Closed(str(error)) from None
            if not data:
                raise Closed("end of stream")
            *lines, self._pending = (self._pending + data).split(b"\n")
            messages += [json.loads(line) for line in lines]


def encode(message: Message) -> bytes:
    """A message as it travels."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
