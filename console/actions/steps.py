"""What a step's handler is given and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from console.model import Plan, Step, StepResult
from console.remote import Remote


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a handler returns. ``data`` are JSON values for the journal and the caller.

    ``data["undo"]`` may hold a step (:func:`console.actions.codec.encode`) that undoes this one.
    """

    outcome: Literal["ok", "failed", "refused", "skipped"]
    detail: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may use.

    ``in_doubt``: an earlier attempt was interrupted in this step, so it may already be done; a
    handler must look before it acts. ``results`` are those of the steps before, by index.
    ``remotes`` are all hosts of the plan by name, ``remote`` is the step's.
    """

    plan: Plan
    index: int
    remote: Remote
    results: Mapping[int, StepResult]
    say: Callable[[str], None]
    in_doubt: bool = False
    remotes: Mapping[str, Remote] = field(default_factory=dict)


class Handler(Protocol):
    """Does one kind of step. It keeps ``step.timeout_s`` itself and may be cancelled anywhere.

    It may raise any ``SpecopsError``: ``Refused`` ends the step as refused, others as failed.
    """

    async def __call__(self, step: Step, context: Context) -> Outcome:
        """Do the step."""
        ...
