"""Which presets a server has at present, whatever hosts.yaml names for its next launch."""

from __future__ import annotations

from collections.abc import Sequence

from console.config.presets import Presets
from console.model import Phase, Run, Server, ServerState
from console.runners.settings import Choice

OVER = frozenset({Phase.FAILED, Phase.STOPPED})


def present(
    server: Server, state: ServerState | None, runs: Sequence[Run], presets: Presets
) -> tuple[Choice, str]:
    """The presets of the run that is there, else of the last that served, else of hosts.yaml.

    The second is a line that says what hosts.yaml names where that is something else.
    A preset that is gone, or that a container could not take, is not asked for; one that cannot
    be read is, and refused then.
    """
    run = _meant(state, [run for run in runs if run.server == server.name])
    if run is None or (server.runner.kind == "docker" and server.runner.image is None):
        return Choice(), ""
    known = {*presets.by_key, *presets.broken}
    wanted = {"speculative": run.speculative, "nccl": run.nccl, "server": run.preset}
    named = {kind: name for kind, name in wanted.items() if name and (kind, name) in known}
    other = [
        f"{kind} {configured or 'none'}"
        for kind, configured in (("speculative", server.speculative), ("nccl", server.nccl))
        if kind in named and named[kind] != configured
    ]
    said = f"as run {run.run_id}; hosts.yaml: {', '.join(other)}" if other else ""
    return Choice(named.get("speculative"), named.get("nccl"), named.get("server")), said


def _meant(state: ServerState | None, runs: Sequence[Run]) -> Run | None:
    if state is not None and state.phase not in OVER:
        return next((run for run in runs if run.run_id == state.run_id), None)
    served = (run for run in runs if run.served)
    return max(served, key=lambda run: run.launched_at, default=None)
