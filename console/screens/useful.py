"""Which keys are worth their place in the bar now; the others work all the same."""

from __future__ import annotations

from console.model import HostView, Phase, ServerState
from widgets.words import SHOWN_ONLY

_OVER = (Phase.STOPPED, Phase.FAILED)


def useful(action: str, view: HostView, state: ServerState | None) -> bool:
    """Whether an action has something to act on: a bar has room for six at 80 columns."""
    snapshot = view.snapshot
    if action == "kill-zombies":
        return any(zombie.kind not in SHOWN_ONLY for zombie in view.zombies)
    if action == "clean":
        return bool(snapshot and snapshot.artefacts)
    if action == "reset-gpu":
        return bool(snapshot and any(gpu.asks for gpu in snapshot.gpus))
    if state is None:
        return True
    if action == "launch":
        return state.phase in _OVER
    if action == "stop":
        return state.phase is not Phase.STOPPED  # of a failed one: it was seen
    if action == "bench":
        return state.phase is Phase.READY
    return True
