"""A server over several hosts seen as one: which of its nodes take part. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from console.model import HostState, HostView, NodeState, Phase, Server, ServerState

MISSING = "is missing"
SEEN = (HostState.OK, HostState.STALE)


def node_of(rank: int, host: str, state: ServerState, run_id: str | None) -> NodeState:
    """One node as its own host shows it; ``run_id`` is the run that it should be part of."""
    node = NodeState(rank, host, state.phase, state.pid)
    if state.pid is None:
        failed = state.phase is Phase.FAILED and state.run_id == run_id
        return replace(node, lacks="has failed" if failed else MISSING)
    if state.phase is Phase.FAILED:
        return replace(node, lacks="has failed")
    if run_id is not None and state.run_id != run_id:
        return replace(node, lacks=f"is of another run, {state.run_id or 'unknown'}")
    return node


def nodes_of(states: Iterable[tuple[str, ServerState | str]]) -> tuple[NodeState, ...]:
    """All nodes, by rank: (host, what it shows, or in words why it shows nothing).

    The run is node 0's where that lives, else that of the first that does.
    """
    rows = list(states)
    seen = [state for _, state in rows if isinstance(state, ServerState)]
    run_id = next((state.run_id for state in seen if state.pid is not None), None)
    run_id = run_id or next((state.run_id for state in seen), None)
    return tuple(
        node_of(rank, host, state, run_id)
        if isinstance(state, ServerState)
        else NodeState(rank, host, Phase.STOPPED, lacks=f"is not known: {state}")
        for rank, (host, state) in enumerate(rows)
    )


def lacking_words(nodes: Iterable[NodeState]) -> str:
    """What is wrong with them in one line; empty where nothing is."""
    return "; ".join(node.words for node in nodes if node.lacks is not None)


def joined(views: Mapping[str, HostView], servers: Iterable[Server]) -> dict[str, HostView]:
    """The views, with every node of a server over several hosts told of all the others."""
    out = dict(views)
    for server in servers:
        if len(server.nodes) < 2:
            continue
        nodes = nodes_of((host, _shown(out.get(host), server.name)) for host in server.nodes)
        for host in server.nodes:
            if (view := out.get(host)) is not None:
                states = tuple(
                    replace(state, nodes=nodes) if state.name == server.name else state
                    for state in view.servers
                )
                out[host] = replace(view, servers=states)
    return out


def _shown(view: HostView | None, name: str) -> ServerState | str:
    """A server's state on a host; what a lost host showed last says nothing of now."""
    if view is None:
        return "the host was not looked at"
    if view.state not in SEEN:
        return f"the host is {view.state.value}"
    return next((s for s in view.servers if s.name == name), None) or "the host shows no servers"
