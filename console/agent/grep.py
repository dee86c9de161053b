"""The grep verb: a log searched on its host, in a child that is ended when its time is over."""

from __future__ import annotations

import select
import time
from typing import Any

from console.agent import child, wire
from console.agent.calls import STREAMED, Call, VerbError, Verbs
from console.agent.files import absolute

LIMIT_S = 60.0
"""Seconds a search may take."""
SILENT_S = 10.0
"""Seconds it may take between two signs of life: a pattern can need for ever on one line."""


def grep(call: Call) -> Any:
    """The verb: frames of matching lines, their offsets and lengths in each frame's meta."""
    source = call.args.get("source")
    if not isinstance(source, dict):
        raise VerbError("usage", "source must be an object")
    wanted = call.args.get("pattern")
    if isinstance(wanted, list) and not all(isinstance(word, str) and word for word in wanted):
        raise VerbError("usage", "pattern must be text, or words")
    job = {
        "pattern": wanted if isinstance(wanted, list) else call.text("pattern"),
        "ignore_case": bool(call.args.get("ignore_case")),
        "max_lines": call.number("max_lines", 10_000),
        "newest": bool(call.args.get("newest")),
    }
    if source.get("path"):
        job["path"] = absolute(str(source["path"]))
    elif source.get("unit"):
        unit = "--unit=" + str(source["unit"])
        job["argv"] = ["journalctl", "--output=cat", "--no-pager", "--quiet", unit]
    elif source.get("container") and not str(source["container"]).startswith("-"):
        job["argv"] = ["docker", "logs", str(source["container"])]
    else:
        raise VerbError("usage", "a log source is a path, a unit or a container")
    process = child.spawn("searcher")
    assert process.stdin is not None
    try:
        process.stdin.write(wire.dumps(job) + b"\n")
        process.stdin.flush()
        _forward(call, process.stdout)
    except BrokenPipeError:
        raise VerbError("failed", "the search could not start") from None
    finally:
        child.end(process)
    return STREAMED


def _forward(call: Call, results: Any) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not call.cancelled.is_set():
        wait = min(SILENT_S, deadline - time.monotonic())
        if wait <= 0 or not select.select([results], [], [], wait)[0]:
            raise VerbError(
                "failed", "the search took too long and was ended", "try a simpler pattern"
            )
        line = results.readline(wire.MAX_HEADER)
        if not line:
            return
        batch = wire.loads(line)
        if "error" in batch:
            raise VerbError("failed", batch["error"])
        if batch["lines"]:
            call.send(results.read(batch["len"]), {"lines": batch["lines"]})


VERBS: Verbs = {"grep": grep}
