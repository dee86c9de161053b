r"""One line of a server's log, without what carriers wrapped around it.

A line may reach the reader through docker, Kubernetes, journald, compose, Ray, vLLM's process and
level prefixes, torchrun and a terminal's colours, several at once and in any order. They are
removed repeatedly. What they tell (rank, time, process) is kept beside the text.
"""

from __future__ import annotations

import json
import re
from calendar import timegm
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

MAX_CHARS = 16_384
"""Characters of one line that are read; request dumps of 100 kB and more are cut in the middle."""


class Line(NamedTuple):
    """One log line.

    ``number`` counts from 1 at line feeds. ``time`` is in seconds on the log's own clock.
    ``stream`` names the writer where every line of it carries a name (``rank3``, a process and
    pid), else "".
    ``fresh`` says that a logger's own prefix opened the line, so that it begins a record.
    ``place`` is the ``file.py:line`` that a logger repeats on every line of one record.
    """

    number: int
    text: str
    rank: str | None = None
    time: float | None = None
    stream: str = ""
    fresh: bool = False
    level: str = ""
    place: str = ""


class Clock:
    """One clock out of a log that may be stamped twice.

    A carrier stamps when it got a line, the logger when it wrote it, and the two may be zones
    apart. Once the logger's own stamps are seen (in ``lines``, if all are known), only they count.
    """

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._own = any(line.fresh and line.time is not None for line in lines)

    @property
    def own(self) -> bool:
        """Whether the logger's own stamps were seen."""
        return self._own

    def read(self, line: Line) -> float | None:
        """The line's time on the clock that counts, in seconds, or ``None``."""
        if line.fresh and line.time is not None:
            self._own = True
            return line.time
        return None if self._own else line.time


_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\-~])"
)
# Colours whose escape was lost on the way: a terminal's text copied into a file.
_LOST = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,4}m|^m(?=\([A-Za-z]\w* pid=)")
# rsyslog writes control characters as # and three octal digits.
_RSYSLOG = re.compile(r"#(033(?=\[)|015(?=$)|011)")
# The border of a pane or a table that a log was copied out of.
_BOX = re.compile(r"^\s*\u2502 ?|\s*\u2502\s*$")
_TAG = re.compile(r"\b(?:DP|PP|TP|EP|ATTN_CP|MOE_DP|CP|ATTN_DP)_?\d+")

_SGLANG = re.compile(
    r"\[(?:(?P<date>\d{4}-\d\d-\d\d) )?(?P<clock>\d\d:\d\d:\d\d)(?:[.,]\d+)?"
    r"(?P<tag>(?: [A-Z_]+\d+)*)\] ?"
)
_BAR_GLUE = re.compile(r"(?<=\S)(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]{0,60}\] )")
_HEADER_ENDS = "(most recent call last):"
_DMESG = re.compile(r"\[ *\d+\.\d{2,}\](?:\[ *T\d+\])? ?")
_DMESG_T = re.compile(
    r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<month>[A-Z][a-z]{2}) +(?P<day>\d+) "
    r"(?P<clock>\d\d:\d\d:\d\d) (?P<year>\d{4})\] ?"
)
_RANK = re.compile(r"\[(?:rank|default)(?P<rank>\d+)\]: ?")
_GLOG = re.compile(r"\[[EWFI]\d{3,4} (?P<clock>\d\d:\d\d:\d\d)\.\d+ [\w.]+:\d+\]")
_MPI = re.compile(r"\[\d+,(?P<rank>\d+)\]<std(?:err|out)>: ?")
_POD = re.compile(
    r"\[pod/[^\]\s]+\] "
    r"|\[\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)?\] (?:[\w./-]+ >> )?"
)
_PROC = re.compile(
    r"\((?P<name>[A-Za-z_][\w:.-]*(?: rank=(?P<rank>\d+))?),? pid=(?P<pid>\d+)(?:, ip=[^)]*)?\) ?"
)
_LEVEL = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?:(?P<year>\d{4})-)?(?P<month>\d\d)-(?P<day>\d\d) "
    r"(?P<clock>\d\d:\d\d:\d\d)(?:[.,]\d+)? \[?(?P<place>[\w./-]+\.py:\d+)\] ?"
)
_SEVERITY = re.compile(
    r"(?P<level>DEFAULT|DEBUG|INFO|NOTICE|WARNING|ERROR|CRITICAL) "
    r"(?P<date>\d{4}-\d\d-\d\d)T(?P<clock>\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)? ?"
)
_SYSLOG = re.compile(
    r"(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(?P<day>\d+) "
    r"(?P<clock>\d\d:\d\d:\d\d)(?:\.\d+)? (?P<host>[\w.-]+) "
    r"(?P<unit>[^\s\[\]:|]+)(?:\[(?P<pid>\d+)\])?: ?"
)
_ISO = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)T(?P<clock>\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"(?: (?P<host>[\w.-]+) (?P<unit>[^\s\[\]:|]+)\[(?P<pid>\d+)\]:"
    r"|(?P<cri> std(?:out|err) [FP](?= |$)))? ?"
)
# A parent that relays its server's output through its own logger: asctime - name - LEVEL - line.
_RELAY = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d) (?P<clock>\d\d:\d\d:\d\d)[,.]\d+ "
    r"(?:[-|] ?[\w.:-]+ [-|] ?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [-|:] ?"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) +(?:\[[\w.:-]+\]:?|[\w.]+:|-) ?)"
)
_COMPOSE = re.compile(r"(?P<name>(?:\d+\|)?[A-Za-z][\w./-]*) *(?:\||\u203a) ?")
_LABEL = re.compile(
    r"(?P<rank>\d{1,4}): (?=\[|Traceback|  \S|    \S|frame #|terminate called"
    r"|(?:\w+(?:\.|::))*[A-Z]\w*(?:Error|Exception|Exit)\b)"
)

