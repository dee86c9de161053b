"""The words for states: what is wrong, why, and how urgent. Pure; upper case means "needs you".

Everything that came from a host goes through :func:`safe` here, once, before it is drawn.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from console.model import (
    Diagnosis,
    Health,
    HostState,
    HostView,
    NodeState,
    Phase,
    ServerState,
    Zombie,
    ZombieKind,
)
from console.text import clean, mask
from widgets.bars import age, counted, duration, mib, number

STALE_AFTER_S = 5.0
"""Values older than this are drawn grey even where the host calls itself ok."""


@lru_cache(maxsize=4096)
def safe(text: str) -> str:
    """Text of a host made inert, on one line, without secrets."""
    return mask(clean(text, limit=4096))


@dataclass(frozen=True, slots=True)
class Word:
    """A state in words. ``severity``: 0 needs you now, 1 look, 2 busy, 3 well, 4 off."""

    text: str
    role: str
    severity: int


_HOST_WORDS = {
    HostState.UNREACHABLE: Word("UNREACHABLE", "bad", 0),
    HostState.AUTH_FAILED: Word("AUTH FAILED", "bad", 0),
    HostState.NO_AGENT: Word("NO AGENT", "bad", 0),
    HostState.STALE: Word("STALE", "warn", 1),
    HostState.CONNECTING: Word("connecting", "dim", 2),
}

SHOWN_ONLY = {ZombieKind.FOREIGN, ZombieKind.LEFTOVER, ZombieKind.DEFUNCT}
"""Kinds that alone do not make a host need the operator."""

UNKNOWN = "?"
"""In the word of a state that nobody can tell."""

_STARTING = {
    Phase.SPAWN, Phase.ARGS, Phase.DIST_INIT, Phase.LOAD_TARGET, Phase.KV_TARGET, Phase.AUTOTUNE,
    Phase.GRAPH_TARGET, Phase.LOAD_DRAFT, Phase.KV_DRAFT, Phase.GRAPH_DRAFT, Phase.SCHEDULER_READY,
    Phase.WARMUP,
}  # fmt: skip


def host_word(view: HostView) -> Word:
    """The state of a host itself."""
    return _HOST_WORDS.get(view.state, Word("ok", "ok", 3))


def last_known(view: HostView, seen_s: float | None) -> str:
    """From when the values are: ``last known 14:07:31, 15m ago``; with the day when that is old."""
    if view.seen_at is None or seen_s is None:
        return "never seen"
    form = "%H:%M:%S" if seen_s < 43_200 else "%d %b %H:%M"
    when = time.strftime(form, time.localtime(view.seen_at))
    return f"last known {when}, {age(seen_s)} ago"


def zombies_of(view: HostView, server: str) -> tuple[Zombie, ...]:
    """The zombies that belong to a server: by run id, or by the pid that it is known under."""
    runs = {run.run_id for run in view.runs if run.server == server}
    state = next((s for s in view.servers if s.name == server), None)
    pid = state.pid if state else None
    return tuple(
        z for z in view.zombies if (z.run_id in runs) or (pid is not None and z.pid == pid)
    )


def loose_zombies(view: HostView) -> tuple[Zombie, ...]:
    """The zombies of no known server, without other people's work."""
    owned = {z.id for s in view.servers for z in zombies_of(view, s.name)}
    return tuple(z for z in view.zombies if z.id not in owned and z.kind is not ZombieKind.FOREIGN)


def loose_word(loose: Sequence[Zombie]) -> Word:
    """The state of a row of loose zombies: the worst of them, else how many lie around."""
    acute = [z for z in loose if z.kind not in SHOWN_ONLY]
    if not acute:
        return Word(remains(loose), "warn", 4)
    worst = max(acute, key=lambda zombie: zombie.score)
    return Word(kind_word(worst.kind), "bad", 0 if worst.killable else 1)


def remains(zombies: Iterable[Zombie]) -> str:
    """How many leftovers and defunct processes: ``2 leftovers, 1 defunct``; empty without any."""
    kinds = [zombie.kind for zombie in zombies]
    left, defunct = kinds.count(ZombieKind.LEFTOVER), kinds.count(ZombieKind.DEFUNCT)
    parts = [counted(left, "leftover")] * bool(left) + [f"{defunct} defunct"] * bool(defunct)
    return ", ".join(parts)


