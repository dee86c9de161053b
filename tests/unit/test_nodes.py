"""Several hosts' states of one server as the state of one server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.model import (
    Diagnosis,
    Health,
    Host,
    HostState,
    HostView,
    Phase,
    Root,
    Server,
    ServerState,
)
from console.watch.group import Ending, culprit
from console.watch.nodes import joined, lacking_words, nodes_of
from widgets.words import server_word, why

SERVER = Server("big", "a", hosts=("a", "b", "c"))
READY = ServerState("big", Phase.READY, Health.OK, 10, 30000, "r1", rank=0)
GONE = ServerState("big", Phase.STOPPED, Health.NONE)


def view(host: str, state: ServerState | None, how: HostState = HostState.OK) -> HostView:
    return HostView(Host(host, host), how, servers=(state,) if state else ())


def shown(**states: HostView) -> tuple[HostView, ServerState]:
    """Node 0's view and state once all were looked at together."""
    first = joined(states, [SERVER])["a"]
    return first, first.servers[0]


@pytest.mark.parametrize(
    ("other", "word", "text"),
    [
        (view("b", READY), "ready", ""),
        (view("b", GONE), "RANK 1 MISSING", "rank 1 on b is missing"),
        (
            view("b", replace(GONE, phase=Phase.FAILED, run_id="r1")),
            "RANK 1 FAILED",
            "rank 1 on b has failed",
        ),
        (view("b", replace(GONE, phase=Phase.FAILED, run_id="r0")), "RANK 1 MISSING", "is missing"),
        (view("b", replace(READY, run_id="r0")), "RANK 1 OF ANOTHER RUN", "of another run, r0"),
        (view("b", replace(READY, phase=Phase.FAILED)), "RANK 1 FAILED", "rank 1 on b has failed"),
        (view("b", READY, HostState.UNREACHABLE), "rank 1 ?", "the host is unreachable"),
        (view("b", None), "rank 1 ?", "the host shows no servers"),
    ],
)
def test_what_a_node_lacks_is_told_at_the_first(other: HostView, word: str, text: str) -> None:
    first, state = shown(a=view("a", READY), b=other, c=view("c", READY))
    assert server_word(first, state).text.startswith(word)
    said = [line for label, line in why(first, state, 0.0) if label == "NODE"]
    assert (text in said[0]) if text else not said


def test_a_host_that_was_not_looked_at_is_not_known() -> None:
    _, state = shown(a=view("a", READY), c=view("c", READY))
    assert lacking_words(state.nodes) == "rank 1 on b is not known: the host was not looked at"


def test_a_server_that_runs_nowhere_lacks_nothing() -> None:
    _, state = shown(a=view("a", GONE), b=view("b", GONE), c=view("c", GONE))
    assert state.lacking == ()


def test_the_others_are_told_that_the_first_is_gone() -> None:
    views = joined(
        {"a": view("a", GONE), "b": view("b", READY), "c": view("c", READY)}, [SERVER]
    )  # fmt: skip
    for host in ("b", "c"):
        (lacking,) = views[host].servers[0].lacking
        assert lacking.words == "rank 0 on a is missing"


def test_a_server_of_one_host_has_no_nodes() -> None:
    only = {"a": view("a", READY)}
    assert joined(only, [Server("big", "a"), Server("other", "b")]) == only


def failed(category: str, root: str | None = "RuntimeError") -> ServerState:
    said = Diagnosis(Root(root, "x") if root else None, category, "load_target", "said")
    return replace(READY, phase=Phase.FAILED, diagnosis=said)


ENDED: Ending = ("failed", "its processes are gone")
NEVER: Ending = ("stopped", "no run of it")


@pytest.mark.parametrize(
    ("states", "endings", "rank", "victim"),
    [
        ([READY, failed("gpu-oom-load")], [None, ENDED], 1, False),
        ([failed("peer-rank-lost"), failed("gpu-oom-load")], [ENDED, ENDED], 1, False),
        ([failed("gpu-oom-load"), failed("peer-rank-lost")], [None, ENDED], 0, False),
        ([failed("nccl-init"), GONE], [ENDED, NEVER], 1, False),
        ([failed("collective-timeout"), failed("none", None)], [ENDED, ENDED], 1, False),
        ([failed("nccl-init"), failed("peer-rank-lost")], [ENDED, ENDED], 0, False),
        ([failed("args-validation"), GONE], [ENDED, NEVER], 0, False),
        ([READY, failed("peer-rank-lost")], [None, ENDED], 1, True),
    ],
)
def test_the_rank_that_the_others_followed(
    states: list[ServerState], endings: list[Ending | None], rank: int, victim: bool
) -> None:
    assert culprit(states, endings) == (rank, victim)


def test_the_run_is_the_first_living_nodes() -> None:
    nodes = nodes_of([("a", replace(GONE, run_id="old")), ("b", READY), ("c", READY)])
    assert [node.lacks for node in nodes] == ["is missing", None, None]
