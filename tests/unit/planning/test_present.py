"""Which presets a relaunch keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from console.config.presets import load_presets
from console.model import Health, Phase, Run, Runner, Server, ServerState
from console.planning.present import present
from console.runners.settings import Choice

SERVER = Server("k", "h", speculative="eagle3-3step", nccl="default")
PRESETS = load_presets(Path("/nowhere/hosts.yaml"))


def run(name: str, at: float, speculative: str | None, **more: object) -> Run:
    made = Run(
        name, "k", "sglang", "h", (), {}, "/", "", 1, None, None, None, at, "me",
        speculative=speculative, nccl="default",
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def state(phase: Phase, run_id: str | None) -> ServerState:
    return ServerState("k", phase, Health.TIMEOUT, 1, 1, run_id)


SERVED = run("aa", 1.0, "eagle3-1step", outcome="ready")
NEWER = run("bb", 2.0, "eagle3-2step", outcome="stopped", phases=(("ready", 1.0),))
BROKEN = run("cc", 3.0, "eagle3-tree", outcome="failed")
OTHER = replace(run("dd", 9.0, "eagle3-tree", outcome="ready"), server="another")
RUNS = (SERVED, NEWER, BROKEN, OTHER)


@pytest.mark.parametrize(
    ("seen", "kept"),
    [
        (state(Phase.READY, "aa"), "eagle3-1step"),
        (state(Phase.LOAD_TARGET, "cc"), "eagle3-tree"),
        (state(Phase.FAILED, "cc"), "eagle3-2step"),
        (state(Phase.STOPPED, None), "eagle3-2step"),
        (None, "eagle3-2step"),
        (state(Phase.READY, "not recorded"), None),
    ],
)
def test_the_run_that_is_there_else_the_last_that_served(
    seen: ServerState | None, kept: str | None
) -> None:
    choice, said = present(SERVER, seen, RUNS, PRESETS)
    assert choice.speculative == kept
    assert choice.nccl == (kept and "default")
    assert said == ("" if kept is None else said)
    assert ("hosts.yaml: speculative eagle3-3step" in said) == (kept is not None)


def test_what_hosts_yaml_names_is_not_told_again() -> None:
    same = replace(SERVER, speculative="eagle3-1step")
    assert present(same, state(Phase.READY, "aa"), RUNS, PRESETS) == (
        Choice("eagle3-1step", "default"), ""
    )  # fmt: skip


def test_never_served_is_what_hosts_yaml_names() -> None:
    assert present(SERVER, None, (BROKEN, OTHER), PRESETS) == (Choice(), "")


def test_a_preset_that_is_gone_is_not_asked_for() -> None:
    gone = run("aa", 1.0, "mine-of-last-year", preset="whole", outcome="ready")
    assert present(SERVER, None, (gone,), PRESETS) == (Choice(None, "default"), "")


def test_a_container_keeps_its_flags() -> None:
    docker = replace(SERVER, runner=Runner("docker", container="c"))
    assert present(docker, state(Phase.READY, "aa"), RUNS, PRESETS) == (Choice(), "")
    made = replace(docker, runner=Runner("docker", container="c", image="i"))
    assert present(made, state(Phase.READY, "aa"), RUNS, PRESETS)[0].speculative == "eagle3-1step"
