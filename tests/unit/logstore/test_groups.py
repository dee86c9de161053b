"""One error from many ranks is one error; the root comes before its victims."""

# ruff: noqa: E501 - log lines read better whole

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from console.diagnosis import diagnose
from console.logs.groups import spoken
from console.logs.judged import Judged, end_of, judged, next_stop, note_of
from console.logs.lines import Kind
from console.logs.store import LogStore
from tests import scale

START = b"[2026-11-29 05:49:02] server_args=ServerArgs(model_path='/m', tp_size=8)\n"
SIGQUIT = (
    b"[2026-11-29 05:58:24] Received sigquit from a child process. It usually means the child\n"
)


def report(
    rank: str, error: str = "ValueError: {rank} no", *, depth: int = 3, line: int = 5
) -> bytes:
    """What one rank prints when it raises."""
    rows = [
        f"[2026-11-29 05:58:22 {rank}] Scheduler hit an exception: Traceback (most recent call last):"
    ]
    for n in range(depth):
        rows += [f'  File "/srv/sglang/srt/m{n}.py", line {line + n}, in f{n}', "    go()"]
    return "\n".join([*rows, error.format(rank=rank), "", ""]).encode()


def filled(*parts: bytes, step: int = 1 << 20) -> LogStore:
    store, data = LogStore(), b"".join(parts)
    for at in range(0, len(data), step):
        store.append(data[at : at + step])
    return store


def verdict_on(store: LogStore) -> Judged:
    first, data = end_of(store)
    found = judged(diagnose(data), first, store)
    assert found is not None
    return found


def shown(store: LogStore) -> list[int]:
    return [store.folds.line_of(row) for row in range(len(store) - store.folds.hidden)]


@pytest.mark.parametrize("step", [1 << 20, 7, 300])
def test_eight_ranks_with_one_error_are_one(step: int) -> None:
    ranks = [f"TP{n}" for n in (3, 0, 1, 2, 4, 5, 6, 7)]
    store = filled(START, *(report(rank) for rank in ranks), SIGQUIT, step=step)
    assert len(store.errors) == 8
    assert len(store.groups.repeats) == 7
    group = store.groups.of(store.errors[0])
    assert group is not None
    assert group.ranks == ranks
    repeats = [line for line in shown(store) if store.folds.is_repeat(line)]
    assert len(repeats) == 1
    first, last = store.folds.at(repeats[0]) or (0, 0)
    assert spoken(store.groups.between(first, last)) == "TP0-TP2 TP4-TP7"
    assert last == store.errors[-1]
    assert [line for line in store.errors if line in shown(store)] == [store.errors[0]]


@pytest.mark.parametrize(
    "second",
    [
        report("TP1", line=6),  # raised elsewhere
        report("TP1", depth=4),  # by another way
        report("TP1", "ValueError: something else"),
        report("TP1", "KeyError: {rank} no"),
        report("TP0"),  # the same rank once more: not another rank
        report("", "ValueError: no"),  # by nobody known
    ],
)
def test_what_differs_stays_apart(second: bytes) -> None:
    store = filled(START, report("TP0"), second)
    assert len(store.errors) == 2
    assert store.groups.repeats == set()
    assert set(store.errors) <= set(shown(store))


def test_ranks_of_a_restart_are_a_group_of_their_own() -> None:
    once = report("TP0") + report("TP1")
    store = filled(START, once, START, once)
    groups = [store.groups.of(line) for line in store.errors]
    assert [len(group.ranks) if group else 0 for group in groups] == [2, 2, 2, 2]
    assert groups[0] is not groups[2]


def test_ranks_that_mark_every_line_and_other_lines_between_them() -> None:
    def marked(rank: int) -> bytes:
        rows = report("x").split(b"\n")[1:-2]
        head = b"Traceback (most recent call last):"
        return b"".join(b"[rank%d]: %s\n" % (rank, row) for row in (head, *rows))

    store = filled(START, marked(0), b"a line between\n", marked(5), marked(6))
    assert len(store.groups.repeats) == 2
    assert "a line between" in [store.text(line) for line in shown(store)]
    assert store.groups.between(0, len(store)) == ["rank0", "rank5", "rank6"]


