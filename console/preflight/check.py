"""Everything the own rules say about one launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from console.model import Finding, Severity
from console.preflight.command import LaunchCommand
from console.preflight.context import Context, make_context
from console.preflight.facts import HostFacts
from console.preflight.handover import handed_over
from console.preflight.rules import (
    algorithms,
    arguments,
    bundled,
    conflicts,
    devices,
    draft,
    environment,
    families,
    host,
    memory,
    overrides,
    parallel,
    quantisation,
    speculative,
    target,
    weights,
)
from console.preflight.settings import resolve
from console.preflight.tables import select
from console.text import clean

_RULES: tuple[Callable[[Context], Iterator[Finding]], ...] = (
    arguments.rules,
    conflicts.rules,
    parallel.rules,
    speculative.rules,
    algorithms.rules,
    bundled.rules,
    target.rules,
    quantisation.rules,
    devices.rules,
    families.rules,
    overrides.rules,
    draft.rules,
    weights.rules,
    memory.rules,
    host.rules,
    environment.rules,
)
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def check(command: LaunchCommand, facts: HostFacts, version: str = "") -> tuple[Finding, ...]:
    """The findings over a launch, errors first; empty where nothing is wrong.

    ``version`` is the engine's; where it is empty the command's (an image tag) or the host's is
    taken, and the newest known one, with a finding that says so, where nobody knows. Pure: reads
    nothing but its arguments, and no fact that is ``None`` leads to a finding against the launch.
    """
    context = make_context(handed_over(command, facts), facts, version)
    found: dict[tuple[str, str], Finding] = {}
    for rules in _RULES:
        for finding in rules(context):
            inert = replace(finding, message=clean(finding.message), fix=clean(finding.fix))
            found.setdefault((inert.rule, inert.message), inert)
    return tuple(sorted(found.values(), key=lambda finding: _ORDER[finding.severity]))


def wanted_paths(command: LaunchCommand, version: str = "") -> tuple[str, ...]:
    """The paths of the host whose state the rules would like to know (``HostFacts.paths``)."""
    settings = resolve(command, select(version or command.version))
    texts = {key: value for key, value in settings.values.items() if isinstance(value, str)}
    return host.wanted_paths(command, texts)
