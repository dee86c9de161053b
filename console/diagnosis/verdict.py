"""Which of the things found is the root, and how it is told.

A sign that stands behind a failure (a signal, an Xid, a device assert, ...) outranks the exceptions
that follow from it; among exceptions the first cause wins, and wrappers and victims count only
where nothing else is left.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from console.diagnosis.behind import behind, swallowed_import
from console.diagnosis.evidence import Evidence, Incident
from console.diagnosis.rules import Rules
from console.diagnosis.tracebacks import Frame, Trace

_BARE_KEY = re.compile(r"'?[\w./:-]*'?$")
_COMPILER = re.compile(
    r"fatal error:|\berror: |cannot find -l|undefined reference|nvcc fatal|ptxas|not found\b"
    r"|No such file or directory|Unsupported gpu|unsupported GNU|died due to signal|nvcc error"
)

# The message ends where the traceback of another process is quoted.
_QUOTES = re.compile(r"(?:[Ss]ubprocess|[Cc]hild|[Ww]orker|[Rr]emote)\b[^\n]*:\s*$")


@dataclass(slots=True)
class Verdict:
    """The chosen root with the incidents that only followed."""

    root: Incident | None
    followers: list[Incident] = field(default_factory=list)
    incomplete: bool = False


_HANDLED = re.compile(
    r"Exception in ASGI application|never retrieved|\(_report_usage_worker\)"
    r"|[Ee]rror (?:in |while )?handling request"
)
_ENDS = re.compile(r"hit an exception|EngineCore|WorkerProc|Initialization failed")
_IGNORED = re.compile(r"Exception ignored (?:in|while|on)|Error in atexit")
# Of one client or one request: the server logs it and goes on.
_CLIENT = ("CancelledError", "ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError")
_OF_REQUEST = re.compile(
    r"Error in (?:preprocessing prompt inputs|extracting tool call|chat completion|generate)"
    r"|Error trying to handle streaming tool call|Invalid HTTP request received"
    r"|[Ff]ailed to (?:fetch|load|parse) (?:image|media)"
)
_ANSWERED = re.compile(r'HTTP/1\.[01]"? [24]\d\d\b')
_STOPPED = ("Application shutdown complete", "Finished server process", "Shutting down")


def _lived(evidence: Evidence) -> int:
    """The last line at which the server still answered requests, 0 where it never did."""
    text, at = evidence.all.text, len(evidence.all.text)
    while (at := text.rfind("HTTP/1.", 0, at)) >= 0:
        if _ANSWERED.match(text, at):
            return evidence.all.lines[evidence.all.index_at(at)].number
    return 0


def _stopped(evidence: Evidence) -> int:
    """The last line that tells of an orderly stop, 0 where there was none."""
    lines = evidence.all.lines
    return max((lines[i].number for s in _STOPPED for i in evidence.all.holding(s)), default=0)


def _outlived(incident: Incident, lived: int, stopped: int) -> bool:
    """Whether it concerned one client or request only, and the server went on or was stopping."""
    header = incident.trace.header if incident.trace else ""
    if _ENDS.search(header) or incident.rank:
        return False
    if incident.name == "CancelledError" and stopped:
        return True
    if incident.name in _CLIENT:
        return incident.number < max(lived, stopped)
    about = incident.role == "request" or _OF_REQUEST.search(header)
    return bool(about) and incident.number < lived


def _role(
    incident: Incident,
    rules: Rules,
    *,
    interrupted: bool = False,
    known: dict[str, str] | None = None,
) -> str:
    """The role of an incident; ``known``: what its words meant before, ranks repeat each other."""
    header = incident.trace.header if incident.trace else ""
    if _IGNORED.search(header) or (interrupted and incident.name == "CancelledError"):
        return "noise"
    whole = incident.whole[:4000]
    known = {} if known is None else known
    if (found := known.get(whole, "")) == "":
        found = next((role.role for role in rules.roles if role.pattern.search(whole)), "cause")
        known[whole] = found
    if found == "cause" and _HANDLED.search(header):
        return "weak"
    return found


def _opens(first: Incident, later: Incident) -> bool:
    """Whether the later block of a chain says what the first leaves open."""
    if later.role in ("wrapper", "victim"):
        return False
    text = first.message.strip()
    if first.name in ("KeyError", "IndexError", "StopIteration", "Empty", "AttributeError"):
        return _BARE_KEY.match(text) is not None and len(later.message.split()) >= 3
    if first.name == "CalledProcessError":
        return bool(_COMPILER.search(later.message) or _QUOTES.search(later.message))
    return not text and first.name != "AssertionError" and len(later.message.split()) >= 3


def _chain_roots(raised: list[Incident]) -> list[Incident]:
    """Of every chain of blocks the one that tells the cause; single blocks stay."""
    by_trace = {id(i.trace): i for i in raised if i.trace is not None}
    followers: set[int] = set()
    for incident in raised:
        earlier = incident.trace.earlier if incident.trace else None
        first = by_trace.get(id(earlier)) if earlier is not None else None
        if first is None:
            continue
        if first.role in ("wrapper", "victim", "noise") and incident.role == "cause":
            continue
        if _opens(first, incident):
            followers.add(id(first))
        else:
            followers.add(id(incident))
    return [i for i in raised if id(i) not in followers]


def _quoted(evidence: Evidence, root: Incident) -> Incident:
    """The exception of another process whose traceback the root's message only quotes."""
    if root.trace is None or not _QUOTES.search(root.message):
        return root
    end = root.trace.end + len(root.trace.message)
    later = (i for i in evidence.raised if i.trace and root.number < i.trace.start <= end + 1)
    quoted = next(later, root)
    quoted.rank = quoted.rank or root.rank
    return quoted


