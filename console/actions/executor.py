"""Carry out a plan: step by step, recorded before and after, stopped at the first failed check.

Each step is written down twice before it is done: in the audit file on this machine and in the
plan's journal on the host, of which every other node of its server has a copy. So whatever ends
the console, the link, the agent or a node, a host knows what was intended and what was done, and
``resume`` finishes it from anywhere.

What a step does is a handler in a table by :class:`StepKind`; rooms add theirs::

    Executor(remote, audit, handlers={StepKind.LAUNCH: launch_step})
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from console.actions.audit import AuditLog
from console.actions.handlers import default_handlers
from console.actions.plan import changes_host, plan_to_journal, plan_to_json, result_to_json
from console.actions.plan import step_to_json as describe
from console.actions.steps import Context, Handler, Outcome
from console.errors import ActionFailed, HostError, Refused, SpecopsError, UsageError
from console.model import Plan, Step, StepKind, StepResult
from console.remote import HostFileError, Remote

SERVING = frozenset({StepKind.DRAIN, StepKind.WRITE_UNIT, StepKind.LAUNCH, StepKind.START_UNIT})
"""Kinds of steps on the hosts of a server's nodes."""
FREEING = frozenset(
    {
        *(StepKind.DRAIN, StepKind.SIGNAL, StepKind.STOP_UNIT, StepKind.WAIT_GONE),
        *(StepKind.CLEAN, StepKind.VERIFY, StepKind.DUMP),
    }
)
"""Steps that only end and clean: a host whose disk is full needs them, journal or not."""
GRACE_S = 20.0
"""Seconds beyond a step's own bound before the executor gives up on its handler."""


