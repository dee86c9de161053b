"""The part of a log that a diagnosis needs, out of a log of any size.

A log may be gigabytes, a crash a few kilobytes at its end. Blocks are searched as bytes; kept are
the last start's head, every window around a word of trouble, and its tail. Bounded memory.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from console.model import Diagnosis

BLOCK = 256 * 1024
HEAD = 1024 * 1024
TAIL = 2 * 1024 * 1024
MIDDLE = 6 * 1024 * 1024
LONG_LINE = 64 * 1024
_PREVIOUS = 256 * 1024
_WINDOW = 24 * 1024  # bytes kept after a word of trouble, so that its traceback is whole
_BEFORE = 4 * 1024

STARTS = (b"server_args=ServerArgs(", b"server_args={", b"vLLM API server version ")
"""Printed once by every start: SGLang's parent, its successor's form, vLLM's API server."""

_TROUBLE = (
    b"Traceback (most",
    b"Error:",
    b"Exception",
    b" exception",
    b"Assertion",
    b"NVRM",
    b"Xid",
    b"Killed",
    b"killed",
    b"NCCL WARN",
    b"igquit",
    b"SIG",
    b"atchdog",
    b"Fatal",
    b"fatal error",
    b"terminate called",
    b"Cuda error",
    b"CUDA e",
    b"CUDA E",
    b"NVML",
    b"Errno",
    b"exit code",
    b"exitcode",
    b"oom",
    b"OOM",
    b"core dumped",
    b"Health check",
    b"shared memory broadcast",
    b"Ignore import error",
    b"ERROR",
)
_RAISED = re.compile(
    rb"^[^\n]{0,200}?((?:[A-Za-z_][\w.]*)?(?:Error|Exception|Exit)(?::[^\n]{0,160}|\r?$))",
    re.MULTILINE,
)
_DIGITS = re.compile(rb"\d+")


@dataclass(slots=True)
class Extract:
    """Numbered raw lines of the last start and the one before, and what earlier ones raised."""

    current: list[tuple[int, bytes]]
    previous: list[tuple[int, bytes]] = field(default_factory=list)
    starts: int = 0
    raised: Counter[bytes] = field(default_factory=Counter)

    def counted(self, diagnosis: Diagnosis) -> Diagnosis:
        """The diagnosis with the number of starts that ended the same way."""
        root = diagnosis.root
        if root is None:
            return diagnosis
        text = f"{root.type}: {root.message.partition(chr(10))[0]}".rstrip(": ")
        key = _key(text.encode("utf-8", "replace"))
        here = any(number == root.log_line for number, _ in self.current)
        return replace(diagnosis, incidents=max(1, self.raised.get(key, 0) + here))


def _key(line: bytes) -> bytes:
    """An exception line without its module and its numbers, for telling repeats."""
    name, colon, text = line.strip().partition(b":")
    short = name.rpartition(b".")[2] + colon + text
    return _DIGITS.sub(b"#", short[:100])


def _blocks(data: bytes | Iterable[bytes]) -> Iterator[bytes]:
    """The log in blocks that end at line ends; a line without end is cut at ``LONG_LINE``."""
    if isinstance(data, bytes | bytearray | memoryview):
        whole = bytes(data)
        at = 0
        while at < len(whole):
            end = min(len(whole), at + BLOCK)
            if end < len(whole):
                cut = whole.rfind(b"\n", at, end)
                end = cut + 1 if cut >= at else end
            yield whole[at:end]
            at = end
        return
    rest = b""
    for piece in data:
        rest += piece
        if len(rest) >= BLOCK:
            cut = rest.rfind(b"\n") + 1 or len(rest)
            yield from _blocks(rest[:cut])
            rest = rest[cut:]
    if rest:
        yield rest


