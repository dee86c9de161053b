"""Compare the own rules with the real SGLang on every launch that its argument check can judge.

    python -m tests.engine.verdicts ENGINE_PYTHON [--write]

asks the SGLang that ENGINE_PYTHON imports (0.5.12.post1, ``make test-engine`` installs it),
compares its verdicts with the own rules', and with ``--write`` stores them in engine_verdicts.json,
which the unit tests check without SGLang. Exit code 1 where the two disagree.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from console.model import Finding, Severity
from console.preflight import HostFacts, LaunchCommand, check, parse_command
from console.preflight.engine_check import ENV, parse_result, request, script
from tests.unit.preflight.cases import DATA, DEFAULT_VERSION, FAULTY, VALID, Case, models

VERDICTS = DATA / "engine_verdicts.json"
_TIMEOUT_S = 3600
_LATER = {"attention-kind", "host-form", "port-same", "spec-attention", "tp-quant-group"}
_ABSENT = re.compile(r"does not appear to have a file named|(?:Config|key) file not found")


def judged() -> list[Case]:
    """The cases for its arguments to tell: those of the version installed, and copies of others.

    A copy asks what the installed version would do with another one's launch, and of its facts
    keeps those that the engine has too, the two models.
    """
    found = []
    for case in (*FAULTY, *VALID):
        command = parse_command(case.command)
        named = command.version is not None and command.version != DEFAULT_VERSION
        if not case.judge or command.engine != "sglang" or command.unresolved or named:
            continue
        found.append(case if case.version in (DEFAULT_VERSION, "") else as_installed(case))
    return found


def later() -> frozenset[str]:
    """The rules about what comes after the argument check: weights, ranks, kernels.

    Known from the cases that are marked as such, because the engine's own check passes them, and
    :data:`_LATER`, of which every case names another version.
    """
    return frozenset(_LATER) | frozenset(
        rule
        for case in FAULTY
        if not case.judge
        for rule, severity in case.expect.items()
        if severity == "error"
    )


def agrees(case: Case, verdict: Mapping[str, Any]) -> bool:
    """Whether the own rules say of a case what the engine says, as far as that can tell."""
    errors = set(own(case))
    if verdict["absent"] or verdict["unsure"]:
        return not verdict["absent"]
    if "@" in case.id and not verdict["refused"]:
        return not errors - later()
    return bool(verdict["refused"]) == bool(errors)


def as_installed(case: Case) -> Case:
    """A case of another version as one of the version that is installed."""
    facts = HostFacts(target=case.facts.target, draft=case.facts.draft)
    name = f"{case.id}@{DEFAULT_VERSION}"
    return replace(case, id=name, version=DEFAULT_VERSION, facts=facts, expect={})


def materialise(folder: Path) -> None:
    """A folder with its config.json for every model of the cases."""
    for name, config in models().items():
        place = folder / name
        place.mkdir()
        (place / "config.json").write_text(json.dumps(config))


def engine_argv(command: LaunchCommand, case: Case, folder: Path) -> list[str]:
    """The launch's arguments with the models' folders in place of its paths."""
    argv = list(command.args)
    places = {"--model-path": case.facts.target, "--model": case.facts.target}
    for flag in ("--speculative-draft-model-path", "--speculative-draft-model"):
        places[flag] = case.facts.draft
    for at, word in enumerate(argv):
        name, eq, _ = word.partition("=")
        facts = places.get(name)
        if facts is None:
            continue
        if eq:
            argv[at] = f"{name}={folder / facts.path}"
        elif at + 1 < len(argv):
            argv[at + 1] = str(folder / facts.path)
    return argv


def question(case: Case, folder: Path) -> str:
    """One line for the driver."""
    command = parse_command(case.command)
    draft = str(folder / case.facts.draft.path) if case.facts.draft else None
    with_draft = draft if any("draft-model" in word for word in command.args) else None
    asked = request(engine_argv(command, case, folder), draft=with_draft)
    wanted = ("SGLANG_", "SGL_")
    env = {k: v for k, v in command.env.items() if k.startswith(wanted)}
    return json.dumps({"id": case.id, "request": asked.decode(), "env": env}) + "\n"


def ask(python: str, cases: list[Case]) -> dict[str, dict[str, Any]]:
    """The engine's verdict on each case: refused or not, and its words."""
    with tempfile.TemporaryDirectory(prefix="specops-engine-") as name:
        folder = Path(name)
        materialise(folder)
        lines = json.dumps(script()) + "\n" + "".join(question(case, folder) for case in cases)
        done = subprocess.run(
            [python, str(Path(__file__).with_name("driver.py"))],
            input=lines,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env={"PATH": "/usr/bin:/bin", "HOME": name, **ENV},
            check=False,
        )
        if done.returncode:
            sys.exit(f"the engine's driver ended with {done.returncode}:\n{done.stderr[-3000:]}")
        verdicts: dict[str, dict[str, Any]] = {}
        for line in done.stdout.splitlines():
            answer = json.loads(line)
            findings = parse_result(answer["output"].encode())
            words = [finding.message.replace(name, "") for finding in findings]
            refusals = [f for f in findings if f.rule in ("engine-refuses", "engine-draft")]
            verdicts[answer["id"]] = {
                "refused": bool(refusals),
                "unsure": bool(refusals) and all(map(_unsure, refusals)),
                "absent": any(f.rule == "engine-check-absent" for f in findings),
                "words": words,
            }
    return verdicts


def _unsure(finding: Finding) -> bool:
    """Whether a refusal is for want of a GPU or of a file that the case's host would have."""
    return finding.severity is Severity.WARNING or bool(_ABSENT.search(finding.message))


def own(case: Case) -> list[str]:
    """The own rules' errors on a case."""
    findings = check(parse_command(case.command), case.facts, case.version)
    return sorted({f.rule for f in findings if f.severity is Severity.ERROR})


def main() -> None:
    """Ask, compare, report."""
    cases = judged()
    verdicts = ask(sys.argv[1], cases)
    wrong = 0
    for case in cases:
        verdict, errors = verdicts[case.id], own(case)
        agree = agrees(case, verdict)
        wrong += not agree
        if not agree:
            print(f"DISAGREE {case.id}: own {errors or 'accepts'}, engine {verdict}")
    if "--write" in sys.argv:
        kept = {
            "sglang": DEFAULT_VERSION,
            "verdicts": {name: verdicts[name] for name in sorted(verdicts)},
        }
        VERDICTS.write_text(json.dumps(kept, indent=1) + "\n")
    refused = sum(v["refused"] for v in verdicts.values())
    unsure = sum(v["unsure"] for v in verdicts.values())
    print(f"{len(cases)} launches, {refused} refused by SGLang, {unsure} of them because it lacks "
          f"a GPU or a file; {wrong} disagreements")  # fmt: skip
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
