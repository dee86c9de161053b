"""The fleet as rows: one per server, one per host without servers, one per set of loose zombies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from console.model import Health, HostState, HostView, Phase, Plan, Server, ServerState, Zombie
from widgets.bars import age, bar, column, counted, number, percent, sparkline
from widgets.holders import free_count, use_of
from widgets.paint import Line, fit, line
from widgets.table import Column
from widgets.words import (
    STALE_AFTER_S,
    UNKNOWN,
    Word,
    host_word,
    loose_word,
    loose_zombies,
    remains,
    safe,
    server_word,
    zombies_of,
)

HISTORY = 12
"""Cells of the history of utilisation: fifty seconds each."""


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One row. ``server`` is ``None`` for a bare host; ``loose`` are zombies of no server.

    ``unlisted`` is the pid of a server that hosts.yaml does not have; ``doing`` what the console
    does there now.
    """

    view: HostView
    server: ServerState | None
    word: Word
    loose: tuple[Zombie, ...] = ()
    seen_s: float | None = None
    unlisted: int | None = None
    doing: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the row."""
        if self.unlisted is not None:
            return self.view.host.name, f"?{self.unlisted}"
        return self.view.host.name, self.server.name if self.server else "?" * bool(self.loose)

    @property
    def name(self) -> str:
        """What the row is about, beside its host."""
        if self.server is not None:
            return safe(self.server.name)
        if self.unlisted is not None:
            return f"pid {self.unlisted}"
        return f"{len(self.loose)} loose" if self.loose else "none"

    @property
    def state(self) -> str:
        """Its state in words: ``▶`` for what the console does there, ``*`` for a note below."""
        told = self.server is not None and (
            self.server.note or remains(zombies_of(self.view, self.server.name))
        )
        return f"{'▶ ' * bool(self.doing)}{self.word.text}{' *' * bool(told)}"

    @property
    def stale(self) -> bool:
        """Whether its values are old."""
        old = self.seen_s is None or self.seen_s > STALE_AFTER_S
        return old or self.view.state is not HostState.OK


def memory_share(view: HostView) -> float | None:
    """Device memory in use, 0 to 1; ``None`` when any part is unknown."""
    snapshot = view.snapshot
    if snapshot is None or snapshot.gpu_error:
        return None
    if snapshot.gpus:
        used = total = 0.0
        for gpu in snapshot.gpus:
            if gpu.memory_used_mib is None or not gpu.memory_total_mib:
                return None
            used += gpu.memory_used_mib
            total += gpu.memory_total_mib
        return used / total
    cpu = snapshot.cpu
    return cpu.memory_used_mib / cpu.memory_total_mib if cpu and cpu.memory_total_mib else None


def utilization(view: HostView) -> float | None:
    """Mean device utilisation, 0 to 1; ``None`` when any is unknown."""
    snapshot = view.snapshot
    if snapshot is None or snapshot.gpu_error:
        return None
    if snapshot.gpus:
        values = [gpu.utilization_pct for gpu in snapshot.gpus]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) / 100 if known and len(known) == len(values) else None
    if snapshot.cpu is None or snapshot.cpu.utilization_pct is None:
        return None
    return snapshot.cpu.utilization_pct / 100


def gpu_count(view: HostView) -> str:
    """Free GPUs of all, ``2/8``; ``cpu`` for a machine without, ``?`` where it is not known."""
    snapshot = view.snapshot
    if snapshot is None:
        return "?"
    if snapshot.gpus:
        return f"{number(free_count(view))}/{len(snapshot.gpus)}"
    return "?" if snapshot.gpu_error else "cpu"


def fleet_rows(
    views: Mapping[str, HostView],
    servers: Mapping[str, Server],
    now: float,
    plans: Iterable[Plan] = (),
) -> list[FleetRow]:
    """All rows, what needs the operator first; within one urgency in the order of hosts.yaml.

    ``plans`` are those that the console executes now.
    """
    rows: list[FleetRow] = []
    for name, view in views.items():
        seen = view.age_s(now)
        states = {state.name: state for state in view.servers}
        for server in servers.values():
            if server.host == name and server.name not in states:
                states[server.name] = ServerState(server.name, Phase.STOPPED, Health.UNKNOWN)
        known = {state.name for state in view.servers}
        mine = [
            FleetRow(
                view, state, _word(view, state, name in known or state.name in known), (), seen
            )
            for state in states.values()
        ]
        if loose := loose_zombies(view):
            mine.append(FleetRow(view, None, loose_word(loose), loose, seen))
        strange = Word("not listed", "warn", 3)
        mine += [FleetRow(view, None, strange, (), seen, pid) for pid in view.unlisted]
        rows += mine or [FleetRow(view, None, host_word(view), (), seen)]
    for plan in plans:
        rows = [replace(row, doing=plan.action) if _is_about(plan, row) else row for row in rows]
    rows.sort(key=lambda row: row.word.severity)
    return rows


def _is_about(plan: Plan, row: FleetRow) -> bool:
    """Whether a plan changes what a row shows; one of no server is about the whole host."""
    if plan.host != row.view.host.name:
        return False
    return plan.server is None or (row.server is not None and row.server.name == plan.server)


def _word(view: HostView, state: ServerState, known: bool) -> Word:
    if known or view.state is not HostState.OK:
        return server_word(view, state)
    return Word("?", "dim", 2)


def columns(width: int, *, wide: bool) -> list[Column]:
    """The columns that a width has room for; 79 cells is the least. ``wide``: a bar per GPU."""
    spare = max(0, width - 79)
    most = 2 if wide and width < 140 else 12
    host = 10 + min(6, most, spare // 4)
    server = 12 + min(most, spare // 3)
    state = 13 + min(8, most, spare // 5)
    memory = 19
    seen = _seen_width(width)
    fixed = 1 + (host + 1) + (5 + 1) + (5 + 1) + (server + 1) + (state + 1) + (seen + 1)
    if wide:
        memory = max(memory, min(60, width - fixed - 1 - HISTORY - 1))
    if width < 80:
        memory = max(8, width - fixed + 6 - 1)
    found = [
        Column("HOST", host),
        Column("FREE", 5, right=True),
        Column("MEMORY PER GPU" if wide else "MEMORY", memory),
        Column("UTIL", 5, right=True),
        Column("10 MIN", HISTORY),
        Column("SERVER", server),
        Column("STATE", state),
        Column("SEEN", seen, right=True),
    ]
    left_out = {"10 MIN"} if not wide else set()
    left_out |= {"UTIL"} if width < 80 else set()
    return [column for column in found if column.title not in left_out]


def cells(
    row: FleetRow, width: int, *, wide: bool, history: Sequence[float | None] = ()
) -> list[Line]:
    """The cells of a row for the columns of that width; ``history`` is its utilisation."""
    plain = "dim" if row.stale else "plain"
    shown = columns(width, wide=wide)
    memory = next(c.width for c in shown if c.title.startswith("MEMORY"))
    made = {
        "HOST": line((safe(row.view.host.name), "dim" if row.stale else "strong")),
        "FREE": line((gpu_count(row.view), plain)),
        "MEMORY": _memory(row, memory, per_gpu=wide),
        "UTIL": line((percent(utilization(row.view)), plain)),
        "10 MIN": line((sparkline(history, HISTORY, top=1.0), "dim" if row.stale else "accent")),
        "SERVER": line((row.name, plain)),
        "STATE": line((row.state, row.word.role)),
        "SEEN": line((_seen(row, width), "warn" if row.stale else "dim")),
    }
    return [made["MEMORY" if c.title.startswith("MEMORY") else c.title] for c in shown]


def _seen(row: FleetRow, width: int) -> str:
    """How long ago the values were; ``!`` when that is too long, for who sees no colour."""
    if row.seen_s is None:
        return "?" if width < 80 else "never"
    text = age(row.seen_s)
    if width >= 80:
        hours = text.partition("h")[0] + "h"
        text = f"{text if len(text) < 5 else hours} ago"
    return f"{text}!" if row.stale and len(text) < _seen_width(width) else text


def _seen_width(width: int) -> int:
    return 5 if width < 80 else 8


def _memory(row: FleetRow, width: int, *, per_gpu: bool) -> Line:
    share = memory_share(row.view)
    role = "dim" if row.stale else "bar"
    text = fit(percent(share), 5, right=True)
    room = width - 6
    gpus = row.view.snapshot.gpus if row.view.snapshot else ()
    if per_gpu and len(gpus) > 1 and share is not None:
        shares = [(g.memory_used_mib or 0.0) / (g.memory_total_mib or 1.0) for g in gpus]
        each = room // len(gpus) - 1
        if each >= 2:
            bars = " ".join(bar(value, min(each, 6)) for value in shares)
        else:
            bars = "".join(column(value) for value in shares)
        return line((fit(bars, room), role), (" " + text, "dim" if row.stale else "plain"))
    return line((bar(share, room), role), (" " + text, "dim" if row.stale else "plain"))


def headline(views: Mapping[str, HostView], rows: Sequence[FleetRow]) -> str:
    """``3 hosts · 2/17 GPUs free · 2 need you``; "all well" only of what is wholly known."""
    hosts = views.values()
    unseen = [view for view in hosts if view.snapshot is None]
    connecting = [view for view in unseen if view.state is HostState.CONNECTING]
    if len(connecting) == len(views) > 0:
        return f"connecting to {counted(len(connecting), 'host')}…"
    gpus = [gpu for view in hosts if view.snapshot for gpu in view.snapshot.gpus]
    free = sum(use_of(gpu) == "free" for gpu in gpus)
    blind = [view for view in hosts if view.snapshot and view.snapshot.gpu_error]
    nothing = "? GPUs" if unseen or blind else "no GPU"
    counts = [
        counted(len(views), "host"),
        f"{free}/{counted(len(gpus), 'GPU')} free" if gpus else nothing,
    ]
    need = sum(row.word.severity == 0 for row in rows)
    seen = [row for row in rows if row.view.snapshot is not None and row.word.severity]
    stale = {row.view.host.name for row in seen if row.stale}
    look = [row for row in seen if row.view.host.name not in stale and _is_unclear(row)]
    left = remains(zombie for view in hosts for zombie in view.zombies)
    telling = [
        f"{need} need{'s' * (need == 1)} you" if need else "",
        f"connecting to {len(connecting)}…" if connecting else "",
        f"{len(unseen) - len(connecting)} unseen" if len(unseen) > len(connecting) else "",
        f"{len(stale)} stale" if stale else "",
        f"{len(look)} unclear" if look else "",
        f"GPUs of {len(blind)} unknown" if blind else "",
        left,
    ]
    well = "all well" if views else "nothing is looked at"
    return " · ".join([*counts, *(filter(None, telling) if any(telling) else (well,))])


def _is_unclear(row: FleetRow) -> bool:
    """Whether nobody can say that a row is well, though nothing is known to be wrong."""
    return row.word.severity == 1 or UNKNOWN in row.word.text


SORTS = ("urgency", "host", "memory", "utilisation", "free", "server", "state", "age")


def sort_rows(rows: Sequence[FleetRow], by: str, *, reverse: bool = False) -> list[FleetRow]:
    """The rows in another order; unknown values come last either way."""
    if by == "urgency":
        return list(reversed(rows)) if reverse else list(rows)

    def value(row: FleetRow) -> float | str | None:
        server = row.server.name if row.server else ""
        return {
            "host": row.view.host.name,
            "free": free_count(row.view),
            "memory": memory_share(row.view),
            "utilisation": utilization(row.view),
            "server": server,
            "state": row.word.text.lower(),
            "age": row.seen_s,
        }[by]

    known = [row for row in rows if value(row) is not None]
    unknown = [row for row in rows if value(row) is None]
    descending = (by in ("free", "memory", "utilisation", "age")) != reverse
    return sorted(known, key=lambda r: value(r) or 0, reverse=descending) + unknown


def facts(row: FleetRow) -> dict[str, str | float | None]:
    """What the filter language can ask of a row."""
    share, busy = memory_share(row.view), utilization(row.view)
    return {
        "host": row.view.host.name,
        "server": row.server.name if row.server else "",
        "state": row.word.text.lower(),
        "memory": None if share is None else share * 100,
        "util": None if busy is None else busy * 100,
        "age": row.seen_s,
        "label": " ".join(row.view.host.labels),
        "zombies": float(len(row.view.zombies)),
        "gpus": float(len(row.view.snapshot.gpus)) if row.view.snapshot else None,
        "free": None if (free := free_count(row.view)) is None else float(free),
        "preset": (row.server.preset or "") if row.server else "",
        "model": row.server.model if row.server else "",
    }
