"""Python tracebacks out of a log: per rank, interleaved, torn, chained, cut off at either end.

A traceback's header carries the logger's prefix, the lines after it usually nothing, and several
ranks may write at once. Lines are therefore dealt to the open stacks by structure: a frame line, a
source line or an exception line goes to the stack that can take it next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from console.phases.lines import Line, rank_of

MAX_MESSAGE_LINES = 80
"""Continuation lines kept of one message: compiler output and import reports run to dozens."""
_MAX_OPEN = 64
_STALE = 400  # lines without growth after which an open stack is given up

_HEADER = re.compile(r"Traceback \(most recent call last\): *$")
_FRAME = re.compile(r' *File "(?P<file>[^"]*)", line (?P<line>\d+)(?:, in (?P<func>.+?))? *$')
_CARETS = re.compile(r"\s+[~^ ]*\^[~^ ]*$|\s+~+$")
_NAMED = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*(?:\.|::))*[A-Za-z_]\w*)(?::(?: (?P<text>.*))?|(?P<bare>)) *$",
    re.DOTALL,
)
_SUFFIX = re.compile(
    r"(?:Error|Exception|Exit|Interrupt|Warning|Timeout|TimedOut|Failure|Fault|Empty|Full"
    r"|NotFound|StopIteration|ExceptionGroup|Again|Cancelled|Refused|Abort|Died|Lost)$"
)
_NOT_NAMES = frozenset(
    [
        "INFO",
        "WARNING",
        "ERROR",
        "DEBUG",
        "CRITICAL",
        "Killed",
        "Aborted",
        "Terminated",
        "Process",
        "Thread",
        "Note",
        "Warning",
        "Hint",
        "Supported",
        "Command",
        "Loading",
        "Failed",
        "Possible",
        "GPU",
        "NVRM",
        "NOTE",
        "Usage",
        "usage",
    ]
)
_DURING = "During handling of the above exception, another exception occurred:"
_CAUSE = "The above exception was the direct cause of the following exception:"
_GUTTER = re.compile(r" *(?:\+-\+-+ \d+ -+|\+-{4,}|[|+] ?)")
_RECORD = re.compile(
    r"Received sigquit|SIGQUIT received|Killed$|Fatal Python error|terminate called|NVRM: |\$ "
    r"|Exception (?:in|ignored)|Process \w|Loading \w+ |Capturing |\^C|--- Logging error|\[rank"
    r"|[\w.-]+:\d+:\d+ \[\d+\] |\S+\.cuh?:\d+: |Thread 0x|Current thread|INFO: |WARNING: |ERROR: "
    r"|\S+: line \d+: +\d+ Killed|\[[EWFI]\d{3,4} |[EWFI]\d{4} \d\d:|/\S+\.py:\d+: \w*Warning"
    r"|Initialization failed\.|Failed: Cuda|oom-kill:|\[[\w.-]+:\d+\] |!!!!!!!|subprocess\.Called"
    r"|={20,}$|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
)


@dataclass(slots=True)
class Frame:
    """One frame of a traceback. ``code`` is the source line as printed, "" where it is missing."""

    file: str
    line: int
    func: str
    code: str = ""


@dataclass(slots=True)
class Trace:
    """One traceback block: its frames, the exception that ended it, and the block it follows.

    ``header`` is what the logger said before it, on the same line or the one above. ``number`` is
    the log line of the exception, or of the header while ``type`` is unknown (""). ``clean`` says
    that the last frame, its source and the exception stood together untorn.
    """

    number: int
    rank: str | None
    stream: str
    header: str = ""
    time: float | None = None
    frames: list[Frame] = field(default_factory=list)
    type: str = ""
    message: list[str] = field(default_factory=list)
    earlier: Trace | None = None
    link: str = ""
    clean: bool = True
    headless: bool = False
    grouped: bool = False
    start: int = 0
    end: int = 0
    place: str = ""

    @property
    def text(self) -> str:
        """The exception's message with its continuation lines."""
        return "\n".join(self.message).strip()

    @property
    def wants_code(self) -> bool:
        """Whether the last frame still waits for its source line."""
        return bool(self.frames) and not self.frames[-1].code


def exception_line(text: str, *, structural: bool) -> tuple[str, str] | None:
    """Class and message if the line names an exception.

    ``structural``: the line stands where a traceback ends, so any class name is believed.
    """
    match = _NAMED.match(text)
    if not match or len(match["type"]) > 160:
        return None
    name = match["type"]
    last = re.split(r"\.|::", name)[-1]
    if name in _NOT_NAMES or last in _NOT_NAMES:
        return None
    known = (bool(_SUFFIX.search(last)) and last[0].isupper()) or last.endswith("Error")
    if not known:
        dotted = last != name
        plausible = last[0].isupper() and not last.isupper() and len(last) > 3
        if not structural or not (dotted or plausible):
            return None
    return name, (match["text"] or "").strip()