_MONTHS = {
    name: i + 1
    for i, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    )
}


@lru_cache(maxsize=4096)
def _seconds(year: int, month: int, day: int, clock: str) -> float | None:
    try:
        hour, minute, second = (int(part) for part in clock.split(":"))
        return float(timegm((year, month, day, hour, minute, second)))
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _stamp(date: str | None, clock: str) -> float | None:
    year, month, day = (int(part) for part in (date or "1970-01-01").split("-"))
    return _seconds(year, month, day, clock)


@lru_cache(maxsize=1024)
def rank_of(tag: str) -> str | None:
    """The rank inside a tag such as `` DP1 TP3`` or ``Worker_DP0_TP1``; ``None`` without one."""
    parts = [part.replace("_", "") for part in _TAG.findall(tag.replace("_", " ").upper())]
    return " ".join(parts) or None


class _State:
    """What the prefixes of the line in hand have told so far."""

    __slots__ = ("fresh", "level", "place", "rank", "stream", "time")

    def __init__(self) -> None:
        self.rank: str | None = None
        self.time: float | None = None
        self.stream = ""
        self.fresh = False
        self.level = ""
        self.place = ""

    def at(self, time: float | None) -> None:
        if time is not None:
            self.time = time


_SAID = ("log", "MESSAGE", "message", "msg", "event")
_STACK = ("exc_info", "exception", "stack_trace", "traceback", "stack")


