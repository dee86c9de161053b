"""What a log line is: told from the line itself, cheaply. Pure.

:func:`interesting` finds, with searches that run at memory speed, the few lines of a chunk that are
worth a look at all; :func:`classify_line` then looks at one.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Kind(IntEnum):
    """What a line is. ``ERROR`` and ``RAISED`` are what ``e`` jumps to."""

    PLAIN = 0
    WARNING = 1
    ERROR = 2
    TRACEBACK = 3
    FRAME = 4
    FRAME_LIB = 5
    CODE = 6
    RAISED = 7
    BAR = 8
    NOTE = 9


JUMPS = frozenset({Kind.ERROR, Kind.RAISED})

_TOKENS = (
    b"Error", b"Exception", b"Traceback (", b'  File "', b"WARN", b"Warning", b"warning", b"ERROR",
    b"error:", b"CRITICAL", b"FATAL", b"Fatal", b"Xid (", b"sigquit", b"Killed", b"Assertion",
    b"terminate called", b"core dumped", b"%|", b"KeyboardInterrupt", b"SystemExit", b"panic",
)  # fmt: skip

PREFIX = re.compile(
    rb"(?:"
    rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [^\s:\[]+(?:\[\d+\])?: "  # journald
    rb"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?(?: std(?:out|err) [FP])? "
    rb"|[\w.-]+ +\| "  # compose
    rb"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z]{2}\d+)*\] "  # SGLang
    rb"|\((?:\w+ )?(?:pid=)?\d+(?:, [^)]*)?\) "  # vLLM, ray
    rb"|\[rank\d+\]: ?"
    rb"|(?:[A-Z]{2}\d+ )+"
    rb"){1,4}"
)
"""What log collectors and engines put before a line."""

RANK = re.compile(rb"\b(TP|DP|PP|EP)(\d{1,4})\b|\[rank(\d{1,4})\]")

_FRAME = re.compile(rb'\s*File "([^"]+)", line \d+')
_RAISED = re.compile(
    rb"(?:[A-Za-z_][\w.]*(?:\.|::))?[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Failure)"
    rb"(?::|\s*$)"
)
_LIBRARY = re.compile(rb"site-packages/|dist-packages/|/lib/python3|<frozen |<string>")
_ERROR = re.compile(
    rb"\b(?:ERROR|CRITICAL|FATAL)\b|\bFatal\b|Xid \(|\bKilled\b|terminate called"
    rb"|core dumped|Assertion .*failed|\b(?:CUDA|NCCL|Cuda|cuda) (?:error|failure)|hit an exception"
    rb"|\b[A-Za-z.]*(?:Error|Exception): |\bpanic"
)
_WARNING = re.compile(rb"\bWARN(?:ING)?\b|[Ww]arning\b|Received sigquit")
"""A parent that lost a child says so too; that follows from the error and is not it."""
_BAR = re.compile(rb"\d{1,3}%\|")


def interesting(chunk: bytes) -> list[int]:
    """Byte offsets in the chunk of everything that may make a line special, in order."""
    found: list[int] = []
    for token in _TOKENS:
        at = chunk.find(token)
        while at >= 0:
            found.append(at)
            at = chunk.find(token, at + len(token))
    found.sort()
    return found


def body_of(raw: bytes) -> bytes:
    """The line without what collectors and engines put before it."""
    match = PREFIX.match(raw)
    return raw[match.end() :] if match else raw


def classify_line(raw: bytes, before: Kind = Kind.PLAIN) -> Kind:
    """What one line is; ``before`` is the kind of the line above it."""
    body = body_of(raw[:4096])
    in_frames = before in (Kind.FRAME, Kind.FRAME_LIB, Kind.CODE, Kind.TRACEBACK)
    if frame := _FRAME.match(body):
        return Kind.FRAME_LIB if _LIBRARY.search(frame[1]) else Kind.FRAME
    if in_frames and body[:4] in (b"    ", b"  ^^", b"  [P"):
        return Kind.CODE
    if b"Traceback (most recent call last)" in body:
        return Kind.TRACEBACK
    if _RAISED.match(body):
        return Kind.RAISED
    if _BAR.search(body):
        return Kind.BAR
    if _ERROR.search(body):
        return Kind.ERROR
    return Kind.WARNING if _WARNING.search(body) else Kind.PLAIN


def rank_of(raw: bytes) -> int | None:
    """The rank that printed a line, where it says so near its start."""
    match = RANK.search(raw[:160])
    if match is None:
        return None
    return int(match[2] or match[3])
