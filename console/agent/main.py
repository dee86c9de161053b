"""The agent: reads frames, runs each call in a thread of its own, ends when nobody listens.

It ends at end of input and after 30 s without a frame; it holds no state that matters, so it ends
at once and leaves nothing running.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO

from console.agent import wire
from console.agent.calls import STREAMED, Call, VerbError, Verbs
from console.agent.link import Cancelled, Link

MAX_CALLS = 128
"""Calls at the same time; a client never comes near it."""


class Agent:
    """Dispatches the client's frames to calls."""

    def __init__(self, link: Link, verbs: Verbs, *, read_only: bool) -> None:
        self.link = link
        self.verbs = verbs
        self.read_only = read_only
        self.heard = time.monotonic()
        self._calls: dict[int, Call] = {}
        self._lock = threading.Lock()

    def serve(self, source: BinaryIO) -> None:
        """Handle frames until end of input; raises ``WireError`` for anything else."""
        while True:
            line = source.readline(wire.MAX_HEADER)
            if not line:
                return
            header = wire.parse_header(line)
            payload = source.read(header.length)
            if len(payload) < header.length:
                return
            self.heard = time.monotonic()
            self._handle(header, payload)

    def _handle(self, header: wire.Header, payload: bytes) -> None:
        if header.stream == "ping":
            self.link.control(header.id, "pong")
        elif header.stream == "received":
            self.link.received(_count(header))
        elif header.stream == "credit":
            self.link.credit(header.id, _count(header))
        elif header.stream == "call":
            self._begin(header.id, payload)
        else:
            self._pass_on(header, payload)

    def _pass_on(self, header: wire.Header, payload: bytes) -> None:
        with self._lock:
            call = self._calls.get(header.id)
        if call is None:  # it has ended while this frame was under way
            return
        if header.stream == "data":
            call.feed(payload)
        elif header.stream == "eof":
            call.feed(None)
        elif header.stream == "cancel":
            call.cancel()
        else:
            raise wire.WireError("unknown kind of frame")

    def _begin(self, number: int, payload: bytes) -> None:
        request = wire.loads(payload)
        if not isinstance(request, dict) or not isinstance(request.get("args"), dict):
            raise wire.WireError("a call must be an object with verb and args")
        call = Call(number, request["args"], self.link)
        verb = self.verbs.get(str(request.get("verb")))
        if verb is None:
            kind = "refused" if self.read_only else "usage"
            why = "the agent was sent read-only" if self.read_only else "unknown verb"
            call.fail(VerbError(kind, "{}: {}".format(str(request.get("verb"))[:40], why)))
            return
        with self._lock:
            if len(self._calls) >= MAX_CALLS or number in self._calls:
                call.fail(VerbError("failed", "too many calls at the same time"))
                return
            self._calls[number] = call
        thread = threading.Thread(target=self._run, args=(call, verb), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the host's limit on processes
            self._end(call)
            call.fail(VerbError("failed", "the host allows no more threads", "see ulimit -u"))

    def _run(self, call: Call, verb: Any) -> None:
        try:
            result = verb(call)
            if result is STREAMED:
                call.finish()
            else:
                call.answer(result)
        except Cancelled:
            pass
        except VerbError as error:
            call.fail(error)
        except OSError as error:
            where = "" if error.filename is None else "{}: ".format(error.filename)
            message = "{}{}".format(where, error.strerror or error)
            call.fail(VerbError("os", message, errno=error.errno))
        except Exception:  # outermost of a call: a fault of ours is its answer, not the agent's end
            last = traceback.format_exc().strip().splitlines()
            call.fail(VerbError("failed", "the agent failed: " + " | ".join(last[-3:])[:500]))
        finally:
            self._end(call)

    def _end(self, call: Call) -> None:
        with self._lock:
            self._calls.pop(call.id, None)
        call.cancelled.set()
        self.link.forget(call.id)

    def watch(self) -> None:
        """End the program when the client has been silent for too long."""
        while not self.link.closed and time.monotonic() - self.heard < wire.SILENCE_S:
            time.sleep(1.0)
        leave(0)


def _count(header: wire.Header) -> int:
    value = header.meta.get("n")
    if not isinstance(value, int) or not 0 <= value <= wire.MAX_ANSWER:
        raise wire.WireError("a receipt must count bytes")
    return value


def leave(code: int) -> None:
    """End now: threads may hang in the kernel, children end with their pipes."""
    from console.agent import child  # noqa: PLC0415 - only needed here

    child.end_all()
    os._exit(code)


def load_verbs(modules: list[str]) -> Verbs:
    """The verbs of the named modules; a read-only archive lacks those that change things."""
    verbs: Verbs = {}
    for name in modules:
        verbs.update(importlib.import_module("console.agent." + name).VERBS)
    return verbs


def main(finder: Any) -> None:
    """Entry point of the archive: serve the client on stdin and stdout."""
    from console.agent import child, machine  # noqa: PLC0415 - after the archive is installed

    config = wire.loads(finder.files["config.json"])
    child.ARCHIVE.append(finder)
    source = sys.stdin.buffer
    out = os.dup(1)
    os.dup2(2, 1)  # a stray print must not break the protocol
    link = Link(out)
    agent = Agent(link, load_verbs(config["modules"]), read_only=config["read_only"])
    threading.Thread(target=link.write_forever, daemon=True).start()
    threading.Thread(target=agent.watch, daemon=True).start()
    link.control(0, "hello", wire.dumps(machine.hello(config["version"], config["read_only"])))
    try:
        agent.serve(source)
    except (wire.WireError, OSError) as error:
        sys.stderr.write("specops agent: {}\n".format(error))
        leave(1)
    leave(0)
