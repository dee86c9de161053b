"""Plans, steps and zombies as JSON (the contract's shapes) and as the lines an operator reads."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from console.actions.codec import decode, encode
from console.model import SCHEMA, Plan, Step, StepKind, StepResult, Zombie
from console.text import clean, mask, mask_argv

LOOKS_ONLY = frozenset({StepKind.PREFLIGHT, StepKind.VERIFY, StepKind.WATCH, StepKind.WAIT_GONE})
"""Step kinds that change nothing on a host; a plan of only these needs no lock and no yes."""


def changes_host(plan: Plan) -> bool:
    """Whether any step of the plan changes its host."""
    return any(step.kind not in LOOKS_ONLY for step in plan.steps)


def typed(plan: Plan, word: str) -> Plan:
    """The plan, for which a word must be typed (:attr:`Plan.confirm`) where it does anything."""
    if not plan.steps:
        return plan
    first = replace(plan.steps[0], params={**plan.steps[0].params, "confirm": word})
    return replace(plan, steps=(first, *plan.steps[1:]))


def step_to_json(step: Step, *, secrets: Iterable[str] = ()) -> dict[str, Any]:
    """A step for display and audit: every string without secrets."""
    known = tuple(secrets)
    data: dict[str, Any] = encode(step)
    data["argv"] = mask_argv(step.argv, known)
    masked: dict[str, Any] = masked_values(data, known)
    return masked


def plan_to_json(plan: Plan, *, secrets: Iterable[str] = ()) -> dict[str, Any]:
    """A plan for display and audit, with the contract's ``schema``."""
    known = tuple(secrets)
    return {
        "schema": SCHEMA,
        "id": plan.id,
        "action": plan.action,
        "host": plan.host,
        "server": plan.server,
        "created_at": plan.created_at,
        "summary": [mask(line, known) for line in plan.summary],
        "findings": masked_values(encode(plan.findings), known),
        "steps": [step_to_json(step, secrets=known) for step in plan.steps],
    }


def plan_to_journal(plan: Plan) -> dict[str, Any]:
    """A plan as its journal keeps it: whole, so that :func:`plan_from_journal` can resume it.

    Plans hold ``secret:NAME`` and never a secret, so nothing is masked here: masking could change
    an argument vector that is still to be run.
    """
    data: dict[str, Any] = encode(plan)
    return data


def plan_from_journal(data: object) -> Plan:
    """The plan a journal holds.

    Raises:
        ActionFailed: the journal is damaged; the place is the key.
    """
    return decode(Plan, data, place="plan")


def zombie_to_json(zombie: Zombie) -> dict[str, Any]:
    """A zombie in the contract's shape; memory that is unknown is ``null``."""
    resource = None
    if zombie.resource is not None:
        resource = {
            k: v for k, v in encode(zombie.resource).items() if k == "type" or v is not None
        }
    return {
        "id": zombie.id,
        "pid": zombie.pid,
        "start_time": zombie.start_time,
        "user": zombie.user,
        "kind": zombie.kind.value,
        "resource": resource,
        "device": zombie.device,
        "memory_mib": zombie.memory_mib,
        "gpu_memory_mib": zombie.gpu_memory_mib,
        "score": round(zombie.score, 2),
        "evidence": list(zombie.evidence),
        "killable": zombie.killable,
        "why_not": zombie.why_not,
        "run_id": zombie.run_id,
        "title": zombie.title,
    }


def result_to_json(result: StepResult) -> dict[str, Any]:
    """A step's result, without secrets."""
    data: dict[str, Any] = masked_values(encode(result))
    return data


def masked_values(value: Any, secrets: Iterable[str] = ()) -> Any:
    """JSON values with every string masked."""
    known = tuple(secrets)
    if isinstance(value, str):
        return mask(value, known)
    if isinstance(value, Mapping):
        return {key: masked_values(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [masked_values(item, known) for item in value]
    return value


def plan_lines(plan: Plan, *, secrets: Iterable[str] = ()) -> list[str]:
    """The plan as the dry run and the dialog show it: summary, then one numbered line a step."""
    known = tuple(secrets)
    many = len({step.host for step in plan.steps}) > 1
    numbered = [
        f"{i} {line}" for i, step in enumerate(plan.steps, 1) for line in _step_lines(step, many)
    ]
    return [clean(mask(line, known)) for line in (*plan.summary, *numbered)]


def _step_lines(step: Step, many: bool) -> list[str]:
    """A step with its details; of ``many`` hosts it names its own."""
    where = f"{step.host}: " if many else ""
    head = f"{step.kind.value:<10} {where}{step.why}"
    if step.verify:
        head += f"; then: {step.verify}"
    details = []
    if step.argv:
        details.append("  $ " + shlex.join(mask_argv(step.argv)))
    for target in step.targets:
        run = f", run {target.run_id}" if target.run_id else ""
        title = target.title[:60]
        what = f"{step.signal} " if step.signal else ""
        details.append(f"  {what}{target.process.pid} ({target.user}{run}) {title}")
    details += [f"  {a.path} ({a.size_bytes / 2**20:.0f} MiB)" for a in step.artefacts]
    return [head, *details]