class _Start:
    """What is kept of one start while its log goes by."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.head: list[tuple[int, bytes]] = []
        self.middle: list[tuple[int, bytes]] = []
        self.tail: deque[tuple[int, bytes]] = deque()
        self.head_size = self.middle_size = self.tail_size = 0

    def add(self, block: bytes) -> None:
        """Take a block that begins at a line start."""
        number = self.line
        self.line += block.count(b"\n")
        if self.head_size < HEAD:
            self.head.append((number, block))
            self.head_size += len(block)
            return
        self.tail.append((number, block))
        self.tail_size += len(block)
        while self.tail_size - len(self.tail[0][1]) >= TAIL:
            old_number, old = self.tail.popleft()
            self.tail_size -= len(old)
            if self.middle_size < MIDDLE:
                for piece in _windows(old_number, old):
                    self.middle.append(piece)
                    self.middle_size += len(piece[1])

    def pieces(self) -> list[tuple[int, bytes]]:
        """Numbered lines of everything kept, in order."""
        lines: list[tuple[int, bytes]] = []
        for first, block in (*self.head, *self.middle, *self.tail):
            parts = block.split(b"\n")
            if not parts[-1]:
                parts.pop()
            lines.extend((first + i, _capped(part)) for i, part in enumerate(parts))
        return lines

    def raised(self) -> set[bytes]:
        """Exceptions in the last part of this start, for counting a restart loop."""
        last = b"".join(block for _, block in [*self.head, *self.tail][-2:])[-16384:]
        if b"Error" not in last and b"Exception" not in last:
            return set()
        return {_key(match[1]) for match in _RAISED.finditer(last)}


def _capped(line: bytes) -> bytes:
    if len(line) <= LONG_LINE:
        return line
    return line[: LONG_LINE // 2] + b" ... " + line[-LONG_LINE // 2 :]


def _windows(number: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    """The parts of a block around words of trouble, merged, each with its first line's number."""
    spans: list[list[int]] = []
    hits: list[int] = []
    for word in _TROUBLE:
        at = block.find(word)
        while at >= 0:
            hits.append(at)
            at = block.find(word, at + _BEFORE)
    for at in sorted(hits):
        start = block.rfind(b"\n", 0, max(0, at - _BEFORE)) + 1
        end = block.find(b"\n", min(len(block), at + _WINDOW)) + 1 or len(block)
        if spans and start <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([start, end])
    done, line = 0, number
    for start, end in spans:
        line += block.count(b"\n", done, start)
        yield line, block[start:end]
        done = start


class _Servers:
    """Tells a restart from another server that writes into the same compose or pm2 log."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def restarts(self, line: bytes) -> bool:
        """Whether a start's line begins anew what was read so far."""
        match = _CARRIER.match(line)
        name = match[1] if match else b""
        again = not match or not self._seen or name in self._seen
        self._seen = {name} if again else self._seen | {name}
        return again


_CARRIER = re.compile(rb"(?:\x1b\[[0-9;]*m)*((?:\d+\|)?[A-Za-z][\w./-]*) *\|")


def extract(data: bytes | Iterable[bytes]) -> Extract:
    """Read a whole log once; see the module's text."""
    current, starts, servers = _Start(1), 0, _Servers()
    previous: list[tuple[int, bytes]] = []
    raised: Counter[bytes] = Counter()
    for block in _blocks(data):
        at = 0
        for cut in sorted(_line_starts(block)):
            if not servers.restarts(block[cut : cut + 120]):
                continue
            if cut > at:
                current.add(block[at:cut])
            if starts or current.head:
                raised.update(current.raised())
                previous = _last_part(current)
            current, starts = _Start(current.line), starts + 1
            at = cut
        if at < len(block):
            current.add(block[at:])
    return Extract(current.pieces(), _lines(previous), starts, raised)


def _last_part(start: _Start) -> list[tuple[int, bytes]]:
    """The last blocks of a start that ended, small enough to keep."""
    kept: list[tuple[int, bytes]] = []
    size = 0
    for number, block in reversed([*start.head, *start.tail]):
        if size >= _PREVIOUS:
            break
        kept.append((number, block))
        size += len(block)
    return kept[::-1]


def _lines(blocks: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    start = _Start(1)
    start.head = blocks
    return start.pieces()


def _line_starts(block: bytes) -> Iterator[int]:
    """Offsets of the lines that announce a start."""
    for word in STARTS:
        at = block.find(word)
        while at >= 0:
            yield block.rfind(b"\n", 0, at) + 1
            at = block.find(word, at + len(word))
