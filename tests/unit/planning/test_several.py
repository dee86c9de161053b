"""Plans of several hosts as one plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.actions.journal import PlanRecord
from console.model import Finding, Plan, Severity, Step, StepKind, StepResult
from console.planning.several import join, part_of

K = StepKind


def step(host: str, kind: StepKind | str) -> Step:
    """A step of a kind, or a signal."""
    if not isinstance(kind, StepKind):
        return Step(K.SIGNAL, host, "", signal=kind)
    return Step(kind, host, "", params={"errors": 0} if kind is K.PREFLIGHT else {})


def plan(host: str, *kinds: StepKind | str, **more: object) -> Plan:
    steps = tuple(step(host, kind) for kind in kinds)
    made = Plan(f"p-{host}", "relaunch", host, steps, "big")
    return replace(made, **more)  # type: ignore[arg-type]


WHOLE = (K.PREFLIGHT, K.DRAIN, "TERM", K.WAIT_GONE, "KILL", K.VERIFY, K.LAUNCH, K.WATCH)


def told(joined: Plan) -> list[str]:
    return [f"{s.host} {s.signal or s.kind.value}" for s in joined.steps]


def test_nothing_ends_before_all_is_checked_and_nothing_starts_before_all_is_gone() -> None:
    joined = join([plan("a", *WHOLE), plan("b", *WHOLE)])
    assert told(joined) == [
        "a preflight", "b preflight", "a drain", "b drain", "a TERM", "b TERM",
        "a wait-gone", "a KILL", "a verify", "b wait-gone", "b KILL", "b verify",
        "a launch", "b launch", "a watch",
    ]  # fmt: skip
    assert joined.steps[-1].params["nodes"] == ["a", "b"]
    assert (joined.host, joined.server, joined.action) == ("a", "big", "relaunch")


def test_a_node_that_does_not_run_has_nothing_to_end() -> None:
    joined = join([plan("a", K.PREFLIGHT, K.LAUNCH, K.WATCH), plan("b", *WHOLE)])
    assert told(joined)[:4] == ["a preflight", "b preflight", "b drain", "b TERM"]


def test_a_unit_is_written_everywhere_before_one_is_started() -> None:
    unit = (K.WRITE_UNIT, K.START_UNIT, K.WATCH)
    assert told(join([plan("a", *unit), plan("b", *unit)])) == [
        "a write-unit", "b write-unit", "a start-unit", "b start-unit", "a watch"
    ]  # fmt: skip


def finding(rule: str, severity: Severity, message: str) -> Finding:
    return Finding(rule, severity, message)


def test_findings_of_all_are_given_once_with_their_host_errors_first() -> None:
    same = finding("x", Severity.WARNING, "the same")
    own = finding("path", Severity.ERROR, "/m does not exist")
    meet = finding("dist-unreachable", Severity.ERROR, "b does not reach it")
    joined = join([plan("a", *WHOLE, findings=(same,)), plan("b", *WHOLE, findings=(same, own))],
                  (meet,))  # fmt: skip
    assert [f.message for f in joined.findings] == [
        "b does not reach it", "b: /m does not exist", "the same"
    ]  # fmt: skip
    assert {s.params["errors"] for s in joined.steps if s.kind is K.PREFLIGHT} == {2}


def test_what_is_said_of_all_is_said_once() -> None:
    joined = join([
        plan("a", *WHOLE, summary=("relaunch big", "log: /x")),
        plan("b", *WHOLE, summary=("relaunch big", "log: /y")),
    ])  # fmt: skip
    assert joined.summary == ("relaunch big", "log: /x", "b: log: /y")


@pytest.mark.parametrize(
    ("host", "done", "doubt"), [("a", [0, 2], None), ("b", [1], 3), ("c", [], None)]
)
def test_what_a_journal_says_of_one_host(host: str, done: list[int], doubt: int | None) -> None:
    steps = tuple(Step(K.LAUNCH, where, "") for where in "abab")
    whole = Plan("p", "launch", "a", steps, "big")
    results = {at: StepResult(at, "ok", 0.0) for at in (0, 1, 2)}
    record = PlanRecord(whole, "me", 0.0, "interrupted", results, 3)
    part = part_of(record, host)
    assert sorted(part.done) == done
    assert part.in_doubt == doubt
    assert {step.host for step in part.begun} <= {host}
