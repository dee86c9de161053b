"""Every rule has a launch that it stops, launches that it lets pass, and a line that exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import console.preflight
from console.preflight import check, parse_command
from console.preflight.tables import places, versions
from tests.unit.preflight.cases import FAULTY, VALID

ROOM = Path(console.preflight.__file__).parent
# Given by tests of their own, since they need files, an engine's answer or several facts.
ELSEWHERE = {
    "draft-d2t": "test_offline",
    "draft-fc-shape": "test_offline",
    "draft-head-shape": "test_offline",
    "draft-tensors": "test_offline",
    "shard-size": "test_offline",
    "shard-damaged": "test_offline",
    "shards-missing": "test_host_rules",
    "weights-missing": "test_host_rules",
    "path-unreadable": "test_host_rules",
    "tokenizer-missing": "test_host_rules",
    "cache-not-a-folder": "test_host_rules",
    "cache-unwritable": "test_host_rules",
    "disk-full": "test_host_rules",
    "host-memory": "test_host_rules",
    "port-same": "test_host_rules",
    "env-login-missing": "test_host_rules",
    "env-login-differs": "test_host_rules",
    "version-unknown": "test_host_rules",
    "target-config": "test_offline",
    "draft-config": "test_offline",
}


def rule_ids() -> set[str]:
    """The rules that the code can give, read from its calls."""
    found: set[str] = set()
    for path in [*(ROOM / "rules").glob("*.py"), ROOM / "settings.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = ast.unparse(node.func)
            if name not in (
                "ctx.error",
                "ctx.warning",
                "ctx.info",
                "make",
                "Conflict",
                "self._add",
            ):
                continue
            first = node.args[0]
            if isinstance(first, ast.Constant):
                found.add(str(first.value))
            elif isinstance(first, ast.JoinedStr):
                tail = "".join(str(v.value) for v in first.values if isinstance(v, ast.Constant))
                prefixes = ("target", "draft") if tail == "-config" else ("", "draft-")
                found |= {prefix + tail for prefix in prefixes}
    return found


def given() -> set[str]:
    return {
        finding.rule
        for case in (*FAULTY, *VALID)
        for finding in check(parse_command(case.command), case.facts, case.version)
    }


def test_every_rule_is_given_by_some_launch() -> None:
    here = Path(__file__).parent
    for rule, module in ELSEWHERE.items():
        assert rule in (here / f"{module}.py").read_text(), rule
    assert rule_ids() - given() - set(ELSEWHERE) == set()


def test_no_rule_is_given_by_every_launch() -> None:
    per_launch = [
        {finding.rule for finding in check(parse_command(c.command), c.facts, c.version)}
        for c in VALID
    ]
    assert set.intersection(*per_launch) == set()


@pytest.mark.parametrize("rule", sorted(places()))
def test_the_lines_of_the_engine_belong_to_rules(rule: str) -> None:
    variants = {"spec-partial-topk", "spec-ngram-page", "spec-dflash-path", "spec-dflash-attention"}
    assert rule in rule_ids() | variants
    lines = places()[rule]
    assert lines
    assert set(lines) <= set(versions())
    assert all(".py:" in line for line in lines.values())