def kind_word(kind: ZombieKind) -> str:
    """A zombie kind as a state: ``NEVER READY``."""
    return kind.value.replace("-", " ").upper()


def server_word(view: HostView, server: ServerState) -> Word:
    """The state of a server, the worst first."""
    if view.state in _HOST_WORDS and view.state is not HostState.STALE:
        return _HOST_WORDS[view.state]
    found = [z for z in zombies_of(view, server.name) if z.kind not in SHOWN_ONLY]
    if found:
        worst = max(found, key=lambda z: z.score)
        return Word(kind_word(worst.kind), "bad", 0)
    if server.phase is Phase.FAILED:
        return Word("FAILED", "bad", 0)
    if server.lacking:
        return _lacking_word(server.lacking)
    if view.state is HostState.OK and view.cut_off(server.name):
        return Word("UNFINISHED", "bad", 0)
    if server.phase is Phase.READY:
        return _ready_word(server)
    if server.phase in _STARTING and server.stalled:
        return Word(f"STALLED {server.phase.value}", "bad", 0)
    if server.phase in _STARTING:
        return Word(f"{server.phase.value}{_progress(server)}", "accent", 2)
    if server.phase is Phase.DRAINING:
        return Word("draining", "warn", 2)
    if view.state is HostState.STALE:
        return _HOST_WORDS[HostState.STALE]
    return Word("stopped", "dim", 4)


def _lacking_word(nodes: Sequence[NodeState]) -> Word:
    """What the first node lacks; one whose host is not reached need not lack anything."""
    known = [node for node in nodes if not (node.lacks or "").startswith("is not known")]
    if not known:
        return Word(f"rank {nodes[0].rank} ?", "warn", 1)
    what = (known[0].lacks or "").removeprefix("is ").removeprefix("has ").partition(",")[0]
    return Word(f"RANK {known[0].rank} {safe(what).upper()}", "bad", 0)


def _ready_word(server: ServerState) -> Word:
    if server.rank:
        return Word(f"rank {server.rank}", "ok", 3)  # its stand-in says nothing of the server
    if server.health is Health.TIMEOUT:
        return Word("NOT ANSWERING", "bad", 0)
    if server.health is Health.REFUSED:
        return Word("PORT REFUSED", "bad", 0)
    if server.health is Health.UNAVAILABLE:
        return Word("UNHEALTHY 503", "bad", 1)
    if server.health in (Health.UNKNOWN, Health.NONE):
        return Word("ready ?", "warn", 2)
    accept = f" {server.accept_length:.1f}⇥" if server.accept_length is not None else ""
    return Word(f"ready{accept}", "ok", 3)


def _progress(server: ServerState) -> str:
    span = server.phases[-1] if server.phases else None
    if span is None or span.done is None or not span.total:
        return ""
    return f" {span.done}/{span.total}"


def usual_s(view: HostView, server: str, phase: str) -> float | None:
    """How long a phase usually takes for this server on this host: the median of its runs.

    With the phase ``ready`` the whole start is meant. ``None`` without an earlier run.
    """
    known: list[float] = []
    for run in view.runs:
        spans = dict(run.phases)
        if run.server != server or not run.served:
            continue
        if phase == Phase.READY:
            known += [sum(spans.values())] if spans else []
        elif phase in spans:
            known.append(spans[phase])
    return median(known) if known else None


def diagnosis_lines(found: Diagnosis) -> list[tuple[str, str]]:
    """A diagnosis as (label, text): what was raised, where, what it means, the fix."""
    out: list[tuple[str, str]] = []
    if found.root:
        where = f"  {safe(found.root.file)}:{found.root.line}" if found.root.file else ""
        rank = f"  rank {safe(found.root.rank)}" if found.root.rank else ""
        out.append((safe(found.root.type), f"{safe(found.root.message) or '(no text)'}"))
        if where or rank:
            out.append(("at", (where + rank).strip()))
    else:
        out.append(("raised", "nothing; the log names no exception"))
    if found.explanation:
        out.append(("means", safe(found.explanation)))
    if found.fix:
        out.append(("fix", safe(found.fix)))
    if found.incidents > 1:
        out.append(("again", f"{found.incidents} times the same"))
    return out