def test_the_root_first_then_its_victims_in_order() -> None:
    gloo = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:1"
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 6 has a total capacity of 79.11 GiB of which 612.69 MiB is free."
    store = filled(
        report("TP9", "KeyError: 'of an earlier start'"), b"\n", START,
        report("TP1", gloo, depth=2), report("TP6", oom), report("TP7", gloo, depth=1), SIGQUIT,
    )  # fmt: skip
    verdict = verdict_on(store)
    early, first, root, second = store.next_error(0, 1), *sorted(
        [verdict.root or 0, *verdict.victims]
    )[:3]  # fmt: skip
    assert "OutOfMemoryError" in store.text(root)
    assert verdict.root == root
    assert {first, second} <= verdict.victims
    stops, at = [], 0
    for _ in range(6):
        at = next_stop(store, verdict, at, 1, folded=True) or 0
        stops.append(at)
    assert stops == [early, root, first, second, root, first]
    back, at = [], second
    for _ in range(4):
        at = next_stop(store, verdict, at, -1, folded=True) or 0
        back.append(at)
    assert back == [first, root, early, root]
    assert next_stop(store, verdict, len(store), -1, folded=True) == root
    kinds = {line: store.kind(line) for line in (root, first)}
    assert note_of(store, verdict, root, kinds[root])[0] == "root cause"
    assert note_of(store, verdict, first, kinds[first])[0] == "victim of TP6 OutOfMemoryError"
    sigquit = next(n for n in range(len(store)) if "sigquit" in store.text(n))
    assert note_of(store, verdict, sigquit, Kind.FOLLOWS)[0] in (
        "follows from ✖", "victim of TP6 OutOfMemoryError"
    )  # fmt: skip
    assert note_of(store, verdict, 0, Kind.PLAIN)[0] == ""


def test_without_a_verdict_errors_come_in_the_order_of_lines() -> None:
    store = filled(START, report("TP0"), report("TP1"), report("TP1", "KeyError: 1"))
    stops: list[int | None] = []
    at = 0
    for _ in range(3):
        found = next_stop(store, None, at, 1, folded=True)
        stops.append(found)
        at = found or 0
    assert stops == [store.errors[0], store.errors[2], store.errors[0]]
    unfolded = next_stop(store, None, store.errors[0], 1, folded=False)
    assert unfolded == store.errors[1]
    assert next_stop(LogStore(), None, 0, 1, folded=True) is None


def test_every_stop_is_reached_whatever_the_log() -> None:
    rng = random.Random(scale.seed())
    for _ in range(60):
        parts = [START]
        for _ in range(rng.randrange(1, 12)):
            error = rng.choice(
                ["ValueError: {rank} no", "KeyError: 1", "RuntimeError: Connection closed by peer"]
            )
            parts.append(report(f"TP{rng.randrange(8)}", error, depth=rng.randrange(1, 4)))
        store = filled(*parts)
        verdict = verdict_on(store)
        for step in (1, -1):
            seen: set[int] = set()
            at = rng.randrange(len(store))
            for _ in range(3 * len(store.errors) + 3):
                at = next_stop(store, verdict, at, step, folded=True) or 0
                seen.add(at)
            first_of = set(store.errors) - store.groups.repeats
            if step > 0:
                assert seen >= {n for n in first_of if n >= verdict.span[0]}
            assert verdict.root in seen


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (["TP1"], "TP1"),
        (["TP1", "TP0"], "TP0 TP1"),
        (["TP2", "TP0", "TP1"], "TP0-TP2"),
        (["DP1 TP0", "DP0 TP0", "DP0 TP1"], "DP0 TP0 DP0 TP1 DP1 TP0"),
        ([], ""),
    ],
)
def test_ranks_in_words(ranks: Sequence[str], words: str) -> None:
    assert spoken(ranks) == words