def _key(incident: Incident) -> tuple[str, str]:
    return incident.name, re.sub(r"\d+", "#", incident.message.partition("\n")[0])[:200]


def _same(evidence: Evidence, root: Incident) -> list[Incident]:
    return [i for i in evidence.raised if i.trace is not None and _key(i) == _key(root)]


def _earliest_header(evidence: Evidence, root: Incident) -> None:
    """Rank and place of a root that several ranks printed: first header, frame by majority."""
    same = _same(evidence, root)
    if root.trace is None:
        return
    place = (root.file, root.line)
    torn = [
        t
        for t in evidence.traces
        if not t.type and t.frames and (t.frames[-1].file, t.frames[-1].line) == place
    ]
    first = min([root.trace, *torn, *(i.trace for i in same if i.trace)], key=lambda t: t.start)
    root.rank = first.rank or root.rank
    whole = [i.trace for i in same if i.trace and i.trace.clean and i.trace.frames]
    if not root.trace.clean and whole:
        votes: Counter[tuple[str, int]] = Counter(
            (t.frames[-1].file, t.frames[-1].line) for t in whole
        )
        root.file, root.line = votes.most_common(1)[0][0]


def _ready(evidence: Evidence) -> int:
    """The line at which the server was ready: what was raised before it did not stop it."""
    at = [evidence.all.lines[i].number for i in evidence.all.holding("fired up and ready to roll")]
    return at[-1] if at else 0


def _fatal(incident: Incident) -> bool:
    """Whether its own header says that a process of the engine ended by it."""
    return incident.trace is None or bool(_ENDS.search(incident.trace.header))


def _warned(
    evidence: Evidence, rules: Rules, ready: int, victims: list[Incident]
) -> Incident | None:
    """Where no cause raised: the NCCL warning that explains the victims, else the first victim."""
    warned = [sign for sign in evidence.of("nccl") if sign.number > ready]
    for sign in warned:
        if _role(sign, rules) == "cause" and not any(v.number < sign.number for v in victims):
            return sign
    return next(iter([*victims, *warned]), None)


_LAUNCHED = re.compile(r"py(?:thon|py)|sglang|vllm|launch_server|\bexec\b")


def _never_began(evidence: Evidence) -> Incident | None:
    """What ended a start before its program ran: the log's last word, of no server's helper.

    Behind a server's lines it counts only where it names what a launch runs: servers call tools
    (``sh: lspci: not found``) and go on without them.
    """
    spoke = [line.number for line in evidence.all.lines if line.fresh or line.level]
    for sign in evidence.of("begin"):
        if not spoke or (sign.number >= spoke[-1] and _LAUNCHED.search(sign.message)):
            return sign
    return None