def why(
    view: HostView, server: ServerState | None, now: float, *, serves: bool = True
) -> list[tuple[str, str]]:
    """Why a row is in its state, as (label, text), the strongest reason first.

    ``serves``: with how it serves, where that stands nowhere else.
    """
    out: list[tuple[str, str]] = []
    if view.error or view.state not in (HostState.OK, HostState.CONNECTING):
        last = last_known(view, view.age_s(now))
        out.append((host_word(view).text, f"{safe(view.error) or 'no reason given'} ({last})"))
    zombies = zombies_of(view, server.name) if server else loose_zombies(view)
    for zombie in zombies:
        out += zombie_lines(zombie)
    if server is None:
        return out
    if (cut := view.cut_off(server.name)) is not None:
        out.append(("UNFINISHED", safe(cut.detail)))
    out += [("NODE", safe(node.words)) for node in server.lacking]
    if server.note:
        out.append(("NOTE", safe(server.note)))
    if server.diagnosis and (server.phase is Phase.FAILED or zombies):
        out += diagnosis_lines(server.diagnosis)
    if server.phase is Phase.READY:
        out += [("serves", _serving(server))] if serves else []
    elif server.phase in _STARTING:
        if server.stalled:
            out.append(("STALLED", safe(server.stalled)))
        out.append((server.phase.value, _starting(view, server)))
    over = server.phase in (Phase.STOPPED, Phase.FAILED)  # then silence says nothing
    if server.log_silent_s is not None and server.log_silent_s >= 60 and not over:
        out.append(("log", f"silent for {duration(server.log_silent_s)}"))
    return out


def unlisted_lines(view: HostView, pid: int) -> list[tuple[str, str]]:
    """What is known of a server that hosts.yaml does not have, and how it becomes one."""
    processes = view.snapshot.processes if view.snapshot else ()
    found = next((process for process in processes if process.id.pid == pid), None)
    if found is None:
        return [("NOT LISTED", f"pid {pid} is gone")]
    ports = ", ".join(str(port) for port in found.listening)
    where = f", listens on {ports}" if ports else ""
    host = safe(view.host.name)
    return [
        ("NOT LISTED", f"a server of {safe(found.user)} that hosts.yaml does not have{where}"),
        ("command", safe(found.title)),
        ("yours", f":adopt {host} {pid} makes it a server of hosts.yaml"),
    ]


def zombie_lines(zombie: Zombie) -> list[tuple[str, str]]:
    """One zombie: its kind with each line of evidence, then why it may not be killed."""
    out = [
        (kind_word(zombie.kind) if at == 0 else "", safe(text))
        for at, text in enumerate(zombie.evidence or ("no evidence given",))
    ]
    if not zombie.killable:
        out.append(("not killed", safe(zombie.why_not or "no reason given")))
    return out


def _serving(server: ServerState) -> str:
    parts = [f"health {server.health.value} ({safe(server.vantage)})"]
    parts.append(f"{number(server.throughput_tok_s)} tok/s")
    parts.append(f"accept {number(server.accept_length, 2)}")
    parts.append(f"{number(server.running_requests)} running, "
                 f"{number(server.queued_requests)} queued")  # fmt: skip
    return " · ".join(parts)


def _starting(view: HostView, server: ServerState) -> str:
    span = server.phases[-1] if server.phases else None
    parts: list[str] = []
    if server.elapsed_s is not None:
        parts.append(f"{duration(server.elapsed_s)} so far")
    if span and span.done is not None and span.total:
        parts.append(f"{span.done}/{span.total}")
    usual = usual_s(view, server.name, server.phase)
    parts.append(f"usual {duration(usual)}" if usual is not None else "no earlier run")
    parts.append(f"health {server.health.value} ({safe(server.vantage)})")
    return " · ".join(parts)


def total_memory(zombies: Sequence[Zombie]) -> str:
    """What zombies hold together; unknown where any of it is."""
    amounts = [z.gpu_memory_mib if z.device == "cuda" else z.memory_mib for z in zombies]
    if any(amount is None for amount in amounts):
        return mib(None)
    return mib(sum(amount or 0.0 for amount in amounts))
