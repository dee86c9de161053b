"""How the presets have done on a host with a model, for the lists that offer them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from console.config.presets import KINDS, Presets
from console.model import Preset
from console.planning.past import measurements
from console.planning.ranking import Standing, rank_presets

if TYPE_CHECKING:
    from console.app import SpecopsApp

ROLES = {"works": "ok", "worked": "warn", "fails": "bad", "untried": "dim"}
"""The role of each verdict; the word stands beside it."""

Standings = Mapping[tuple[str, str], Standing]
"""By kind and name, what worked first."""


async def standings(
    app: SpecopsApp, presets: Presets, host: str | None, server: str | None
) -> Standings:
    """The standing of every preset on a host with the model of a server; of all without them.

    Reads this operator's measurements off the event loop.
    """
    view = app.views.get(host) if host else None
    state = next((s for s in view.servers if s.name == server), None) if view else None
    entry = app.config.servers.get(server) if server else None
    model = (state.model if state else "") or (entry.model if entry else "") or None
    runs = [run for seen in app.views.values() for run in seen.runs]
    ranked = await asyncio.to_thread(
        lambda: rank_presets(presets, runs, measurements(), host=host, model=model)
    )
    return {(one.kind, one.preset): one for one in ranked}


def by_standing(presets: list[Preset], found: Standings) -> list[Preset]:
    """The presets by kind, within a kind what worked first; those without a standing last."""
    order = {key: at for at, key in enumerate(found)}
    return sorted(
        presets,
        key=lambda p: (KINDS.index(p.kind), order.get((p.kind, p.name), len(order)), p.name),
    )
