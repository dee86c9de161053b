"""What was done, told in sentences: the lines of the audit file as one deed for each plan. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.model import Run

Entry = Mapping[str, Any]

BAD = ("failed", "refused", "stalled", "interrupted")
"""Outcomes that an operator should look at."""


@dataclass(frozen=True, slots=True)
class Deed:
    """A launch of a run record, a plan, or something else that was done; ``story`` is all of it.

    ``at`` is when it began, seconds since 1970. Its texts are as they were recorded: clean them.
    """

    at: float
    who: str
    host: str
    what: str
    outcome: str
    detail: str
    plan: str = ""
    run: Run | None = None
    story: tuple[str, ...] = field(default=(), compare=False)
    entries: tuple[Entry, ...] = field(default=(), compare=False, repr=False)

    @property
    def key(self) -> object:
        """Its identity; a plan stays the same while it gets on."""
        return self.plan or (self.at, self.host, self.what, self.detail)


def deeds(entries: Iterable[Entry]) -> list[Deed]:
    """The deeds that audit entries tell of, whatever their order; the newest first."""
    plans: dict[str, list[Entry]] = {}
    found: list[Deed] = []
    for entry in sorted(entries, key=_time):
        plan = _text(entry.get("plan"))
        if plan:
            plans.setdefault(plan, []).append(entry)
        else:
            found.append(_other(entry))
    found += [_of_plan(plan, told) for plan, told in plans.items()]
    return sorted(found, key=lambda deed: -deed.at)


def raw(deed: Deed) -> list[str]:
    """The lines of the audit file that a deed was told from."""
    return [json.dumps(entry, ensure_ascii=False, default=str) for entry in deed.entries]


# ---- a plan


def _of_plan(plan: str, told: Sequence[Entry]) -> Deed:
    first = told[0]
    whole = next((_mapping(e.get("detail")) for e in told if e.get("event") == "plan"), {})
    steps = [_mapping(step) for step in _list(whole.get("steps"))]
    for entry in told:  # what the plan itself no longer tells, as where the file was cut
        if entry.get("event") == "intent":
            _keep(steps, _mapping(entry.get("detail")))
    results = {e["step"]: e for e in told if "outcome" in e and isinstance(e.get("step"), int)}
    outcome = _outcome(told, results)
    summary = whole.get("summary")
    about = _text(whole.get("server")) or next(map(_text, _list(summary)), "")
    return Deed(
        at=_time(first),
        who=_who(first),
        host=_text(first.get("host")),
        what=_text(whole.get("action")) or plan.rpartition("-")[0] or plan,
        outcome=outcome,
        detail=f"{f'{about}: ' * bool(about)}{_how(told, steps, results)}",
        plan=plan,
        story=tuple(_story(whole, steps, results, told)),
        entries=tuple(told),
    )


def _keep(steps: list[Entry], intent: Entry) -> None:
    at = intent.get("step")
    if isinstance(at, int) and 0 <= at < 1000:
        steps += [{} for _ in range(at + 1 - len(steps))]
        steps[at] = steps[at] or {**_mapping(intent.get("what")), "kind": intent.get("kind")}


def _outcome(told: Sequence[Entry], results: Mapping[int, Entry]) -> str:
    """How it ended; ``?`` where nothing tells of an end: it goes on, or was cut off."""
    for entry in reversed(told):
        event = entry.get("event")
        if event == "end":
            return _text(_mapping(entry.get("detail")).get("outcome")) or "?"
        if event in ("refused", "interrupted", "unfinished"):
            return str(event)
    bad = [e for e in results.values() if e.get("outcome") in BAD]
    return _text(bad[-1]["outcome"]) if bad else "?"


def _how(told: Sequence[Entry], steps: Sequence[Entry], results: Mapping[int, Entry]) -> str:
    refused = next((e for e in told if e.get("event") == "refused"), None)
    if refused is not None:
        return f"not begun: {_text(refused.get('detail'))}"
    for at, entry in sorted(results.items()):
        if entry.get("outcome") in BAD:
            return f"{_named(steps, at)} {_text(entry['outcome'])}: {_text(entry.get('detail'))}"
    took = _seconds(_time(told[-1]) - _time(told[0]))
    if any(entry.get("event") == "end" for entry in told):
        return f"all {len(steps)} steps done in {took}" if len(steps) != 1 else f"done in {took}"
    if len(results) < len(steps):
        return f"{_named(steps, len(results))} was begun, no end is recorded"
    return "no end is recorded"


def _named(steps: Sequence[Entry], at: int) -> str:
    kind = _text(steps[at].get("kind")) if at < len(steps) else ""
    return f"step {at + 1} of {max(len(steps), at + 1)}{f', {kind},' * bool(kind)}"


def _story(
    whole: Entry, steps: Sequence[Entry], results: Mapping[int, Entry], told: Sequence[Entry]
) -> Iterable[str]:
    yield from map(_text, _list(whole.get("summary")))
    for found in map(_mapping, _list(whole.get("findings"))):
        yield f"{_text(found.get('severity'))}: {_text(found.get('message'))}"
    yield ""
    for at, step in enumerate(steps):
        yield f"{at + 1} {_text(step.get('kind')):<9} {_text(step.get('why'))}"
        yield from _of_step(step)
        yield f"  → {_result(results.get(at), begun=_begun(told, at))}"
    for entry in told:
        if entry.get("event") in ("refused", "unfinished", "not-copied"):
            yield _sentence(entry)


def _of_step(step: Entry) -> Iterable[str]:
    for target in map(_mapping, _list(step.get("targets"))):
        pid = _mapping(target.get("process")).get("pid")
        signal, whose = _text(step.get("signal")), _text(target.get("user"))
        to = f"SIG{signal} to " * bool(signal)
        yield f"  {to}pid {pid} of {whose}: {_text(target.get('title'))}"
    for artefact in _list(step.get("artefacts")):
        what = _mapping(artefact)
        yield f"  removes {_text(what.get('path')) or _text(artefact)}"


def _begun(told: Sequence[Entry], at: int) -> bool:
    return any(
        e.get("event") == "intent" and _mapping(e.get("detail")).get("step") == at for e in told
    )


def _result(entry: Entry | None, *, begun: bool) -> str:
    if entry is None:
        return "begun, no end is recorded" if begun else "not begun"
    seconds = entry.get("seconds")
    took = f" ({_seconds(seconds)})" if isinstance(seconds, int | float) else ""
    return f"{_text(entry.get('outcome'))}: {_text(entry.get('detail'))}{took}"


# ---- what is no plan


def _other(entry: Entry) -> Deed:
    detail = _mapping(entry.get("detail"))
    outcome = _text(entry.get("outcome")) or _text(detail.get("outcome"))
    event = _text(entry.get("event")) or _text(entry.get("action"))
    return Deed(
        _time(entry), _who(entry), _text(entry.get("host")), event, outcome or "-",
        _sentence(entry), story=(_sentence(entry),), entries=(entry,),
    )  # fmt: skip


def _sentence(entry: Entry) -> str:
    """One event in words; what is not known here is told key by key."""
    event, detail = entry.get("event"), entry.get("detail")
    if event == "adopt":
        return f"{_text(entry.get('server'))} became a server of hosts.yaml, run {_text(detail)}"
    if event == "purge":
        return f"removes what specops left there: {' '.join(_words(detail, 'argv')[4:])}"
    if event == "purged":
        left = _words(detail, "left")
        return f"still there: {', '.join(left)}" if left else "nothing is left there"
    if event == "link-lost":
        return "the connection was lost; the lock fell with it"
    if event == "unfinished":
        return "its end could not be written on the host: resume finishes it"
    if event == "not-copied":
        where = _text(entry.get("host"))
        return f"{where} has no copy of its journal from here on: {_text(detail)}"
    if event == "refused":
        return f"refused: {_text(detail)}"
    return _pairs(entry)


def _words(detail: object, key: str) -> list[str]:
    return [_text(word) for word in _list(_mapping(detail).get(key))]


def _pairs(value: object, *, without: Sequence[str] = ("time", "user", "host", "format")) -> str:
    """Keys and values as text, nested ones flattened: never a dict as Python writes it."""
    if isinstance(value, Mapping):
        shown = {key: item for key, item in value.items() if key not in without}
        return ", ".join(f"{key} {_pairs(item, without=())}" for key, item in shown.items())
    if isinstance(value, list | tuple):
        return " ".join(_pairs(item, without=()) for item in value)
    return _text(value)


# ---- single values


def _text(value: object) -> str:
    if value is None:
        return ""
    return _pairs(value, without=()) if isinstance(value, Mapping | list | tuple) else str(value)


def _mapping(value: object) -> Entry:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _time(entry: Entry) -> float:
    at = entry.get("time")
    return float(at) if isinstance(at, int | float) else 0.0


def _who(entry: Entry) -> str:
    return _text(entry.get("user")) or _text(entry.get("operator"))


def _seconds(value: float) -> str:
    whole = round(max(0.0, value))
    if whole < 10:
        return f"{max(0.0, value):.1f} s"
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
