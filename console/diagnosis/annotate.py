"""What a single line is, for the log view: highlighting, folding of library frames, jumps."""

from __future__ import annotations

import re
from enum import StrEnum

from console.diagnosis.tracebacks import exception_line


class LineKind(StrEnum):
    """The kinds that the log view tells apart."""

    PLAIN = "plain"
    WARNING = "warning"
    ERROR = "error"
    TRACEBACK = "traceback"
    FRAME_OWN = "frame-own"
    FRAME_LIBRARY = "frame-library"
    EXCEPTION = "exception"
    FOLLOWS = "follows"
    BAR = "bar"


JUMPS = frozenset((LineKind.ERROR, LineKind.EXCEPTION))
"""Kinds at which ``e`` and ``E`` stop."""

# Every line that is not plain holds one of these, or begins with an indentation: a test at memory
# speed, so that a serving log of a million lines costs little more than reading it.
_ERROR = (
    "Traceback (most",
    "NVRM: Xid",
    "Assertion `",
    "NCCL WARN",
    "Fatal Python error",
    "Segmentation",
    "atchdog timeout (self",
    "watchdog got stuck",
    "Killed process",
    "exit code -",
    "terminate called",
    "NVML",
    "uda error",
    "CUDA E",
    "Bus error",
    "EADDRINUSE",
    " ERROR ",
    "ERROR:",
    "fatal error:",
)
_FOLLOWS = (
    "eceived sigquit",
    "SIGQUIT",
    "EngineDeadError",
    "Engine core initialization failed",
    "Connection closed by peer",
    "other ranks that didn't finish",
)
_WARNING = ("WARNING", "Warning", "Ignore import error", "503 Service", "Health check failed")
TROUBLE = (
    *("rror", "xception", "Exit", "Interrupt", "Timeout", "Empty", "Full", "Traceback (most"),
    *('File "', "NVRM: Xid", "Assertion `", "NCCL WARN", "Segmentation", "watchdog got stuck"),
    *("atchdog timeout (self", "Killed process", "exit code -", "terminate called", "NVML"),
    *("CUDA E", "EADDRINUSE", " ERROR ", "ERROR:", *_FOLLOWS),
)
"""Every line that is an error, or part of the report of one, holds one of these, and few others
do: for a search on the log's own host."""
_FRAME = re.compile(r' *File "(?P<file>[^"]*)", line \d+')
_LIBRARY = re.compile(
    r"(?:site|dist)-packages/(?!sglang/|vllm/|eagle3/)|/lib/python3|<frozen|torch/|importlib"
    r"|sglang/srt/managers/scheduler\.py|/runpy\.py"
)
_PREFIX = re.compile(
    r"^(?:\[[^\]]{1,80}\]:? ?|\([\w:. -]+ pid=\d+\) ?|[\w.|-]+ +\| "
    r"|(?:ERROR|CRITICAL) [\d: .-]+\[\S+\] )+"
)
_SUSPECT = re.compile(r"Error|Exception|Exit\b|Interrupt|Timeout|Empty\b|Full\b")


def classify_line(line: str) -> LineKind:
    """The kind of one cleaned log line. It looks at the line alone: call it in any order."""
    if ("%|" in line or "% Completed |" in line) and (
        "it]" in line or "it/s]" in line or "s]" in line
    ):
        return LineKind.BAR
    if 'File "' in line and (match := _FRAME.match(_PREFIX.sub("", line))):
        library = _LIBRARY.search(match["file"])
        return LineKind.FRAME_LIBRARY if library else LineKind.FRAME_OWN
    suspect = (
        "rror" in line or "xcept" in line or "Exit" in line or "Time" in line or "Inter" in line
    )
    if suspect and _SUSPECT.search(line):
        found = exception_line(_PREFIX.sub("", line), structural=False)
        if found is not None and not found[0].endswith("Warning"):
            follows = any(word in line for word in _FOLLOWS)
            return LineKind.FOLLOWS if follows else LineKind.EXCEPTION
    return _by_word(line)


def _by_word(line: str) -> LineKind:
    for word in _FOLLOWS:
        if word in line:
            return LineKind.FOLLOWS
    if "Traceback (most" in line:
        return LineKind.TRACEBACK
    for word in _ERROR:
        if word in line:
            return LineKind.ERROR
    for word in _WARNING:
        if word in line:
            return LineKind.WARNING
    return LineKind.PLAIN


_TAG = re.compile(
    r"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z_]+\d+)*? TP(\d+)"
    r"|\[rank(\d+)\]|Worker_TP(\d+)"
)


def rank_number(line: str) -> int | None:
    """The tensor-parallel rank that printed a line, for its colour; ``None`` where it says none."""
    if "TP" not in line and "[rank" not in line:
        return None
    match = _TAG.search(line[:160])
    return int(next(group for group in match.groups() if group)) if match else None
