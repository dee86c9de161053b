"""A log's bytes to a :class:`console.model.Diagnosis`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from console.diagnosis.carrier import split, unwrapped
from console.diagnosis.evidence import Evidence, Incident, gather
from console.diagnosis.fixes import change_of, fill, fix_text, spoken_by
from console.diagnosis.partial import whole_lines
from console.diagnosis.rules import Rule, Rules, in_versions, load_rules
from console.diagnosis.scan import Extract, extract
from console.diagnosis.searching import search
from console.diagnosis.tracebacks import Frame
from console.diagnosis.verdict import Verdict, chain_frames, choose, frame_names
from console.model import Diagnosis, Phase, Root, first_line
from console.phases import PhaseMachine
from console.phases.lines import Clock, Line, parse

_MESSAGE = 16_000  # characters of a message that rules look at

_QUIET_S = 600.0
"""Seconds without progress in a log that goes on, before it is called a hang."""
_ANSWERED = re.compile(r'"(?:POST /\S+|GET /health\w*) HTTP/1\.1" 200')
_ENDED = (Phase.SPAWN, Phase.READY, Phase.FAILED, Phase.STOPPED, Phase.DRAINING)
_BATCH = re.compile(r"(?:Prefill|Decode) batch.*?#running-req: (\d+)")


_WORKS = re.compile(
    r":(?:event_loop_\w+|\w*busy_loop|_process_engine_step|execute_model|run_batch|forward_batch_\w+"
    r"|process_batch\w*|step_fn|output_handler|forward_thread_func\w*|replay)$",
    re.MULTILINE,
)
_CALLS_WORK = re.compile(r"\.(?:event_loop_\w+|run_busy_loop|run_event_loop|run_batch)\(")
_SETS_UP = re.compile(
    r":(?:profile_run|determine_(?:available_memory|num_available_blocks)|\w*warm_?up\w*|_?dummy_run"
    r"|load_model|capture|capture_\w*(?:graphs?|batch_size|model)|initialize_from_config|init_device"
    r"|_initialize_kv_caches|init_memory_pool)$",
    re.MULTILINE,
)


def _moment(frames: list[Frame], names: str, phase: str | None) -> str:
    """Whether the frames, or where they do not tell the phase, say ``start`` or ``serving``."""
    if _SETS_UP.search(names):
        return "start"
    works = _WORKS.search(names) or any(_CALLS_WORK.search(frame.code) for frame in frames)
    return "serving" if works or phase in ("ready", "draining") else "start"


def _near(rule: Rule, text: str) -> re.Match[str] | None:
    """The first place that ``near`` names, if what else the rule says of that place holds."""
    if rule.near is None or (rule.literals and not any(word in text for word in rule.literals)):
        return None
    first = last = search(rule.near, text)
    if first is None or (rule.at_least == 1 and not rule.then and not rule.absent_after):
        return first
    found = 0
    for last in rule.near.finditer(text):
        found += 1
        if found == rule.at_least and rule.then and not rule.then.search(text, last.end()):
            return None
    if found < rule.at_least or last is None:
        return None
    return None if search(rule.absent_after, text[last.end() :]) else first


def _matches(
    rule: Rule,
    root: Incident | None,
    evidence: Evidence,
    phase: str | None,
    names: str,
    moment: str,
) -> dict[str, str] | None:
    """The named groups of a rule that holds, or ``None``."""
    if (root is not None) != rule.root or (rule.phases and phase not in rule.phases):
        return None
    if rule.when and rule.when != moment:
        return None
    text = evidence.searched
    message = root.message[:_MESSAGE] if root else text
    groups: dict[str, str] = {}
    if root is not None and rule.type and not any(map(rule.type.fullmatch, root.names)):
        return None
    if rule.frames and not rule.frames.search(names):
        return None
    if rule.pattern:
        match = search(rule.pattern, message) or (root and rule.pattern.search(root.type))
        if not match:
            return None
        groups |= {k: v for k, v in match.groupdict().items() if v}
    if rule.near:
        match = _near(rule, text)
        if not match:
            return None
        groups |= {k: v for k, v in match.groupdict().items() if v}
    if search(rule.absent, f"{message}\n{text}" if root else text):
        return None
    return groups


def _summary(root: Incident | None, rule: Rule | None, groups: Mapping[str, str]) -> str:
    if rule is None:
        return "Nothing wrong in this log."
    said = fill(rule.explanation, groups)
    if root is None:
        return said
    first = first_line(root.message)
    return f"{root.type}: {first} - {said}" if first else f"{root.type} - {said}"


def _victims(verdict: Verdict) -> tuple[str, ...]:
    seen: dict[str, None] = {}
    for incident in verdict.followers:
        first = incident.message.partition("\n")[0][:160]
        who = f"{incident.rank} " if incident.rank else ""
        seen.setdefault(f"{who}{incident.type}: {first}".rstrip(": "), None)
    return tuple(seen)[:32]


def _root(incident: Incident) -> Root:
    return Root(
        type=incident.type,
        message=incident.message,
        file=incident.file,
        line=incident.line,
        rank=incident.rank,
        log_line=incident.number,
    )


def judge_lines(
    lines: list[Line], rules: Rules, *, engine: str | None = None, version: str | None = None
) -> Diagnosis:
    """Diagnose lines that are already parsed and in the order in which they were written."""
    evidence = gather(lines, rules)
    verdict = choose(evidence, rules)
    root = verdict.root
    phase, fact = _follow(lines, root.number if root else None, engine)
    if root is None and fact:
        evidence.searched += f"\n{fact}"
    frames = chain_frames(root) if root else []
    names = frame_names(frames)
    moment = _moment(frames, names, phase)
    for rule in rules.rules:
        if rule.engines and engine and engine not in rule.engines:
            continue
        if not in_versions(rule.versions, version):
            continue
        groups = _matches(rule, root, evidence, phase, names, moment)
        if groups is not None:
            break
    else:
        rule, groups = None, {}
    engine = engine or spoken_by(evidence.all.text)
    return Diagnosis(
        root=_root(root) if root else None,
        category=rule.category if rule else "none",
        phase=phase,
        summary=_summary(root, rule, groups),
        fix=fix_text(rule, groups, engine) if rule else "",
        change=change_of(rule, groups, engine) if rule else None,
        victims=_victims(verdict),
        victim_lines=tuple(sorted({incident.number for incident in verdict.followers})),
        incomplete=verdict.incomplete,
    )


def _follow(lines: list[Line], stop: int | None, engine: str | None) -> tuple[str | None, str]:
    """The phase that a log had reached at a line (``None``: at its end), and whether it hangs.

    The second is a line that rules can match: the log's stamps go on while its work does not.
    """
    machine, clock = PhaseMachine(engine), Clock(lines)
    worked: float | None = None
    last: float | None = None
    running = 0
    for line in lines:
        if stop is not None and line.number > stop:
            break
        before = (len(machine.steps), machine.progress)
        machine.feed_line(line)
        stamp = clock.read(line)
        last = stamp if stamp is not None else last
        if " batch" in line.text and (batch := _BATCH.search(line.text)):
            running = int(batch[1]) + line.text.startswith("Prefill")
            worked = last
        elif ' HTTP/1.1" 200' in line.text and _ANSWERED.search(line.text):
            running -= "POST" in line.text
            worked = last
        elif (len(machine.steps), machine.progress) != before:
            worked = last
    phase = machine.failed_in if machine.phase is Phase.FAILED else machine.phase
    known = str(phase) if phase is not None and machine.known else None
    if last is None or worked is None or last - worked < _QUIET_S:
        return known, ""
    if running > 0:
        return known, f"fact: busy, then silent {last - worked:.0f} s"
    started = machine.starts or machine.known
    if machine.phase in _ENDED or not started:
        return known, ""
    return known, f"fact: starting, then silent {last - worked:.0f} s"


def _parsed(pieces: Iterable[tuple[int, bytes]]) -> list[Line]:
    entries = (
        parse(raw.decode("utf-8", "backslashreplace"), number)
        for number, raw in whole_lines(pieces)
    )
    return unwrapped([line for entry in entries for line in split(entry)])


def diagnose(
    data: bytes | Iterable[bytes],
    *,
    engine: str | None = None,
    version: str | None = None,
    rules: Rules | None = None,
) -> Diagnosis:
    """The root cause that a log shows, its category and a change that would mend it.

    ``data`` is the log or its blocks in order; memory stays bounded whatever its size. Only the
    last start in it is judged; where that start is under way and shows nothing wrong, the one
    before it. Never raises on any bytes.
    """
    rules = rules or load_rules()
    found: Extract = extract(data)
    verdict = _judge_pieces(found.current, rules, engine, version)
    if verdict.category == "none" and found.previous and verdict.phase not in ("ready", "draining"):
        before = _judge_pieces(found.previous, rules, engine, version)
        if before.root is not None:
            verdict = before
    return found.counted(verdict)


def _judge_pieces(
    pieces: list[tuple[int, bytes]], rules: Rules, engine: str | None, version: str | None
) -> Diagnosis:
    lines = _parsed(pieces)
    if not newest_first(lines):
        return judge_lines(lines, rules, engine=engine, version=version)
    numbers = [line.number for line in reversed(lines)]
    lines = [line._replace(number=i + 1) for i, line in enumerate(reversed(lines))]
    found = judge_lines(lines, rules, engine=engine, version=version)
    found = replace(found, victim_lines=tuple(numbers[n - 1] for n in found.victim_lines))
    if found.root is None or found.root.log_line is None:
        return found
    at = numbers[min(found.root.log_line, len(numbers)) - 1]
    return replace(found, root=replace(found.root, log_line=at))


_NUMBERED = re.compile(r"frame #(\d+):")


def _neighbours(first: str, second: str) -> int:
    """+1 where two neighbouring lines can only be in this order, -1 where only in the other."""
    for one, other, sign in ((first, second, 1), (second, first, -1)):
        if one.endswith("(most recent call last):") and 'File "' in other[:40]:
            return sign
        if "terminate called after" in one and "what():" in other:
            return sign
    left, right = _NUMBERED.search(first[:40]), _NUMBERED.search(second[:40])
    return int(right[1]) - int(left[1]) if left and right else 0


def newest_first(lines: list[Line]) -> bool:
    """Whether a log was exported with its last line first: its stamps fall, or its stacks do."""
    falling = rising = turns = 0
    last: float | None = None
    clock, before = Clock(lines), ""
    for line in lines:
        stamp = clock.read(line)
        if stamp is not None:
            if last is not None and stamp != last:
                falling += stamp < last
                rising += stamp > last
            last = stamp
        turns += _neighbours(before, line.text)
        before = line.text
    if turns:
        return turns < 0 and rising <= falling
    return falling > 2 * rising and falling >= 2


def diagnosis_to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The document that ``specops diagnose --json`` prints."""
    root = diagnosis.root
    change = diagnosis.change
    return {
        "schema": 1,
        "root": None
        if root is None
        else {
            "type": root.type,
            "message": root.message,
            "file": root.file,
            "line": root.line,
            "rank": root.rank,
            "log_line": root.log_line,
        },
        "category": diagnosis.category,
        "phase": diagnosis.phase,
        "summary": diagnosis.summary,
        "fix": diagnosis.fix,
        "change": None
        if change is None
        else {"flags": dict(change.flags), "env": dict(change.env), "risk": change.risk},
        "victims": list(diagnosis.victims),
        "incomplete": diagnosis.incomplete,
        "incidents": diagnosis.incidents,
    }
