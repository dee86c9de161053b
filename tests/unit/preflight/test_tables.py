"""What the tables of versions say, and what is said where the version is a guess."""

from __future__ import annotations

import pytest

from console.model import Finding, Severity
from console.preflight import HostFacts, check, parse_command
from console.preflight.tables import first_with, load, option_spans, order, select, versions

LAUNCH = "python3 -m sglang.launch_server --model-path /m "


def said(flags: str, version: str) -> list[Finding]:
    findings = check(parse_command(LAUNCH + flags), HostFacts(), version)
    return [f for f in findings if f.rule.startswith("flag-")]


@pytest.mark.parametrize(
    ("flag", "first", "last"),
    [
        ("--enable-beta-spec", "0.5.3.post3", "0.5.4"),
        ("--tp-size", "0.5.3", "0.5.23"),
        ("--attn-dp-size", None, "0.5.23"),
        ("--torchao-config", "0.5.3", "0.5.17"),
        ("--grpc-port", "0.5.16", "0.5.23"),
        ("--cuda-graph-max-bs-decode", "0.5.14", "0.5.23"),
    ],
)
def test_when_a_flag_came_and_went(flag: str, first: str | None, last: str) -> None:
    (span,) = option_spans(flag)
    assert span[1] == last
    assert first in (None, span[0])


def test_versions_are_ordered_and_each_has_a_table() -> None:
    known = versions()
    assert list(known) == sorted(known, key=order)
    assert len(known) == 30
    for version in known:
        table = load(version)
        assert {"--model-path", "--tp-size", "--speculative-algorithm"} <= set(table.options)
        assert "LlamaForCausalLM" in table.eagle3_targets
        assert table.transformers.split(".")[0] in ("4", "5")
    assert order("0.5.12") < order("v0.5.12.post1-cu129") < order("0.5.13")
    assert first_with("KimiK25ForConditionalGeneration", "captures") is not None


@pytest.mark.parametrize("version", ["", "main", "0.6.1"])
def test_a_flag_of_another_version_is_a_warning_where_the_version_is_a_guess(version: str) -> None:
    assert select(version).note
    (finding,) = said("--torchao-config int4wo-128", version)
    assert (finding.rule, finding.severity) == ("flag-renamed", Severity.WARNING)
    (graph, *_) = said("--cuda-graph-max-bs 64", version)
    assert graph.severity is Severity.WARNING


def test_a_flag_of_no_version_stops_unless_a_newer_one_may_have_it() -> None:
    assert said("--no-such-flag 1", "")[0].severity is Severity.ERROR
    assert said("--no-such-flag 1", "0.5.9")[0].severity is Severity.ERROR
    assert said("--no-such-flag 1", "0.5.40")[0].severity is Severity.WARNING


def test_a_choice_of_another_version_is_let_pass_where_the_version_is_a_guess() -> None:
    assert said("--kv-cache-dtype fp4_e2m1", "") == []
    assert said("--kv-cache-dtype fp4_e2m1", "0.5.3")[0].rule == "flag-value"
