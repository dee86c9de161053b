"""A TCP connection to a port of the host itself, bytes both ways."""

from __future__ import annotations

import ipaddress
import select
import socket
import threading
from typing import Any

from console.agent.calls import STREAMED, Call, VerbError, Verbs
from console.agent.link import Cancelled

CONNECT_S = 10.0


def connect(call: Call) -> Any:
    """The verb: the first frame's meta says ``open``; then whatever the two ends send."""
    host, port = call.text("host", "127.0.0.1"), call.number("port")
    try:
        local = ipaddress.ip_address(host).is_loopback or host in own_addresses()
    except ValueError:
        local = host == "localhost"
    if not local or not 0 < port < 65536:
        raise VerbError("usage", "{}:{} is not a port of this host".format(host[:80], port))
    try:
        peer = socket.create_connection((host, port), timeout=CONNECT_S)
    except OSError as error:
        why = error.strerror or "timed out"
        raise VerbError("os", "{}:{}: {}".format(host, port, why), errno=error.errno) from None
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    call.send(b"", {"open": True})
    sender = threading.Thread(target=_upload, args=(call, peer), daemon=True)
    sender.start()
    try:
        while not call.cancelled.is_set():
            if not select.select([peer], [], [], 1.0)[0]:
                continue
            data = peer.recv(65536)
            if not data:
                break
            call.send(data)
    except OSError:
        pass  # reset by the server: the client sees the end
    finally:
        call.feed(None)
        peer.close()
    return STREAMED


def own_addresses() -> set[str]:
    """Addresses of this host's interfaces, as far as its name resolves locally."""
    try:
        return {item[4][0] for item in socket.getaddrinfo(socket.gethostname(), None)}  # type: ignore[misc]
    except OSError:
        return set()


def _upload(call: Call, peer: socket.socket) -> None:
    try:
        while True:
            data = call.receive()
            if data is None:
                peer.shutdown(socket.SHUT_WR)
                return
            peer.sendall(data)
            call.consumed(len(data))
    except (Cancelled, OSError):
        return


VERBS: Verbs = {"connect": connect}
