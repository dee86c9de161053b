"""The sign that stands behind a failure and outranks the exceptions that follow from it.

A GPU that stopped, a device assert, a driver that cannot start, a process asleep in the kernel or
alive past its server, a death by signal, a CUDA error printed by native code, a watchdog.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from console.diagnosis.evidence import Evidence, Incident

_CUDA_WORDS = re.compile(r"CUDA|device-side|NCCL|cuda|Gloo|gloo")
_HARDWARE_WORDS = re.compile(r"ECC|uncorrectable|fallen off the bus|GPU is lost")
_UNSUPPORTED = re.compile(r"not supported|failed to be inspected|has no (?:SGlang|vLLM)")
_INIT_IS_SERVER = re.compile(r"^ *(?:\S+ +)?1 +0 .*(?:sglang|vllm|python)", re.MULTILINE)
_ENDED = re.compile(
    r"\bkill\b|[Kk]illed|Terminated|Shutting down|SIGTERM|docker (?:stop|rm|ps)"
    r"|pm2 (?:stop|delete|kill)|systemctl stop|\^C"
)
_ARCH = re.compile(r"\['?(\w+)")


def _before(incident: Incident, sign: Incident) -> bool:
    return incident.number < sign.number


def _preceded(sign: Incident, causes: list[Incident], *, cuda: bool) -> bool:
    """Whether a traceback came before the sign; ``cuda`` False: CUDA's echoes don't count."""
    return any(
        _before(cause, sign) and cause.trace and (cuda or not _CUDA_WORDS.search(cause.whole))
        for cause in causes
    )


def _told(signs: list[Incident], limit: int) -> str:
    """The lines of several signs as one message, each once."""
    return "\n".join(dict.fromkeys(sign.message for sign in signs[:limit]))


def _hardware(evidence: Evidence, causes: list[Incident]) -> Incident | None:
    signs = evidence.of("hardware")
    named = any(_HARDWARE_WORDS.search(incident.message) for incident in evidence.raised)
    if not signs or named or _preceded(signs[0], causes, cuda=False):
        return None
    first = signs[0]
    more = [
        evidence.all.lines[index].text
        for index in evidence.all.holding("NVRM:", 16)
        if evidence.all.lines[index].number > first.number
    ]
    return replace(first, message="\n".join([first.message, *more[:3]]))


def _asserted(evidence: Evidence, causes: list[Incident]) -> Incident | None:
    """A device assert, with rank and frames of the Python exception that followed it."""
    signs = evidence.of("assert")
    if not signs or _preceded(signs[0], causes, cuda=False):
        return None
    sign = signs[0]
    told = [i for i in evidence.raised if i.trace and "device-side assert" in i.message]
    if not told:
        return sign
    first = min(told, key=lambda i: i.trace.start if i.trace else i.number)
    return replace(sign, rank=sign.rank or first.rank, frames=first.frames)


def _driver(evidence: Evidence, causes: list[Incident]) -> Incident | None:
    signs = evidence.of("nvml")
    if not signs or _preceded(signs[0], causes, cuda=True):
        return None
    return replace(signs[0], message=_told(signs, 4))


def _asleep(evidence: Evidence, causes: list[Incident]) -> Incident | None:
    signs = evidence.of("dstate")
    if not signs or evidence.of("hardware") or _preceded(signs[0], causes, cuda=True):
        return None
    return replace(signs[0], message=_told(signs, 4))


def _orphan(evidence: Evidence, causes: list[Incident]) -> Incident | None:
    """A survivor: surely one under pid 1 or one the supervisor names, else only in a transcript."""
    orphans = evidence.of("orphan")
    if not orphans:
        return None
    text = evidence.all.text
    if not _ENDED.search(text):  # a server under pid 1 is a survivor only of what was ended
        orphans = [o for o in orphans if o.sign != "orphan-server-row"]
    if not orphans:
        return None
    sure = [o for o in orphans if o.sign.startswith(("orphan-ppid-1", "orphan-unit"))]
    lines = evidence.all.lines
    server = any(line.fresh or line.level for line in lines)
    transcript = any(line.text.startswith(("$ ", "# ", "root@")) for line in lines)
    if _INIT_IS_SERVER.search(evidence.all.text):  # a container's server is the parent of all
        return None
    ended = orphans[0].number > max(
        (line.number for line in lines if line.fresh or line.level), default=0
    ) and _ENDED.search(evidence.all.text)
    survived = "(deleted)" in evidence.all.text or not server or ended
    raised = any(cause.trace for cause in causes)
    if not sure and not (transcript and survived and not raised):
        return None
    first = (sure or orphans)[0]
    return replace(first, message=_told([first, *orphans], 9))


_ASKED = ("eceived sigquit", "SIGQUIT received", "SIGTERM received", "Gracefully exiting")
_STOPPED = ("timed out. Killing", "with signal SIGKILL")  # systemd, of a unit that did not stop


def _own_kill(evidence: Evidence, death: Incident) -> bool:
    """Whether the end of the tree was asked for before the SIGKILL, by an error or by SIGTERM."""
    rest = evidence.rest
    asked = [index for words in (*_ASKED, *_STOPPED) for index in rest.holding(words, 1)]
    return any(rest.lines[index].number < death.number for index in asked)


def _death(evidence: Evidence, causes: list[Incident]) -> Incident | None:
    """A process that died by a signal of its own, with every line that reports it."""
    deaths = evidence.of("death")
    if not deaths:
        return None
    first = deaths[0]
    by_kernel = any("oom" in death.sign for death in deaths)
    reports = {id(death.trace) for death in deaths if death.trace}
    earlier = [
        cause
        for cause in causes
        if _before(cause, first) and cause.sign != "terminate" and id(cause.trace) not in reports
    ]
    if earlier:
        return None
    plain = first.type == "SIGKILL" and not by_kernel and first.trace is None
    if plain and _own_kill(evidence, first):
        return None
    chosen = next((death for death in deaths if death.trace), first)
    same = [chosen, *(death for death in deaths if death.type == chosen.type)]
    texts = dict.fromkeys(d.trace.text if d.trace and d.trace.text else d.message for d in same)
    rank = next((death.rank for death in same if death.rank), None)
    return replace(chosen, message="\n".join(list(texts)[:6]), rank=rank)


def _native(evidence: Evidence, causes: list[Incident]) -> Incident | None:
    """A CUDA error of native code or a watchdog, unless an exception came before it."""
    for kind in ("cuda", "watchdog"):
        for sign in evidence.of(kind)[:1]:
            if not any(_before(c, sign) for c in causes if c.sign != "group-watchdog"):
                return sign
    return None


_ORDER: tuple[Callable[[Evidence, list[Incident]], Incident | None], ...] = (
    *(_hardware, _asserted, _driver, _asleep, _orphan, _death, _native),
)


def behind(evidence: Evidence, causes: list[Incident]) -> Incident | None:
    """The sign that stands behind the failure, or ``None`` where an exception is the root."""
    for look in _ORDER:
        if found := look(evidence, causes):
            return found
    return None


def swallowed_import(evidence: Evidence, root: Incident) -> Incident | None:
    """The ignored import error that made an architecture "not supported", if there is one."""
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
