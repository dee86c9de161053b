"""A start as lines: each phase with its time, its progress, and how long it usually takes."""

from __future__ import annotations

from console.model import HostView, Phase, PhaseSpan, ServerState
from widgets.bars import bar, duration
from widgets.paint import Line, fit, line
from widgets.table import cell
from widgets.words import usual_s

_END = {Phase.READY, Phase.FAILED, Phase.STOPPED, Phase.DRAINING}


def phase_lines(view: HostView, server: ServerState, width: int) -> list[Line]:
    """Two columns of phases at 80 cells and more, else one."""
    spans = [span for span in server.phases if span.phase not in _END]
    cells = [_cell(view, server, span) for span in spans]
    if spans and _failed_in_start(server):
        cells[-1] = _broken(view, server, spans[-1])
    if server.phase is Phase.READY:
        took = fit(duration(_total(server)), 7, right=True)
        cells.append(line((fit(" ready", 16), "ok"), (took, "plain"),
                          (" ✓ ", "ok"), _usual(view, server, Phase.READY)))  # fmt: skip
    elif server.phase is Phase.FAILED:
        cells.append(line((fit(" failed", 16), "bad"), ("✖", "bad")))
    elif cells:
        cells.append(_expected(view, server))
    if width < 80:
        return cells
    half = (len(cells) + 1) // 2
    rows: list[Line] = []
    for at in range(half):
        right = cells[at + half] if at + half < len(cells) else ()
        rows.append((*cell(cells[at], width // 2), *cell(right, width - width // 2)))
    return rows


def _cell(view: HostView, server: ServerState, span: PhaseSpan) -> Line:
    name = (fit(f" {span.phase.value}", 16), "accent" if span.end_s is None else "plain")
    usual = _usual(view, server, span.phase)
    if span.seconds is not None:
        return line(
            name, (fit(duration(span.seconds), 7, right=True), "plain"), (" ✓ ", "ok"), usual
        )
    if span.end_s is not None:
        return line(name, ("      ?", "dim"), (" ✓ ", "ok"), usual)
    here = span.phase is server.phase
    spent = f"{duration(server.elapsed_s)} " if here and server.elapsed_s is not None else ""
    if here and server.stalled:
        return line((fit(f" {span.phase.value}", 16), "bad"), (f"STALLED {spent}", "bad"), usual)
    if span.done is not None and span.total:
        text = f"{bar(span.done / span.total, 6)} {span.done}/{span.total} {spent}"
        return line(name, (text, "accent"), usual)
    return line(name, (f"running {spent}", "accent"), usual)


def _failed_in_start(server: ServerState) -> bool:
    served = any(span.phase is Phase.READY for span in server.phases)
    return server.phase is Phase.FAILED and not served


def _broken(view: HostView, server: ServerState, span: PhaseSpan) -> Line:
    """The phase in which a start failed: it neither runs nor is done."""
    spent = fit("" if span.seconds is None else duration(span.seconds), 7, right=True)
    usual = _usual(view, server, span.phase)
    return line((fit(f" {span.phase.value}", 16), "bad"), (spent, "plain"), (" ✖ ", "bad"), usual)


def _usual(view: HostView, server: ServerState, phase: Phase) -> tuple[str, str]:
    usual = usual_s(view, server.name, phase)
    return (f"(usual {duration(usual)})" if usual is not None else "", "dim")


def _expected(view: HostView, server: ServerState) -> Line:
    """``ready in ≈ 40 s``, from earlier runs; nothing is guessed without one."""
    usual = usual_s(view, server.name, Phase.READY)
    begun = [span.start_s for span in server.phases if span.start_s is not None]
    spent = sum(span.seconds or 0.0 for span in server.phases)
    if usual is None or not begun:
        return line((" ready          ", "dim"), ("no earlier run", "dim"))
    left = usual - spent
    if left <= 0:
        return line((" ready          ", "warn"), (f"over the usual {duration(usual)}", "warn"))
    return line((" ready          ", "dim"), (f"in ≈ {duration(left)}", "plain"))


def _total(server: ServerState) -> float | None:
    ends = [span.end_s for span in server.phases if span.end_s is not None]
    starts = [span.start_s for span in server.phases if span.start_s is not None]
    return max(ends) - min(starts) if ends and starts else None