class Executor:
    """Runs plans on one host (and, for single steps, on ``others`` by host name).

    ``recheck`` is asked once before the first step and returns why the plan is out of date, or
    nothing: the last look between the operator's yes and the first signal.
    """

    def __init__(
        self,
        remote: Remote,
        audit: AuditLog,
        *,
        handlers: Mapping[StepKind, Handler] | None = None,
        others: Mapping[str, Remote] | None = None,
        read_only: bool = False,
        say: Callable[[str], None] = lambda _line: None,
        recheck: Callable[[Plan], Awaitable[str | None]] | None = None,
    ) -> None:
        self.remote = remote
        self.audit = audit
        self.handlers: dict[StepKind, Handler] = {**default_handlers(), **(handlers or {})}
        self.remotes = {**(others or {}), remote.host.name: remote}
        self.read_only = read_only or remote.hello.read_only
        self.say = say
        self.recheck = recheck
        self._copies: list[Remote] = []
        self._only_here = self._frees = False

    async def execute(
        self,
        plan: Plan,
        *,
        done: Mapping[int, StepResult] | None = None,
        in_doubt: int | None = None,
    ) -> AsyncGenerator[StepResult, None]:
        """Run the plan and yield each step's result; the last one yielded says how it ended.

        ``done`` and ``in_doubt`` come from a journal (:mod:`console.actions.journal`).

        Raises:
            Refused: read-only, the host's lock is taken, or ``recheck`` found the plan out of date.
            UsageError: a step of a kind or for a host that this executor does not know.
            ActionFailed: nothing could be recorded; nothing was done.
        """
        changes = changes_host(plan)
        self._admit(plan, changes)
        held: list[Remote] = []
        try:
            if changes:
                for remote in self._to_lock(plan):
                    await remote.lock(f"{self.audit.user}: {plan.action} {plan.id}")
                    held.append(remote)
            if changes and self.recheck is not None and (reason := await self.recheck(plan)):
                self.audit.write("refused", plan=plan.id, host=plan.host, detail=reason)
                raise Refused(reason, place=plan.host, hint="look again; nothing was changed")
            self._copies, self._only_here = held[1:], False
            self._close_earlier(plan)
            self._frees = all(step.kind in FREEING for step in plan.steps)
            await self._note(plan, "plan", {"plan": plan_to_journal(plan)}, plan_to_json(plan))
            results = dict(done or {})
            for index, step in enumerate(plan.steps):
                if index in results:
                    continue
                result = await self._step(plan, index, step, results, in_doubt == index)
                results[index] = result
                yield result
                if result.outcome in ("failed", "refused"):
                    break
            await self._end(plan, results)
        except HostError as error:
            error.hint = error.hint or f"finish with: specops resume {plan.id}"
            raise
        finally:
            for remote in reversed(held):
                await self._unlock(remote)

    def _to_lock(self, plan: Plan) -> list[Remote]:
        """The plan's own host, then those of the other nodes of its server.

        Not a hypervisor that a kill goes through: others go through it at the same time.
        """
        others = {step.host for step in plan.steps if step.kind in SERVING}
        names = sorted(others - {self.remote.host.name})
        return [self.remote, *(self.remotes[name] for name in names)]

    def _admit(self, plan: Plan, changes: bool) -> None:
        if changes and self.read_only:
            raise Refused(
                "this session is read-only", place=plan.host, hint="run without --read-only"
            )
        for step in plan.steps:
            if step.kind not in self.handlers:
                raise UsageError(f"no way to do a {step.kind.value} step", place=plan.id)
            if step.host not in self.remotes:
                raise UsageError(f"no connection to {step.host}", place=plan.id)

    async def _step(
        self, plan: Plan, index: int, step: Step, results: dict[int, StepResult], in_doubt: bool
    ) -> StepResult:
        intent = {"step": index, "kind": step.kind.value}
        try:
            await self._note(plan, "intent", intent, {**intent, "what": describe(step)})
        except SpecopsError:
            self._interrupted(plan, index, "not begun: the host's journal was not written")
            raise
        remote, all_ = self.remotes[step.host], self.remotes
        context = Context(plan, index, remote, results, self.say, in_doubt, all_)
        started = time.monotonic()
        outcome = Outcome("failed", "interrupted; its effect is unknown")
        interrupted = True
        try:
            outcome = await self._handle(step, context)
            interrupted = False
        finally:
            result = StepResult(
                index, outcome.outcome, time.monotonic() - started, outcome.detail, outcome.data
            )
            # Also when cancelled or when the link is gone: this file is local and synchronous.
            event = "interrupted" if interrupted else "result"
            self.audit.write(event, plan=plan.id, host=step.host, **result_to_json(result))
        try:
            entry = {"event": "result", "time": time.time(), **_result_entry(result)}
            await self._journal(plan.id, entry)
        except SpecopsError as error:
            return _with_detail(result, f"not in the host's journal: {error.message}")
        return result

    def _close_earlier(self, plan: Plan) -> None:
        """Give what an earlier run of this plan left open in the audit file its end.

        The host's lock is ours, so nobody else can be in the middle of it.
        """
        for index in self.audit.open_steps(plan.id):
            self._interrupted(plan, index, "an earlier run ended in it; its effect is looked at")

    def _interrupted(self, plan: Plan, index: int, why: str) -> None:
        result = result_to_json(StepResult(index, "failed", 0.0, why))
        self.audit.write("interrupted", plan=plan.id, host=plan.steps[index].host, **result)

    async def _handle(self, step: Step, context: Context) -> Outcome:
        try:
            async with asyncio.timeout(step.timeout_s + GRACE_S):
                return await self.handlers[step.kind](step, context)
        except TimeoutError:
            return Outcome("failed", f"no end within {step.timeout_s:.0f} s")
        except Refused as error:
            return Outcome("refused", str(error), _error_data(error))
        except HostError as error:
            hint = f"finish with: specops resume {context.plan.id}"
            return Outcome("failed", f"{error} ({hint})", _error_data(error))
        except SpecopsError as error:
            return Outcome("failed", str(error), _error_data(error))

    async def _note(
        self, plan: Plan, event: str, host_side: Mapping[str, Any], here: Mapping[str, Any]
    ) -> None:
        """Write an event here and on the host; both must be down before anything is done."""
        self.audit.write(event, plan=plan.id, host=plan.host, detail=here)
        entry = {"format": 1, "event": event, "time": time.time(), "by": self.audit.user}
        await self._journal(plan.id, {**entry, **host_side})

    async def _journal(self, plan_id: str, entry: Mapping[str, Any]) -> None:
        """Write on the plan's own host, and a copy on its other nodes: any of them may be lost.

        A node that does not take it gets no more: its copy ends there, and is behind the others'.

        Raises:
            SpecopsError: the plan's own host did not take it.
        """
        copies = tuple(self._copies)
        hosts = (self.remote, *copies)
        own, *others = await asyncio.gather(
            *(remote.journal(plan_id, entry) for remote in hosts), return_exceptions=True
        )
        for remote, answer in zip(copies, others, strict=True):
            if isinstance(answer, SpecopsError):
                self._copies.remove(remote)
                host, detail = remote.host.name, str(answer)
                self.audit.write("not-copied", plan=plan_id, host=host, detail=detail)
            elif isinstance(answer, BaseException):
                raise answer
        if isinstance(own, HostFileError) and own.full and self._frees:
            self._without_journal(plan_id, own)
        elif isinstance(own, BaseException):
            raise own

    def _without_journal(self, plan_id: str, error: HostFileError) -> None:
        """Go on although the host keeps no memory of the plan: this machine's audit has all."""
        if not self._only_here:
            self._only_here = True
            host = self.remote.host.name
            self.audit.write("not-journalled", plan=plan_id, host=host, detail=str(error))
            self.say(f"{host}: its disk is full: {plan_id} is recorded on this machine alone")

    async def _end(self, plan: Plan, results: Mapping[int, StepResult]) -> None:
        bad = [r for r in results.values() if r.outcome in ("failed", "refused")]
        outcome = bad[-1].outcome if bad else "ok"
        try:
            await self._note(plan, "end", {"outcome": outcome}, {"outcome": outcome})
            if outcome == "ok" and plan.undoes is not None:  # nobody is to resume what was undone
                entry = {"format": 1, "event": "end", "time": time.time(), "by": self.audit.user}
                await self._journal(plan.undoes, {**entry, "outcome": "undone"})
        except SpecopsError:  # a lost link, a full disk: the journal stays open for resume
            self.audit.write("unfinished", plan=plan.id, host=plan.host)

    async def _unlock(self, remote: Remote) -> None:
        try:
            await asyncio.shield(remote.unlock())
        except HostError:  # the lock falls with the agent
            self.audit.write("link-lost", host=remote.host.name)


def _result_entry(result: StepResult) -> dict[str, Any]:
    return {
        "step": result.step,
        "outcome": result.outcome,
        "seconds": round(result.seconds, 3),
        "detail": result.detail,
        "data": dict(result.data),
    }


def _with_detail(result: StepResult, detail: str) -> StepResult:
    text = f"{result.detail}; {detail}" if result.detail else detail
    return StepResult(result.step, result.outcome, result.seconds, text, result.data)


def _error_data(error: SpecopsError) -> dict[str, Any]:
    return {"code": error.code, "exit_code": error.exit_code, "hint": error.hint}


def raise_for(plan: Plan, results: list[StepResult]) -> None:
    """Turn the last result of a plan into an error where it is one.

    Raises:
        Refused: the step was refused.
        ActionFailed: the step failed.
    """
    if not results or results[-1].outcome in ("ok", "skipped"):
        return
    last = results[-1]
    kind = Refused if last.outcome == "refused" else ActionFailed
    step = plan.steps[last.step]
    raise kind(last.detail, place=f"{step.host}: {step.kind.value}", hint=f"plan {plan.id}")
