"""Every launch of the case files gives the findings it must, and valid ones give no error."""

from __future__ import annotations

import pytest

from console.model import Severity
from console.preflight import check, parse_command
from tests.unit.preflight.cases import FAULTY, VALID, Case


def by_id(case: Case) -> str:
    return case.id


def worst(case: Case) -> dict[str, str]:
    order = [Severity.INFO, Severity.WARNING, Severity.ERROR]
    found: dict[str, Severity] = {}
    for finding in check(parse_command(case.command), case.facts, case.version):
        seen = found.get(finding.rule, Severity.INFO)
        found[finding.rule] = max(seen, finding.severity, key=order.index)
    return {rule: str(severity) for rule, severity in found.items()}


@pytest.mark.parametrize("case", FAULTY, ids=by_id)
def test_a_faulty_launch_is_found_out(case: Case) -> None:
    found = worst(case)
    assert {rule: found.get(rule) for rule in case.expect} == dict(case.expect), found
    expected_errors = {rule for rule, severity in case.expect.items() if severity == "error"}
    errors = {rule for rule, severity in found.items() if severity == "error"}
    assert errors == expected_errors, "no other error than the one that is there"


@pytest.mark.parametrize("case", VALID, ids=by_id)
def test_a_valid_launch_gives_no_error(case: Case) -> None:
    found = worst(case)
    assert not [rule for rule, severity in found.items() if severity == "error"], found
    assert {rule: found.get(rule) for rule in case.expect} == dict(case.expect)


def test_there_are_enough_cases() -> None:
    assert len(FAULTY) >= 40
    assert len(VALID) >= 30
    ids = [case.id for case in (*FAULTY, *VALID)]
    assert len(ids) == len(set(ids))


def test_every_finding_says_what_and_what_to_do() -> None:
    for case in (*FAULTY, *VALID):
        for finding in check(parse_command(case.command), case.facts, case.version):
            assert finding.message, (case.id, finding)
            assert finding.fix, (case.id, finding)
            assert finding.message.isprintable(), (case.id, finding)
            assert all(flag.startswith("-") for flag in finding.flags), (case.id, finding)