def choose(evidence: Evidence, rules: Rules) -> Verdict:
    """The root of a log, or none where nothing was raised."""
    interrupted = any(True for _ in evidence.all.holding("KeyboardInterrupt", 1))
    known: dict[str, str] = {}
    for incident in evidence.raised:
        incident.role = _role(incident, rules, interrupted=interrupted, known=known)
    lived, stopped = _lived(evidence), _stopped(evidence)
    for incident in evidence.raised:
        if _outlived(incident, lived, stopped):
            incident.role = "noise"
        elif incident.role == "request":
            handled = incident.trace and _HANDLED.search(incident.trace.header)
            incident.role = "weak" if handled else "cause"
    ready = _ready(evidence)
    heads = [i for i in _chain_roots(evidence.raised) if i.number > ready or _fatal(i)]
    causes = [i for i in heads if i.role == "cause"]
    weak = [i for i in heads if i.role == "weak"]
    wrappers = [i for i in heads if i.role == "wrapper"]
    victims = [i for i in heads if i.role == "victim"]
    root = behind(evidence, causes)
    if root is None and causes:
        root = swallowed_import(evidence, causes[0]) or _quoted(evidence, causes[0])
    if root is None:
        root = next(iter(weak), None)
    if root is None:
        root = _warned(evidence, rules, ready, victims)
    if root is None:
        root = next(iter([*evidence.of("abort"), *wrappers]), None) or _never_began(evidence)
    incomplete = any(not t.type for t in evidence.traces) or any(
        t.headless for t in evidence.traces
    )
    if root is None:
        return Verdict(None, [], incomplete)
    _complete(evidence, root)
    followers = [i for i in evidence.raised if i is not root and i.role != "noise"]
    return Verdict(root, followers, _cut(root, incomplete))


def _cut(root: Incident, incomplete: bool) -> bool:
    """Whether the root itself is only partly in the log."""
    trace = root.trace
    if trace is None:
        return incomplete
    return trace.headless or (not trace.clean and not trace.message)


def _complete(evidence: Evidence, root: Incident) -> None:
    """Rank, place and message of the root as the log as a whole gives them."""
    _earliest_header(evidence, root)
    built = root.name == "CalledProcessError" or root.sign == "ignored-import"
    if built and (line := _compiler_line(evidence, root.number)):
        root.message = f"{line}\n{root.message}"
    if root.kind == "abort":
        root.message = "\n".join([*_above(evidence, root.number), root.message])
    if root.role == "victim" and (peers := evidence.of("peer")):
        root.message = "\n".join(dict.fromkeys([root.message, peers[0].message])).strip()
        root.rank = root.rank or peers[0].rank


def _above(evidence: Evidence, number: int) -> list[str]:
    """What native code printed right before it aborted: lines without any logger's prefix."""
    lines = evidence.rest.lines
    at = next((i for i, line in enumerate(lines) if line.number >= number), len(lines))
    said: list[str] = []
    for line in reversed(lines[max(0, at - 3) : at]):
        if line.fresh or line.level or not line.text.strip():
            break
        said.insert(0, line.text.strip())
    return said


def _compiler_line(evidence: Evidence, number: int) -> str:
    """What the compiler or linker itself said, printed before its exception."""
    lines = evidence.rest.lines
    last = next((i for i, line in enumerate(lines) if line.number >= number), len(lines))
    for line in reversed(lines[max(0, last - 60) : last]):
        if not line.fresh and _COMPILER.search(line.text) and "ld returned" not in line.text:
            return line.text.strip()
    return ""


def frame_names(frames: list[Frame]) -> str:
    """Frames as ``file:function`` lines, for the rules' ``frames`` patterns."""
    return "\n".join(f"{frame.file[-200:]}:{frame.func[:100]}" for frame in frames[-40:])


def chain_frames(incident: Incident) -> list[Frame]:
    """All frames of an incident, those of the block that a wrapper added included."""
    trace: Trace | None = incident.trace
    return list(trace.frames) if trace else list(incident.frames)
