"""Searches one log for a regular expression, line by line; runs in a child of its own."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections import deque
from typing import IO, Any, Deque, Tuple

from console.agent import wire

BLOCK = 1 << 20
LINE = 8 * 1024
"""Bytes of a matching line that are sent; its offset leads to the rest."""
BATCH_LINES = 200
_SPECIAL = re.compile(r"[][\\.^$*+?{}()|\n]")
"""A pattern without any of these is a word, and the host's grep finds words three times faster."""


class Results:
    """Gathers matches into frames that fit the wire: the first so many, or the newest."""

    def __init__(self, out: IO[bytes], most: int, newest: bool = False) -> None:
        self._out, self.left = out, most
        self._newest: Deque[Tuple[int, bytes]] | None = deque(maxlen=most) if newest else None
        self._lines: list[tuple[int, int]] = []
        self._data = bytearray()
        self._said = time.monotonic()

    def add(self, offset: int, line: bytes) -> None:
        """One match."""
        line = line[:LINE]
        if self._newest is not None:
            self._newest.append((offset, line))
            return
        self._put(offset, line)
        self.left -= 1

    def _put(self, offset: int, line: bytes) -> None:
        if len(self._lines) >= BATCH_LINES or len(self._data) + len(line) > wire.CHUNK:
            self.flush()
        self._lines.append((offset, len(line)))
        self._data += line

    def end(self) -> None:
        """Everything was looked through."""
        for offset, line in self._newest or ():
            self._put(offset, line)
        self.flush()

    def flush(self) -> None:
        """Send what there is; an empty frame is a sign of life."""
        head = {"lines": self._lines, "len": len(self._data)}
        self._out.write(wire.dumps(head) + b"\n" + bytes(self._data))
        self._out.flush()
        self._lines, self._data = [], bytearray()
        self._said = time.monotonic()

    def alive(self) -> None:
        """Say so once a second."""
        if time.monotonic() - self._said > 1.0:
            self.flush()


def search(source: IO[bytes], pattern: re.Pattern[bytes], results: Results) -> None:
    """All lines that match, with their offsets. Whole blocks without a match are passed over."""
    offset, rest = 0, b""
    while results.left > 0:
        data = source.read(BLOCK)
        block = rest + data
        if not block:
            break
        cut = block.rfind(b"\n") + 1 if data else len(block)
        if not cut and len(block) < 16 * BLOCK:
            rest = block
            continue
        cut = cut or len(block)
        at = offset
        for line in block[:cut].split(b"\n") if _may_match(pattern, block) else ():
            if results.left > 0 and (line or at < offset + cut) and pattern.search(line):
                results.add(at, line)
            at += len(line) + 1
        offset += cut
        rest = block[cut:]
        results.alive()
    results.end()


def _may_match(pattern: re.Pattern[bytes], block: bytes) -> bool:
    """A quick look over a whole block; anchors need their lines, so those always may."""
    anchored = any(
        mark in pattern.pattern for mark in (b"^", b"$", b"\\A", b"\\Z", b"\\b", b"\\B", b"(?")
    )
    return anchored or pattern.search(block) is not None


def search_words(path: str, words: list[str], results: Results) -> bool:
    """Lines that hold one of the words, found by the host's grep; False where it cannot."""
    argv = ["grep", "--text", "--byte-offset", "--fixed-strings"]
    argv += ["--regexp=" + word for word in words] + ["--", path]
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.DEVNULL,
            env=dict(os.environ, LC_ALL="C"),
        )  # fmt: skip
    except OSError:
        return False
    assert process.stdout is not None
    out, rest, found = process.stdout.fileno(), b"", False
    with process:
        while results.left > 0:
            results.alive()
            if not select.select([out], [], [], 1.0)[0]:
                continue
            data = os.read(out, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[: LINE + 32]  # the rest of a line without an end is left out
            for line in lines:
                offset, _, text = line.partition(b":")
                if results.left > 0:
                    results.add(int(offset), text)
                    found = True
            if not data:
                break
        else:
            process.kill()
    if process.returncode > 1 and not found:  # such as an unknown option
        return False
    results.end()
    return True


def main(_finder: Any) -> None:
    """Read the job from stdin, write frames of matches to stdout."""
    job = wire.loads(sys.stdin.buffer.readline())
    out = sys.stdout.buffer
    try:
        os.nice(10)
        flags = re.IGNORECASE if job["ignore_case"] else 0
        asked = job["pattern"]
        words = asked if isinstance(asked, list) else []
        text = "|".join(map(re.escape, words)) if words else asked
        if not words and asked and not _SPECIAL.search(asked):
            words = [asked]
        pattern = re.compile(text.encode("utf-8", "surrogateescape"), flags)
        results = Results(out, max(0, job["max_lines"]), job["newest"])
        by_grep = words and "path" in job and not flags
        if by_grep and search_words(job["path"], words, results):
            pass
        elif "path" in job:
            with open(job["path"], "rb", buffering=0) as source:
                search(source, pattern, results)
        else:
            with subprocess.Popen(
                job["argv"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process:
                assert process.stdout is not None
                search(process.stdout, pattern, results)
                process.kill()
    except re.error as error:
        out.write(wire.dumps({"error": "not a regular expression: {}".format(error)}) + b"\n")
    except OSError as error:
        message = "{}: {}".format(error.filename or job.get("argv", [""])[0], error.strerror)
        out.write(wire.dumps({"error": message}) + b"\n")
    out.flush()
