"""Which of the things found is the root, and how it is told.

A sign that stands behind a failure (a signal, an Xid, a device assert, ...) outranks the exceptions
that follow from it; among exceptions the first cause wins, and wrappers and victims count only
where nothing else is left.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from console.diagnosis.evidence import Evidence, Incident
from console.diagnosis.rules import Rules
from console.diagnosis.tracebacks import Frame, Trace

_BARE_KEY = re.compile(r"'?[\w./:-]*'?$")
_COMPILER = re.compile(
    r"fatal error:|\berror: |cannot find -l|undefined reference|nvcc fatal|ptxas|not found\b"
    r"|No such file or directory|Unsupported gpu|unsupported GNU"
)
_OWN_KILL = re.compile(r"sigquit|SIGQUIT", re.IGNORECASE)
_CUDA_WORDS = re.compile(r"CUDA|device-side|NCCL|cuda|Gloo|gloo")
_HARDWARE_WORDS = re.compile(r"ECC|uncorrectable|fallen off the bus|GPU is lost")
_UNSUPPORTED = re.compile(r"not supported|failed to be inspected|has no (?:SGlang|vLLM)")
_ARCH = re.compile(r"\['?(\w+)")
_NEARBY = 120.0  # seconds within which a mirrored failure of the same event is reported


@dataclass(slots=True)
class Verdict:
    """The chosen root with the incidents that only followed."""

    root: Incident | None
    followers: list[Incident] = field(default_factory=list)
    incomplete: bool = False


def _role(incident: Incident, rules: Rules) -> str:
    whole = incident.whole[:4000]
    for role in rules.roles:
        if role.pattern.search(whole):
            return role.role
    return "cause"


def _opens(first: Incident, later: Incident) -> bool:
    """Whether the later block of a chain says what the first leaves open."""
    if later.role in ("wrapper", "victim"):
        return False
    text = first.message.strip()
    if first.name in ("KeyError", "IndexError", "StopIteration", "Empty", "AttributeError"):
        return _BARE_KEY.match(text) is not None and len(later.message.split()) >= 3
    if first.name == "CalledProcessError":
        return bool(_COMPILER.search(later.message))
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
        t for t in evidence.traces
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


def _before(incident: Incident, sign: Incident) -> bool:
    return incident.number < sign.number


def _import_sign(evidence: Evidence, root: Incident) -> Incident | None:
    """The swallowed import that made an architecture "not supported", if there is one."""
    if not _UNSUPPORTED.search(root.message):
        return None
    arch = _ARCH.search(root.message)
    wanted = arch[1].lower() if arch else ""
    for sign in evidence.of("import"):
        module = re.search(r"models\.(\w+)", sign.message)
        stem = re.match(r"[a-z]+", module[1]) if module else None
        if stem and len(stem[0]) >= 3 and wanted.startswith(stem[0]):
            return sign
    return None


def _death(evidence: Evidence, causes: list[Incident]) -> Incident | None:
    """A process that died by a signal of its own, with every line that reports it."""
    deaths = evidence.of("death")
    if not deaths:
        return None
    first = deaths[0]
    kernel = [d for d in deaths if "oom" in d.sign]
    reports = {id(d.trace) for d in deaths if d.trace}
    earlier = [
        c for c in causes
        if id(c.trace) not in reports and c.trace is not None and _before(c, first)
    ]
    earlier += [c for c in causes if c.trace is None and _before(c, first) and c.sign != "terminate"]
    if earlier and not kernel:
        return None
    if earlier and kernel and not any(_before(d, earlier[0]) for d in deaths):
        return None
    quits = [i for i in evidence.rest.holding("igquit", 3)] + list(evidence.rest.holding("SIGQUIT", 3))
    if first.type == "SIGKILL" and not kernel and first.trace is None and quits:
        lines = evidence.rest.lines
        if any(lines[i].number < first.number for i in quits):
            return None
    chosen = next((d for d in deaths if d.trace), first)
    same = [d for d in deaths if d.type == chosen.type]
    root = Incident(**{name: getattr(chosen, name) for name in Incident.__slots__})
    texts: list[str] = []
    for death in [chosen, *same]:
        text = death.trace.text if death.trace and death.trace.text else death.message
        if text not in texts:
            texts.append(text)
    root.message = "\n".join(texts[:6])
    root.rank = root.rank or next((d.rank for d in same if d.rank), None)
    return root


def _orphan(evidence: Evidence) -> Incident | None:
    orphans = evidence.of("orphan")
    if not orphans:
        return None
    sure = [o for o in orphans if o.sign in ("orphan-ppid-1", "orphan-unit")]
    server = any(line.fresh or line.level for line in evidence.all.lines)
    transcript = any(line.text.startswith(("$ ", "# ", "root@")) for line in evidence.all.lines)
    deleted = "(deleted)" in evidence.all.text
    if not sure and not deleted and (server or not transcript):
        return None
    root = (sure or orphans)[0]
    texts = [root.message, *(o.message for o in orphans if o is not root)]
    root.message = "\n".join(dict.fromkeys(texts[:8]))
    return root


def _special(evidence: Evidence, causes: list[Incident]) -> Incident | None:
    """The sign that stands behind the failure, if one does."""
    own = [c for c in causes if not _CUDA_WORDS.search(c.whole)]
    hardware = evidence.of("hardware")
    if hardware and not any(_HARDWARE_WORDS.search(c.message) for c in evidence.raised):
        if not any(_before(c, hardware[0]) and c.trace for c in own):
            extra = [
                line.text for line in evidence.all.lines
                if "NVRM:" in line.text and line.number > hardware[0].number
            ]
            hardware[0].message = "\n".join([hardware[0].message, *extra[:3]])
            return hardware[0]
    if asserts := evidence.of("assert"):
        if not any(_before(c, asserts[0]) and c.trace for c in own):
            return _with_victim(asserts[0], evidence)
    for kind in ("nvml", "dstate"):
        if (signs := evidence.of(kind)) and not (kind == "dstate" and hardware):
            if not any(_before(c, signs[0]) and c.trace for c in causes):
                texts = [s.message for s in signs[:4]]
                signs[0].message = "\n".join(dict.fromkeys(texts))
                return signs[0]
    if orphan := _orphan(evidence):
        return orphan
    if death := _death(evidence, causes):
        return death
    for kind in ("cuda", "watchdog"):
        signs = evidence.of(kind)
        if signs and not any(_before(c, signs[0]) for c in causes if c.sign != "group-watchdog"):
            return signs[0]
    return None


def _with_victim(sign: Incident, evidence: Evidence) -> Incident:
    """A device assert with rank and frames of the Python exception that followed."""
    told = [i for i in evidence.raised if i.trace and "device-side assert" in i.message]
    if told:
        first = min(told, key=lambda i: i.trace.start if i.trace else i.number)
        sign.rank = sign.rank or first.rank
        sign.frames = first.frames
        sign.time = sign.time if sign.time is not None else first.time
    return sign


def choose(evidence: Evidence, rules: Rules) -> Verdict:
    """The root of a log, or none where nothing was raised."""
    for incident in evidence.raised:
        incident.role = _role(incident, rules)
    heads = _chain_roots(evidence.raised)
    causes = [i for i in heads if i.role == "cause"]
    weak = [i for i in heads if i.role == "weak"]
    wrappers = [i for i in heads if i.role == "wrapper"]
    victims = [i for i in heads if i.role == "victim"]
    root = _special(evidence, causes)
    if root is None and causes:
        root = _import_sign(evidence, causes[0]) or causes[0]
    if root is None:
        root = next(iter(weak), None)
    if root is None and not victims:
        root = next((i for i in evidence.of("nccl")), None) if not wrappers else None
    if root is None:
        root = next(iter(victims), None) or next(iter(evidence.of("nccl")), None)
    if root is None:
        root = next(iter(evidence.of("abort")), None) or _last_wrapper(wrappers)
    incomplete = any(not t.type for t in evidence.traces) or any(t.headless for t in evidence.traces)
    if root is None:
        return Verdict(None, [], incomplete)
    _complete(evidence, root)
    followers = [i for i in evidence.raised if i is not root and i.role != "noise"]
    return Verdict(root, followers, incomplete and (root.trace is None or root.trace.headless))


def _last_wrapper(wrappers: list[Incident]) -> Incident | None:
    return wrappers[0] if wrappers else None


def _complete(evidence: Evidence, root: Incident) -> None:
    """Rank, place and message of the root as the log as a whole gives them."""
    _earliest_header(evidence, root)
    if root.name == "CalledProcessError" or root.sign == "ignored-import":
        if line := _compiler_line(evidence, root.number):
            root.message = f"{line}\n{root.message}"
    if root.role == "victim":
        if peers := evidence.of("peer"):
            root.message = "\n".join(dict.fromkeys([root.message, peers[0].message])).strip()
            root.rank = root.rank or peers[0].rank


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
    return "\n".join(f"{frame.file}:{frame.func}" for frame in frames[-40:])


def chain_frames(incident: Incident) -> list[Frame]:
    """All frames of an incident, those of the block that a wrapper added included."""
    trace: Trace | None = incident.trace
    return list(trace.frames) if trace else list(incident.frames)