def _first_text(entry: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((entry[key] for key in keys if isinstance(entry.get(key), str)), None)


def unwrap_json(text: str) -> str | None:
    """The message of a docker json-file or ``journalctl -o json`` line, else ``None``."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    said, stack = _first_text(entry, _SAID), _first_text(entry, _STACK)
    if stack and "Traceback" in stack:
        return f"{said}\n{stack}" if said else stack
    return said


def _bracket(text: str, state: _State) -> str:
    if match := _SGLANG.match(text):
        state.at(_stamp(match["date"], match["clock"]))
        state.rank = rank_of(match["tag"]) or state.rank
        state.fresh = True
    elif match := _RANK.match(text):
        state.rank = f"rank{match['rank']}"
        state.stream = state.stream or state.rank
        state.fresh = _GLOG.match(text, match.end()) is not None
    elif (match := _DMESG.match(text)) or (match := _POD.match(text)):
        state.fresh = state.fresh or text[match.end() :][:4] in ("NVRM", "oom-", "Memo", "Out ")
    elif match := _MPI.match(text):
        state.rank = f"rank{match['rank']}"
        state.stream = state.stream or state.rank
    elif match := _DMESG_T.match(text):
        month = _MONTHS.get(match["month"], 1)
        state.at(_seconds(int(match["year"]), month, int(match["day"]), match["clock"]))
    else:
        return text
    return text[match.end() :]


def _paren(text: str, state: _State) -> str:
    match = _PROC.match(text)
    if not match:
        return text
    state.stream = match[0].strip()
    state.rank = (f"rank{match['rank']}" if match["rank"] else None) or state.rank
    if "worker" in match["name"].lower():
        state.rank = rank_of(match["name"]) or state.rank
    return text[match.end() :]


def _digit(text: str, state: _State) -> str:
    if match := _RELAY.match(text):
        state.at(_stamp(match["date"], match["clock"]))
        return text[match.end() :]
    if match := _ISO.match(text):
        state.at(_stamp(match["date"], match["clock"]))
        if match["pid"]:
            state.stream = state.stream or f"{match['unit']}[{match['pid']}]"
        return text[match.end() :]
    if text[1:3] != " |" and (match := _COMPOSE.match(text)):
        return text[match.end() :]
    if match := _LABEL.match(text):
        state.rank = f"rank{match['rank']}"
        state.stream = state.stream or state.rank
        return text[match.end() :]
    return text


def _letter(text: str, state: _State) -> str:
    if match := _LEVEL.match(text):
        year = int(match["year"] or 1970)
        state.at(_seconds(year, int(match["month"]), int(match["day"]), match["clock"]))
        state.level, state.place = match["level"], match["place"]
        return text[match.end() :]
    if match := _SEVERITY.match(text):
        state.at(_stamp(match["date"], match["clock"]))
        return text[match.end() :]
    if match := _SYSLOG.match(text):
        month = _MONTHS[match["month"]]
        state.at(_seconds(1970, month, int(match["day"]), match["clock"]))
        if match["pid"]:
            state.stream = state.stream or f"{match['unit']}[{match['pid']}]"
        return text[match.end() :]
    if "|" in text[:64] or "\u203a" in text[:64]:
        match = _COMPOSE.match(text)
        if match:
            return text[match.end() :]
    return text


def _strip(text: str, state: _State) -> str:
    for _ in range(8):  # deeper nesting than this is an attack, not a carrier
        first = text[:1]
        if first == "[":
            rest = _bracket(text, state)
        elif first == "(":
            rest = _paren(text, state)
        elif first == "{":
            inner = unwrap_json(text)
            rest = text if inner is None else _ANSI.sub("", inner.rstrip("\r\n"))
        elif first.isdigit():
            rest = _digit(text, state)
        elif first.isalpha():
            rest = _letter(text, state)
        else:
            return text
        if rest == text or state.fresh:
            return rest
        text = rest
    return text


def parse(raw: str, number: int = 0) -> Line:
    """A raw line as a :class:`Line`; of a bar redrawn with CR the last state. Never raises."""
    text = raw.rstrip("\r\n")
    if len(text) > MAX_CHARS:
        half = MAX_CHARS // 2
        text = f"{text[:half]} … {text[-half:]}"
    if "\u2502" in text:
        text = _BOX.sub("", text)
    if "#0" in text:
        text = _RSYSLOG.sub(lambda m: chr(int(m[1], 8)), text).rstrip("\r")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    elif "[0m" in text:
        text = _LOST.sub("", text)
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    if text[:1] in ("", " ", "\t"):
        if "s]" in text or "?]" in text:
            text = _unglue(text)
        if text[:1] in ("", " ", "\t"):
            return Line(number, text)
    elif (
        "it]" in text or "it/s]" in text or text.startswith("[Gloo]") or text.endswith(_HEADER_ENDS)
    ):
        text = _unglue(text)
    state = _State()
    text = _strip(text, state)
    if "\r" in text:  # inside a docker json entry
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    read = state.rank, state.time, state.stream, state.fresh, state.level, state.place
    return Line(number, text, *read)


def _unglue(text: str) -> str:
    """The log line that another rank printed at the end of a bar, if there is one."""
    cut = _BAR_GLUE.search(text)
    return text[cut.end() :] if cut else text
