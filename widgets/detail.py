"""Why a fleet row is as it is: facts on one line, then reasons, the strongest first."""

from __future__ import annotations

from collections.abc import Mapping

from console.model import Server
from widgets.bars import counted, mib
from widgets.fleet import FleetRow
from widgets.holders import device_use
from widgets.paint import Line, fit, line, wrap
from widgets.words import (
    SHOWN_ONLY,
    kind_word,
    last_known,
    remains,
    safe,
    total_memory,
    unlisted_lines,
    why,
    zombies_of,
)


def detail_lines(
    row: FleetRow, servers: Mapping[str, Server], width: int, height: int, now: float
) -> list[Line]:
    """At most ``height`` lines about a row."""
    out: list[Line] = [_facts(row, servers, width)]
    if row.unlisted is None:
        reasons = why(row.view, row.server, now)
    else:
        reasons = unlisted_lines(row.view, row.unlisted)
    if row.doing:
        reasons.insert(0, ("DOING", f"{row.doing}: this console is at it; a shows what it did"))
    held = zombies_of(row.view, row.server.name) if row.server else row.loose
    left = sum(zombie.kind in SHOWN_ONLY for zombie in held)
    if held and row.unlisted is None:
        what = remains(held) if len(held) == left else counted(len(held), "zombie")
        text = f"{total_memory(held)}, in {what}"
        kind = kind_word(held[0].kind)
        at = next(number for number, (label, _) in enumerate(reasons) if label == kind)
        reasons[at : at + 1] = [(kind, f"holds {text}"), ("", reasons[at][1])]
    indent = 16
    reasons += device_use(row.view)
    first = True
    for label, text in reasons:
        for at, part in enumerate(wrap(text, width - indent - 1, limit=2)):
            role = row.word.role if first else "strong"
            name = label[: indent - 2] if at == 0 else ""
            out.append(line((" " + name.ljust(indent - 1), role), part))
            first = False
    if len(out) > height:
        hidden = len(out) - height + 1
        out = [*out[: height - 1], line((f" … {hidden} more lines; Enter shows all", "dim"))]
    return out


def _facts(row: FleetRow, servers: Mapping[str, Server], width: int) -> Line:
    parts = [safe(row.view.host.name)]
    state = row.server
    if state is not None:
        parts.append(safe(state.name))
        server = servers.get(state.name)
        if state.port is not None:
            parts.append(f"port {state.port}")
        if state.pid is not None:
            parts.append(f"pid {state.pid}")
        preset = state.preset or (server and " + ".join(
            name for name in (server.speculative, server.nccl) if name)) or ""  # fmt: skip
        if preset:
            parts.append(safe(preset))
        if state.run_id:
            parts.append(f"run {safe(state.run_id)}")
    elif row.view.snapshot is not None and row.view.snapshot.cpu is not None:
        cpu = row.view.snapshot.cpu
        parts.append(f"{mib(cpu.memory_used_mib)} of {mib(cpu.memory_total_mib)}")
    if row.stale:
        parts.append(last_known(row.view, row.seen_s))
    return line((fit(" " + " · ".join(parts), width).rstrip(), "strong"))
