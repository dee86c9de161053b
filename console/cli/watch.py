"""``specops watch``: what becomes of a server, whoever started it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from console.actions.journal import Unfinished, unfinished
from console.cli.common import Cli, connected_all
from console.cli.documents import nodes_to_json, phases_to_json
from console.cli.output import duration, paint, print_json, say
from console.cli.serve import Ended, StateLine, document, exit_of, say_end
from console.diagnosis import diagnosis_to_json
from console.errors import HostError
from console.watch.group import watcher_of
from console.watch.watching import Watched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from console.model import Server
    from console.remote import Remote

ASK_EVERY_S = 1.0
"""While nothing of the server runs, so often it is asked whether a plan is still to start it."""


class Plans:
    """Asks the hosts about unfinished plans of a server, not at every look."""

    def __init__(self, remotes: Sequence[Remote], server: str) -> None:
        self._remotes = remotes
        self._server = server
        self._at = float("-inf")
        self._to_come = False

    async def last(self) -> Unfinished | None:
        """The plan that has no end, if there is one.

        Raises:
            HostError: no link is left.
        """
        return await unfinished(self._remotes, self._server)

    async def to_come(self) -> bool:
        """Whether a console is at work on a plan that will start the server."""
        if time.monotonic() - self._at >= ASK_EVERY_S:
            found = await self.last()
            self._to_come = found is not None and found.under_way and found.starts
            self._at = time.monotonic()
        return self._to_come


async def watch_server(cli: Cli, name: str, bound_s: float | None) -> int:
    """Follow a server until it is ready, stopped, failed or stalled; returns the exit code.

    How a start went is kept in its run's record, as by the console that started it.

    Raises:
        HostError: the link is lost, or one of the hosts of its nodes is not reached; it then says
            what the others remember of an unfinished plan.
    """
    config = cli.config()
    server = config.server(name)
    lost: dict[str, HostError] = {}
    async with connected_all(config, server.nodes, lost=lost) as remotes:
        plans = Plans(tuple(remotes.values()), name)
        try:
            for error in lost.values():
                raise error
            watched = await _watched(cli, server, remotes, plans, bound_s)
        except HostError as error:
            if len(server.nodes) > 1:
                error.hint = await _left(error, server, plans)
            raise
        _say(cli, name, watched, await plans.last())
    return exit_of(watched.outcome)


async def _watched(
    cli: Cli, server: Server, remotes: Mapping[str, Remote], plans: Plans, bound_s: float | None
) -> Watched:
    tell = None if cli.json else StateLine(server.name)
    watcher = watcher_of(server, remotes, tell, to_come=plans.to_come)
    try:
        watched = await watcher.watch(bound_s)
        if watched.outcome in ("ready", "failed", "stalled"):
            watched = await watcher.remember(watched)
    finally:
        await watcher.close()
    return watched


async def _left(error: HostError, server: Server, plans: Plans) -> str:
    """What the nodes that are reached can tell, where one is not."""
    try:
        plan = await plans.last()
    except HostError:  # of none of them
        return error.hint
    said = f"no other of its hosts knows an unfinished plan of {server.name}"
    told = said if plan is None else plan.words
    return "; ".join(filter(None, (error.hint, told, "specops status shows the other nodes")))


def _say(cli: Cli, name: str, watched: Watched, plan: Unfinished | None) -> None:
    state = watched.state
    if not cli.json:
        ended = Ended(watched.outcome, watched.detail, state, watched.start_s)
        say_end(name, ended, f"watched for {duration(watched.seconds)}")
        if plan is not None:
            say(paint(plan.words, "yellow"))
        return
    print_json(
        {
            **document(name, watched.outcome, None, state.phase.value, watched.seconds),
            "phases": phases_to_json(state),
            "diagnosis": diagnosis_to_json(state.diagnosis) if state.diagnosis else None,
            "detail": watched.detail,
            "start_s": watched.start_s,
            "health": state.health.value,
            "run_id": state.run_id,
            "note": state.note,
            "nodes": nodes_to_json(state),
            "unfinished": None
            if plan is None
            else {
                "plan_id": plan.record.plan.id,
                "under_way": plan.under_way,
                "done": sorted(plan.record.done),
                "in_doubt": plan.record.in_doubt,
                "detail": plan.words,
            },
        }
    )
