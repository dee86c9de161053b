"""What a log holds that may be a root: exceptions, and the signs of failures that raise nothing."""

from __future__ import annotations

import re
import signal
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from console.diagnosis.rules import Rules, Sign
from console.diagnosis.tracebacks import Frame, Trace, exception_line, read
from console.phases.lines import Line

_SIGN_CHARS = 2000  # of a line are tried; signs stand near its start
_HITS = 400  # of one sign are looked at: a storm repeats itself
_NAME_CHARS = 200  # of a class are looked at: a log may hold any
_INNER = re.compile(r"(?:\w+\.)*(\w+(?:Error|Exception))(?:\([^)]*\))?: ")
_TOO_PLAIN = ("Error", "Exception")  # a word that any logger writes, without a stack no class


@dataclass(slots=True)
class Incident:
    """One thing that may be the root. ``number`` is the log line that tells it."""

    kind: str
    type: str
    message: str
    number: int
    sign: str = ""
    rank: str | None = None
    file: str | None = None
    line: int | None = None
    time: float | None = None
    trace: Trace | None = None
    frames: list[Frame] = field(default_factory=list)
    role: str = "cause"

    @property
    def name(self) -> str:
        """The class without its module."""
        return re.split(r"\.|::", self.type)[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """The class, and the one that its message begins with: a wrapper quotes what it wraps."""
        inner = _INNER.match(self.message)
        names = (self.name, inner[1]) if inner else (self.name,)
        return tuple(name[:_NAME_CHARS] for name in names)

    @property
    def whole(self) -> str:
        """``class: message``, as the role patterns see it."""
        return f"{self.type}: {self.message}" if self.message else self.type


class Text:
    """Lines joined once, so that a literal is found at memory speed and its line by bisection."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.text = "\n".join(line.text for line in lines)
        self._starts: list[int] = []
        at = 0
        for line in lines:
            self._starts.append(at)
            at += len(line.text) + 1

    def index_at(self, offset: int) -> int:
        """Index of the line that holds a character of the joined text."""
        return bisect_right(self._starts, offset) - 1

    def holding(self, literal: str, limit: int = _HITS) -> Iterator[int]:
        """Indices of lines that hold the literal, each once, the first ``limit`` of them."""
        at, last = self.text.find(literal), -1
        while at >= 0 and limit:
            index = self.index_at(at)
            if index != last:
                yield index
                limit -= 1
            last = index
            at = self.text.find(literal, self._starts[index] + len(self.lines[index].text))


@dataclass(slots=True)
class Evidence:
    """Everything found in one log."""

    all: Text
    rest: Text
    traces: list[Trace]
    raised: list[Incident]
    signs: list[Incident]
    searched: str = ""

    def of(self, *kinds: str) -> list[Incident]:
        """The signs of these kinds, in log order."""
        return [sign for sign in self.signs if sign.kind in kinds]


def _signal_name(text: str) -> str:
    if text.startswith("SIG"):
        return text
    try:
        return signal.Signals(abs(int(text))).name
    except ValueError:
        return "SIGKILL"


_RANK_NAMED = re.compile(r"\b[Rr]ank (\d+)\b")


def _incident(sign: Sign, line: Line, match: re.Match[str]) -> Incident:
    groups = {key: value for key, value in match.groupdict().items() if value}
    if "signal" in groups:
        groups["signal"] = _signal_name(groups["signal"])
    kind = re.sub(r"\{(\w+)\}", lambda m: groups.get(m[1], ""), sign.type)
    if sign.kind == "death" and (named := _RANK_NAMED.search(line.text)):
        groups.setdefault("rank", named[1])
    rank = line.rank or (f"TP{groups['rank']}" if "rank" in groups else None)
    message = groups.get("message") or line.text.strip()
    if kind == "SystemExit":
        message = line.text.partition("error: ")[2] or message
    place = groups.get("file")
    return Incident(
        sign.kind,
        kind,
        message,
        line.number,
        sign.id,
        rank,
        place,
        int(groups["line"]) if place and "line" in groups else None,
        line.time,
    )


def _signs(rules: Rules, everything: Text, inside: dict[int, Trace]) -> list[Incident]:
    found: dict[tuple[int, str], Incident] = {}
    for sign in rules.signs:
        if sign.beside not in everything.text:
            continue
        for literal in sign.literals:
            for index in everything.holding(literal):
                line = everything.lines[index]
                if (line.number, sign.kind) in found:
                    continue
                match = sign.pattern.search(line.text[:_SIGN_CHARS])
                if not match:
                    continue
                incident = _incident(sign, line, match)
                trace = inside.get(line.number)
                if trace is not None:
                    if sign.kind in ("raised", "peer", "cuda", "nccl", "assert"):
                        continue  # the exception itself says it
                    incident.trace, incident.frames = trace, trace.frames
                    if trace.frames:
                        incident.file = trace.frames[-1].file
                        incident.line = trace.frames[-1].line
                found[line.number, sign.kind] = incident
    return sorted(found.values(), key=lambda i: i.number)


def _from_trace(trace: Trace) -> Incident:
    last = trace.frames[-1] if trace.frames else None
    message = trace.text
    if trace.type.endswith("AssertionError") and not message and last and last.code:
        message = last.code
    return Incident(
        "raised",
        trace.type,
        message,
        trace.number,
        "",
        trace.rank,
        last.file if last else None,
        last.line if last else None,
        trace.time,
        trace,
        trace.frames,
    )


def _bare(rest: Text, seen: set[tuple[str, str]]) -> Iterator[Incident]:
    """Exceptions printed as one line without a traceback."""
    done: set[int] = set()
    for literal in ("Error", "Exception", "Exit", "Interrupt"):
        for index in rest.holding(literal):
            line = rest.lines[index]
            if index in done or not line.text[:1].isalpha():
                continue
            found = exception_line(line.text, structural=False)
            if found is None or found in seen or found[0] in _TOO_PLAIN:
                continue
            done.add(index)
            message = [found[1]]
            for after in rest.lines[index + 1 : index + 12]:
                follows = after.number == line.number + len(message) and not after.fresh
                if not follows or not after.text.strip() or after.stream != line.stream:
                    break
                if exception_line(after.text, structural=False) or after.text.startswith("$ "):
                    break
                message.append(after.text)
            yield Incident(
                "raised",
                found[0],
                "\n".join(message).strip(),
                line.number,
                "",
                line.rank,
                time=line.time,
            )


_TERMINATE = re.compile(r"terminate called after throwing an instance of '([^']+)'")


def _native(rest: Text) -> Iterator[Incident]:
    """C++ exceptions that ended a process: ``terminate called`` and the ``what():`` after it."""
    for index in rest.holding("terminate called after throwing"):
        line = rest.lines[index]
        match = _TERMINATE.search(line.text)
        if not match:
            continue
        what = ""
        for after in rest.lines[index + 1 : index + 4]:
            head, found, tail = after.text.partition("what():")
            if found and not head.strip():
                what = tail.strip()
                break
        yield Incident(
            "raised", match[1], what, line.number, "terminate", line.rank, time=line.time
        )


def gather(lines: Sequence[Line], rules: Rules) -> Evidence:
    """Read a log's lines for everything that may be a root."""
    traces, rest_lines = read(lines)
    everything, rest = Text(lines), Text(rest_lines)
    inside: dict[int, Trace] = {}
    for trace in traces:
        if trace.type:
            for number in range(trace.number, trace.number + len(trace.message)):
                inside.setdefault(number, trace)
    raised = [_from_trace(trace) for trace in traces if trace.type]
    seen = {(incident.type, incident.message.partition("\n")[0]) for incident in raised}
    signs = _signs(rules, everything, inside)
    raised += list(_bare(rest, seen))
    native = list(_native(rest))
    told = [s for s in signs if s.kind == "raised"]
    raised += [sign for sign in told if sign.type]
    raised += [n for n in native if not any(_says(n.message, r.message) for r in raised)]
    for sign in told:  # the class that the runtime names later is the class of the earlier line
        for terminated in native:
            if _says(terminated.message, sign.message):
                sign.type = terminated.type
    raised.sort(key=lambda i: i.number)
    other = [sign for sign in signs if sign.kind != "raised"]
    return Evidence(everything, rest, traces, raised, other, everything.text)


def _says(short: str, text: str) -> bool:
    return bool(short) and (short[:120] in text or text[:120] in short)
