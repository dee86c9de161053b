"""A plan as lines: what changes, what preflight says, each step exactly, and how each ended."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from console.model import Finding, Plan, Severity, Step, StepResult
from console.text import mask_argv
from widgets.bars import duration, size
from widgets.paint import Line, fit, line, wrap
from widgets.words import safe

BULK = ("kill", "kill-zombies", "clean")
"""Actions that want the host's name typed when they touch more than one thing."""

_SIGNS = {
    "ok": ("✓", "ok"), "failed": ("✖", "bad"), "refused": ("✖", "bad"), "skipped": ("-", "dim"),
}  # fmt: skip
_MARKS = {
    Severity.ERROR: ("✖", "bad"),
    Severity.WARNING: ("!", "warn"),
    Severity.INFO: ("i", "dim"),
}


def touches(plan: Plan) -> int:
    """How many processes and files the plan acts on."""
    things: set[object] = set()
    for step in plan.steps:
        things.update(target.process for target in step.targets)
        things.update(artefact.path for artefact in step.artefacts)
    return len(things)


def is_bulk(plan: Plan) -> bool:
    """Whether the host's name has to be typed before it can be confirmed."""
    return plan.action in BULK and touches(plan) > 1


def word_to_type(plan: Plan) -> str:
    """What has to be typed before the plan can be confirmed; empty where a yes is enough."""
    return plan.confirm or (plan.host if is_bulk(plan) else "")


def command_line(step: Step) -> str:
    """The exact command of a step, quoted for reading, without secrets."""
    return safe(shlex.join(mask_argv(step.argv)))


def what(step: Step) -> str:
    """What a step does, in one line."""
    parts: list[str] = []
    if step.signal and step.targets:
        parts.append(f"SIG{step.signal.removeprefix('SIG')} to {_targets(step)}")
    if step.artefacts:
        total = sum(artefact.size_bytes for artefact in step.artefacts)
        count = len(step.artefacts)
        parts.append(f"{count} leftover{'s' * (count != 1)} ({size(total)})")
    if step.argv:
        parts.append(command_line(step))
    if step.why:
        parts.append(safe(step.why))
    if step.verify:
        parts.append(f"check: {safe(step.verify)}")
    return "; ".join(parts) or step.kind.value


def _targets(step: Step) -> str:
    shown = [str(target.process.pid) for target in step.targets[:4]]
    more = len(step.targets) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def step_lines(
    plan: Plan,
    width: int,
    *,
    whole: bool = False,
    rows: int = 2,
    results: Mapping[int, StepResult] | None = None,
    running: int | None = None,
) -> list[Line]:
    """The steps, each in at most ``rows`` rows; ``whole`` spells out all it does and to what."""
    out: list[Line] = []
    done = results or {}
    hosts = len({step.host for step in plan.steps})
    for at, step in enumerate(plan.steps):
        sign = (
            _SIGNS[done[at].outcome]
            if at in done
            else ("…", "accent")
            if at == running
            else ("", "")
        )
        head = f"{at + 1} {fit(step.kind.value, 10)} "
        role = "warn" if step.dangerous else "strong"
        where = f"{safe(step.host)}: " if hosts > 1 else ""
        text = wrap(where + what(step), width - len(head) - 3, limit=0 if whole else rows)
        out.append(line((head, role), (fit(sign[0], 2), sign[1] or "plain"), text[0]))
        out += [line(" " * (len(head) + 2) + rest) for rest in text[1:]]
        if whole:
            out += _everything(step, width)
        if at in done:
            note = f"{duration(done[at].seconds)}  {safe(done[at].detail)}"
            role = "dim" if done[at].outcome == "ok" else "bad"
            out += [
                line((f"    {part}", role)) for part in wrap(note, width - 4, limit=max(1, rows))
            ]
    return out


def compact_lines(
    plan: Plan, width: int, room: int, *, results: Mapping[int, StepResult], running: int | None
) -> list[Line]:
    """Every step in one row, with how it ended, so that what goes on is in sight.

    Where even that is too long for ``room`` rows, the first ones, that ended well, share one.
    """
    rows: list[Line] = []
    for at, step in enumerate(plan.steps):
        head, role = f"{at + 1} {fit(step.kind.value, 10)} ", "dim" if at in results else "strong"
        sign, text = ("", ""), what(step)
        if at in results:
            found = results[at]
            sign, text = _SIGNS[found.outcome], f"{duration(found.seconds)}  {safe(found.detail)}"
            role = "bad" if found.outcome in ("failed", "refused") else role
        elif at == running:
            sign, role = ("…", "accent"), "accent"
        cut = fit(text, width - len(head) - 2).rstrip()
        rows.append(line((head, role), (fit(sign[0], 2), sign[1] or "plain"), cut))
    well = next(
        (at for at in range(len(rows)) if at not in results or results[at].outcome != "ok"),
        len(rows),
    )
    folded = min(well, len(rows) - room + 1)
    if folded < 2:
        return rows
    took = duration(sum(results[at].seconds for at in range(folded)))
    return [line((f"1-{folded} ", "dim"), ("✓ ", "ok"), (took, "dim")), *rows[folded:]]


def _everything(step: Step, width: int) -> list[Line]:
    out: list[Line] = []
    for target in step.targets:
        text = f"pid {target.process.pid}  {safe(target.user)}  {safe(target.title)}"
        out.append(line(("     " + fit(text, width - 5).rstrip(), "dim")))
    for artefact in step.artefacts:
        text = f"{safe(artefact.path)}  {size(artefact.size_bytes)}  {safe(artefact.user)}"
        out.append(line(("     " + fit(text, width - 5).rstrip(), "dim")))
    return out


def finding_lines(
    findings: Sequence[Finding], width: int, *, running: bool, rows: int = 3
) -> list[Line]:
    """What preflight found so far, each in at most ``rows`` rows; 0 is the count alone."""
    if not findings and not running:
        return []
    errors = sum(f.severity is Severity.ERROR for f in findings)
    warnings = sum(f.severity is Severity.WARNING for f in findings)
    state = "asking…" if running else "done"
    head = (
        f"preflight {state}  {errors} error{'s' * (errors != 1)}, "
        f"{warnings} warning{'s' * (warnings != 1)}"
    )
    out = [line((head, "bad" if errors else "warn" if warnings else "ok"))]
    order = list(Severity)
    if rows == 0:
        return out
    for found in sorted(findings, key=lambda f: order.index(f.severity)):
        mark = _MARKS[found.severity]
        text = safe(found.message) + (f" → {safe(found.fix)}" if found.fix else "")
        lines = wrap(text, width - 4, limit=rows)
        out.append(line("  ", mark, " " + lines[0]))
        out += [line("    " + rest) for rest in lines[1:]]
    return out


def summary_lines(plan: Plan, width: int) -> list[Line]:
    """What the plan changes, as its maker sums it up."""
    return [line(part) for text in plan.summary for part in wrap(safe(text), width, limit=3)]
