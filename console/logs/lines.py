"""What a log line is, for a store that takes in megabytes a second. Pure.

:func:`interesting` finds, with searches that run at memory speed, the few lines of a chunk that are
worth a look at all. :func:`classify_line` gives one of them to ``console.diagnosis``, which knows
errors, and adds what only the line above can tell: which lines are source code under a frame.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Kind(IntEnum):
    """What a line is. ``e`` jumps to ``ERROR`` and ``RAISED``; ``LOOK`` is somebody asking it."""

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
    FOLLOWS = 10
    LOOK = 11


JUMPS = frozenset({Kind.ERROR, Kind.RAISED})

FRAMES = frozenset({Kind.FRAME, Kind.FRAME_LIB, Kind.CODE})
"""Kinds of the lines between the head of a traceback and its exception."""

_TOKENS: tuple[tuple[bytes, bytes], ...] = (
    (b"", b"rror"), (b"x", b"xception"), (b"T", b"Traceback ("), (b'"', b'  File "'),
    (b"W", b"WARN"), (b"W", b"Warning"), (b"E", b"ERROR"), (b"X", b"Xid"), (b"q", b"d sigquit"),
    (b"S", b"SIGQUIT"), (b"K", b"Killed process"), (b"A", b"Assertion"), (b"", b"terminate called"),
    (b"%", b"%|"), (b"%", b"% Completed"), (b"I", b"Interrupt"), (b"S", b"Segmentation"),
    (b"", b"atchdog"), (b"x", b"exit code -"), (b"N", b"NVML"), (b"C", b"CUDA E"),
    (b"E", b"EADDRINUSE"), (b"", b"closed by peer"), (b"'", b"didn't finish"),
    (b"G", b'"GET /'), (b"#", b"#new-token: 1, #cached-token: 0"),
    (b"z", b"initialization failed"), (b"S", b"503 Service"), (b"H", b"Health check failed"),
)  # fmt: skip
"""Every line that is not plain holds one of these, or ends a traceback; a test over all cases keeps
this true. The single byte is looked for first: that is forty times faster, and often enough."""

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

RANK = re.compile(rb"\b(TP|DP|PP|EP)(\d{1,4})\b|\[rank(\d{1,4})\]|^rank(\d{1,4})\b(?=[\w.-]* +\| )")

_LOOK = re.compile(
    rb'"GET /(?:health|health_generate|metrics|server_info|get_server_info|model_info'
    rb'|get_model_info|v1/models|v1/loads|ping|version)(?:\?[^ ]*)? HTTP/[\d.]+" 200\b'
    rb"|Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0\b"
)
"""A look that was answered, and the one-token batch by which /health answers it. One that got no
200 is news and stays a line like any other."""

_INDENTED = (b"    ", b"  ^^", b"  [P")
"""How the lines under a frame begin: source, carets, ``[Previous line repeated …]``."""


def interesting(chunk: bytes) -> list[int]:
    """Byte offsets in the chunk of everything that may make a line special, in order."""
    found: list[int] = []
    for gate, token in _TOKENS:
        if gate not in chunk:
            continue
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
    if _LOOK.search(raw, 0, 512):
        return Kind.LOOK
    from console.diagnosis import annotate  # noqa: PLC0415 - its rules load when a log is read

    body = body_of(raw[:4096])
    in_frames = before in FRAMES or before is Kind.TRACEBACK
    if in_frames and body.startswith(_INDENTED) and not body.lstrip().startswith(b'File "'):
        return Kind.CODE
    kind = annotate.classify_line(body.decode("utf-8", "replace"))
    return _KINDS[kind.value]


_KINDS = {
    "plain": Kind.PLAIN,
    "warning": Kind.WARNING,
    "error": Kind.ERROR,
    "traceback": Kind.TRACEBACK,
    "frame-own": Kind.FRAME,
    "frame-library": Kind.FRAME_LIB,
    "exception": Kind.RAISED,
    "follows": Kind.FOLLOWS,
    "bar": Kind.BAR,
}


def rank_of(raw: bytes) -> int | None:
    """The rank that printed a line, where it says so near its start."""
    match = RANK.search(raw[:160])
    if match is None:
        return None
    return int(match[2] or match[3] or match[4])