class Reader:
    """Deals lines to tracebacks. Feed every line in order, then :meth:`finish`."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.leftovers: list[Line] = []
        self._open: list[Trace] = []
        self._message: Trace | None = None
        self._last: dict[str, Trace] = {}
        self._link: dict[str, str] = {}
        self._muted = False
        self._previous = ""
        self._group = self._flat = False
        self._code: dict[tuple[str, int], str] = {}

    def feed(self, line: Line) -> bool:
        """Take a line; True when it is part of a traceback or of an exception's message."""
        text = line.text
        if self._group:
            text = self._ungutter(text)
        if self._mute(text):
            return True
        if text.endswith((":", ": ")):
            if _HEADER.search(text):
                self._start(line, text)
                return True
            bare = text.strip()
            if bare in (_DURING, _CAUSE):
                self._link[line.stream] = "during" if bare == _DURING else "cause"
                self._message = None
                return True
        if text.startswith((" ", 'File "')):
            taken = self._indented(line, text)
        else:
            taken = self._flush_left(line, text)
        self._previous = text
        return taken

    def finish(self) -> list[Trace]:
        """All tracebacks, the cut-off ones with an empty ``type``, in the order of their ends."""
        for trace in self._open:
            if trace.frames or trace.header:
                self._guess_end(trace)
                self.traces.append(trace)
        self._open = []
        return self.traces

    # ------------------------------------------------------------------ parts

    def _ungutter(self, text: str) -> str:
        stripped = text
        while (
            (match := _GUTTER.match(stripped)) and match.end() and (stripped[: match.end()].strip())
        ):
            stripped = stripped[match.end() :]
        if stripped == text and text.strip():
            self._group = False
        return stripped

    def _mute(self, text: str) -> bool:
        """Whether the line belongs to logging's own complaint, no failure of the server."""
        if text.startswith("--- Logging error ---"):
            self._muted = True
        elif self._muted and text.startswith("Arguments: "):
            self._muted = False
            return True
        return self._muted

    def _start(self, line: Line, text: str) -> None:
        self._message = None
        self._group = self._group or "Exception Group Traceback" in text
        head = text[: text.rfind("Traceback")].replace("Exception Group ", "").strip(" +|")
        if line.rank or line.stream:
            for trace in [t for t in self._open if (t.rank, t.stream) == (line.rank, line.stream)]:
                self._close_cut(trace)
        elif not self._concurrent(line):
            for trace in list(self._open):
                self._close_cut(trace)
        said = head or ("" if self._previous.startswith(" ") else self._previous)
        rank = line.rank or rank_of(f" {head[:24]}")
        trace = Trace(line.number, rank, line.stream, said, line.time)
        trace.start = trace.end = line.number
        trace.grouped = self._group
        if link := self._link.pop(line.stream, ""):
            trace.link, trace.earlier = link, self._last.get(line.stream)
            if trace.earlier is not None and trace.rank is None:
                trace.rank = trace.earlier.rank
        self._open.append(trace)
        if len(self._open) > _MAX_OPEN:
            self._close_cut(self._open[0])

    def _concurrent(self, line: Line) -> bool:
        """Whether stacks of other writers may still be growing on the same bare stream."""
        return bool(line.fresh) and any(t.rank or t.header for t in self._open)

    def _close_cut(self, trace: Trace) -> None:
        self._open.remove(trace)
        if trace.frames:
            self._guess_end(trace)
            self.traces.append(trace)

    @staticmethod
    def _guess_end(trace: Trace) -> None:
        """A stack cut before its exception still names it where its last source line raises."""
        trace.clean = False
        code = trace.frames[-1].code if trace.frames else ""
        match = re.match(r"raise ([A-Z]\w*(?:\.\w+)*)\b", code)
        if match and (_SUFFIX.search(match[1])):
            trace.type = match[1]

    def _candidates(self, line: Line) -> list[Trace]:
        fresh = [t for t in self._open if line.number - t.end <= _STALE]
        if line.stream:
            own = [t for t in fresh if t.stream == line.stream]
            return own or ([] if any(t.stream for t in fresh) else fresh)
        return [t for t in fresh if not t.stream] or fresh

    def _indented(self, line: Line, text: str) -> bool:
        match = _FRAME.match(text)
        if match:
            self._flat = text.startswith("File")
            self._frame(line, match)
            return True
        if not self._open:
            return self._continue(line, text)
        if _CARETS.match(text) or text.lstrip().startswith("[Previous line repeated"):
            return True
        if text.startswith("    "):
            waiting = [t for t in self._candidates(line) if t.wants_code]
            if waiting:
                code = text.strip()
                chosen = self._owner(waiting, code)
                chosen.frames[-1].code = code
                chosen.end = line.number
                if len(waiting) == 1 and len(self._open) == 1:
                    self._code.setdefault((chosen.frames[-1].file, chosen.frames[-1].line), code)
                return True
        return self._continue(line, text)

    def _owner(self, waiting: list[Trace], code: str) -> Trace:
        """Which of several stacks a source line belongs to: known pairs first, then the oldest."""
        if len(waiting) > 1:
            for trace in waiting:
                if self._code.get((trace.frames[-1].file, trace.frames[-1].line)) == code:
                    return trace
        return min(waiting, key=lambda t: t.end)

    def _frame(self, line: Line, match: re.Match[str]) -> None:
        frame = Frame(match["file"], int(match["line"]), match["func"] or "")
        candidates = self._candidates(line)
        if not candidates:
            trace = Trace(line.number, line.rank, line.stream, time=line.time, headless=True)
            trace.start = line.number
            if self._link.get(line.stream):
                trace.link = self._link.pop(line.stream)
                trace.earlier = self._last.get(line.stream)
            self._open.append(trace)
            self._message = None
        else:
            trace = self._caller(candidates, frame)
        if _FRAME.match(self._previous) and len(candidates) > 1:
            trace.clean = False
            for other in candidates:
                other.clean = False
        trace.frames.append(frame)
        trace.end = line.number

    @staticmethod
    def _caller(candidates: list[Trace], frame: Frame) -> Trace:
        """The open stack that goes on with this frame: it is whole, and its last line calls it."""
        if len(candidates) == 1:
            return candidates[0]
        empty = [t for t in candidates if not t.frames]
        ready = [t for t in candidates if not t.wants_code]
        if not ready:  # frames without source lines, dealt in turn
            return min(candidates, key=lambda t: t.end)
        name = frame.func.rsplit(".", 1)[-1]
        callers = [
            t for t in ready if t.frames and re.search(rf"\b{re.escape(name)}\(", t.frames[-1].code)
        ]
        if callers:
            return max(callers, key=lambda t: t.end)
        if empty and name in ("run_scheduler_process", "_run_module_as_main", "<module>"):
            return empty[0]
        return max([t for t in ready if t.frames] or ready, key=lambda t: t.end)

    def _flush_left(self, line: Line, text: str) -> bool:
        if self._open and not line.fresh:
            if self._flattened(line, text):
                return True
            candidates = self._candidates(line)
            if candidates and text:
                found = exception_line(text, structural=any(t.frames for t in candidates))
                if found:
                    self._end(line, candidates, found)
                    return True
        return self._continue(line, text)

    def _flattened(self, line: Line, text: str) -> bool:
        """Source lines of an export that lost its indentation: they follow an unindented frame."""
        if len(self._open) != 1 or not self._flat or not text.strip():
            return False
        if exception_line(text, structural=False) or _RECORD.match(text):
            return False
        trace = self._open[0]
        if not re.fullmatch(r"[ ~^]+", text):
            if trace.wants_code:
                trace.frames[-1].code = text
            elif exception_line(text, structural=True):
                return False
        trace.end = line.number
        return True

    def _end(self, line: Line, candidates: list[Trace], found: tuple[str, str]) -> None:
        name = re.split(r"\.|::", found[0])[-1]
        raising = [
            t
            for t in candidates
            if t.frames and re.match(rf"raise (\w+\.)*{name}\b", t.frames[-1].code)
        ]
        whole = [t for t in candidates if not t.wants_code]
        pool = raising or whole or candidates
        newest = max(trace.end for trace in pool)
        near = [trace for trace in pool if newest - trace.end <= 2 * len(pool)]
        trace = min(near, key=lambda t: t.start)
        trace.type, trace.message = found[0], [found[1]]
        trace.number = trace.end = line.number
        trace.time = trace.time if trace.time is not None else line.time
        trace.rank = trace.rank or line.rank
        trace.place = line.place
        self._open.remove(trace)
        self.traces.append(trace)
        self._last[line.stream] = trace
        self._message = trace

    def _continue(self, line: Line, text: str) -> bool:
        """Add the line to the message in hand, or hand it back as no part of a traceback."""
        trace = self._message
        if trace is None:
            return False
        over = len(trace.message) >= MAX_MESSAGE_LINES or line.fresh or line.stream != trace.stream
        over = over or line.place != trace.place  # another record
        if over or _RECORD.match(text) or (line.level and not trace.stream and line.rank):
            self._message = None
            return False
        if not text.strip():
            opened = not trace.message[0] or trace.message[-1].endswith(":")
            if not opened:
                self._message = None
                return True
        trace.message.append(text.rstrip())
        return True


def read(lines: Iterable[Line]) -> tuple[list[Trace], list[Line]]:
    """Tracebacks of a log and the lines that belong to none."""
    reader = Reader()
    rest = [line for line in lines if not reader.feed(line)]
    return reader.finish(), rest
