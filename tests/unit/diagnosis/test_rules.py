# ruff: noqa: E501 - log lines are quoted whole
"""The rules file format: what is wrong in it is said once, with its place."""

from __future__ import annotations

import re
from pathlib import Path
from re import _parser  # type: ignore[attr-defined] # knows how wide a pattern is

import pytest

from console.diagnosis import CATEGORIES, diagnose, load_rules, parse_rules, searching
from console.diagnosis.rules import in_versions
from console.errors import ConfigError
from tests.unit.diagnosis.cases import cases


def test_every_category_has_a_rule() -> None:
    covered = {rule.category for rule in load_rules().rules}
    assert CATEGORIES - covered == {"none"}


def test_ids_are_unique_and_sources_given() -> None:
    rules = load_rules()
    for listed in (rules.signs, rules.roles, rules.rules):
        ids = [entry.id for entry in listed]
        assert len(ids) == len(set(ids))
        assert all(entry.source for entry in listed)


def test_what_is_searched_for_in_a_whole_log_takes_linear_time() -> None:
    """Every repeat has a bound: one line of a hostile log took 22 s without."""
    for rule in load_rules().rules:
        for pattern in (rule.near, rule.then, rule.absent, rule.absent_after):
            text = re.sub(r"\\.", "x", pattern.pattern) if pattern else ""
            text = re.sub(r"\[[^]]*\]", "x", text)
            assert not re.search(r"[*+]|\{\d*,\}", text), (rule.id, text)


def whole_log_patterns() -> list[re.Pattern[str]]:
    """What is looked for in whole logs, and not only in a message."""
    found = []
    for rule in load_rules().rules:
        found += [rule.near, rule.absent, None if rule.root else rule.pattern]
    return [pattern for pattern in found if pattern is not None]


def test_a_log_searched_in_steps_shows_what_one_search_of_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = [case.log.decode("utf-8", "replace") for case in cases("reports")]
    text = "\n".join(log[:3000] for log in logs[:80])
    monkeypatch.setattr(searching, "WINDOW", 500)
    found = 0
    for pattern in whole_log_patterns():
        once, steps = pattern.search(text), searching.search(pattern, text)
        assert (steps and steps.span()) == (once and once.span()), pattern.pattern
        found += once is not None
    assert found > 20


def test_no_rule_matches_more_than_a_step_looks_ahead() -> None:
    for pattern in whole_log_patterns():
        *_, most = _parser.parse(pattern.pattern, pattern.flags).getwidth()
        assert most <= searching.LONGEST, pattern.pattern


def test_no_rule_names_a_host_path_or_time_of_a_case() -> None:
    rules = load_rules()
    patterns = [
        pattern.pattern
        for entry in (*rules.signs, *rules.roles, *rules.rules)
        for name in ("pattern", "near", "frames", "absent")
        if (pattern := getattr(entry, name, None)) is not None
    ]
    log = b"".join(case.log for case in cases("reports")).decode("utf-8", "replace")
    hosts = set(re.findall(r"\bgpu-[a-z0-9]+\b|\b10\.\d+\.\d+\.\d+\b|\b20\d\d-\d\d-\d\d\b", log))
    paths = set(re.findall(r"/(?:opt|srv|home)/\w+", log))
    for text in (*hosts, *paths):
        assert not any(text in pattern for pattern in patterns), text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "rules: [{id: a, category: nonsense, explanation: x, source: y}]",
            "`category: nonsense` is unknown",
        ),
        (
            "rules: [{id: a, category: none, explanation: x, source: y, pattern: '('}]",
            "no regular expression",
        ),
        (
            "rules: [{id: a, category: none, explanation: x, source: y, colour: red}]",
            "unknown key: colour",
        ),
        ("rules: [{category: none}]", "needs an `id`"),
        ("rules: [3]", "must be a mapping"),
        ("rules: {}\nmore: 1", "holds `signs`, `roles` and `rules`"),
        ("roles: [{id: a, role: cause, pattern: x, source: y}]", "`role: cause` is unknown"),
        ("signs: [{id: a, kind: death, type: x, pattern: x, source: y}]", "`literal` is missing"),
        (
            "rules: [{id: a, category: none, explanation: x, source: y, versions: new}]",
            "is unclear",
        ),
        (
            "rules: [{id: a, category: none, explanation: x, source: y, change: {flag: 1}}]",
            "unknown key in `change`",
        ),
        ("rules: [\n  {id: a", "no valid YAML"),
        (
            "roles: [{id: a, role: victim, pattern: x, source: y}, {id: a, role: victim, pattern: x, source: y}]",
            "used twice",
        ),
    ],
)
def test_a_wrong_file_gets_one_clear_error(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rules(text, "my-rules.yaml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("my-rules.yaml")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_rules(tmp_path / "none.yaml")


def test_own_rules_come_first(tmp_path: Path) -> None:
    own = tmp_path / "rules.yaml"
    own.write_text(
        "rules:\n- id: ours\n  category: gpu-hardware\n  type: ValueError\n  pattern: frobnicator\n"
        "  explanation: Slot {slot} is loose.\n  near: 'slot (?P<slot>\\d+)'\n  fix: Push slot {slot}.\n"
        "  change: {flags: {frob-slot: '{slot}'}}\n  source: our own hall\n",
        "utf-8",
    )
    log = b'slot 7 rattles\nTraceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\n'
    found = diagnose(log + b"ValueError: frobnicator\n", rules=load_rules(own))
    assert found.category == "gpu-hardware"
    assert found.fix == "Push slot 7."
    assert found.change is not None
    assert found.change.flags == {"frob-slot": 7}


def test_the_example_in_the_documentation_is_a_valid_file() -> None:
    text = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text("utf-8")
    example = text.split("```yaml\n")[1].split("```")[0]
    rules = parse_rules(example, "docs/diagnosis.md")
    assert len(rules.rules) == len(rules.roles) == len(rules.signs) == 1
    for category in CATEGORIES:
        assert f"`{category}`" in text


@pytest.mark.parametrize(
    ("bounds", "version", "holds"),
    [
        (">=0.5.3,<0.5.9", "0.5.3.post3", True),
        (">=0.5.3,<0.5.9", "0.5.9", False),
        (">=0.5.3", "0.4.9", False),
        ("==0.5.12", "0.5.12.post1", True),
        (">=0.5.3", None, True),
        ("", "0.1", True),
    ],
)
def test_version_bounds(bounds: str, version: str | None, holds: bool) -> None:
    assert in_versions(bounds, version) is holds
