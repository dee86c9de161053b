"""What a diagnosis says of the lines of a stored log: the root, and what only followed from it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from console.logs.groups import rank_word
from console.logs.lines import Kind
from console.logs.store import LogStore
from console.model import Diagnosis

JUDGED_BYTES = 4 << 20
"""Of a log so much of its end is judged: the last start is in it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A diagnosis by the store's line numbers. ``root`` is ``None`` where nothing was raised."""

    diagnosis: Diagnosis
    root: int | None
    victims: frozenset[int]
    rank: str = ""

    @property
    def who(self) -> str:
        """The root in a few words: rank and type."""
        root = self.diagnosis.root
        return " ".join(filter(None, (self.rank, root.type.rpartition(".")[2]))) if root else ""

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last line of the failure; (-1, -1) without a root."""
        lines = [*self.victims, *([] if self.root is None else [self.root])]
        return (min(lines), max(lines)) if self.root is not None else (-1, -1)


def end_of(store: LogStore) -> tuple[int, bytes]:
    """The end of a log to be judged: the number of its first line, and its bytes."""
    blocks = list(store.blocks())
    kept, size = [], 0
    for first, data, _ in reversed(blocks):
        kept.append((first, data))
        size += len(data)
        if size >= JUDGED_BYTES:
            break
    kept.reverse()
    return kept[0][0], b"".join(bytes(data) for _, data in kept)


def judged(diagnosis: Diagnosis, first: int, store: LogStore) -> Judged | None:
    """The diagnosis of lines from ``first`` on by the store's numbers; ``None``: nothing wrong."""
    if diagnosis.category == "none":
        return None
    root = diagnosis.root
    at = None if root is None or root.log_line is None else first + root.log_line - 1
    if at is not None and not 0 <= at < len(store):
        at = None
    group = store.groups.of(at) if at is not None else None
    same = {at} if group is None else set(store.groups.lines(group))
    victims = (first + number - 1 for number in diagnosis.victim_lines)
    at = group.first if group is not None else at
    rank = (root.rank if root else "") or (rank_word(store.raw, at) if at is not None else "")
    return Judged(diagnosis, at, frozenset(n for n in victims if n not in same), rank or "")


def next_stop(
    store: LogStore, verdict: Judged | None, cursor: int, step: int, *, folded: bool
) -> int | None:
    """Where ``e`` (1) and ``E`` (-1) go: from error to error, but to the root before its victims.

    ``None`` where there is no error. Repeats that are folded away are passed over. Behind the last
    error it is the root's turn again, or the first's where there is no root.
    """
    root = verdict.root if verdict else None
    victims = sorted(verdict.victims) if verdict and root is not None else []
    passed = {root, *(store.groups.repeats if folded else ())}

    def beyond(line: int, way: int) -> int | None:
        found = store.next_error(line, way)
        while found is not None and found in passed:
            found = store.next_error(found, way)
        at = bisect_right(victims, line) if way > 0 else bisect_left(victims, line) - 1
        victim = victims[at] if 0 <= at < len(victims) else None
        if found is None or victim is None:
            return victim if found is None else found
        return min(found, victim) if way > 0 else max(found, victim)

    if root is None or verdict is None:
        found = beyond(cursor, step)
        return beyond(-1 if step > 0 else len(store), step) if found is None else found
    low, high = verdict.span
    inside = low <= cursor <= high
    if cursor == root:
        found = beyond(low - 1, 1) if step > 0 else beyond(low, -1)
    else:
        found = beyond(cursor, step)
        enters = found is not None and low <= found <= high and not inside
        leaves = step < 0 and inside and (found is None or found < low)
        passes = not inside and (cursor < low) == (step > 0) and (
            found is None or (found > high if step > 0 else found < low)
        )  # fmt: skip
        if enters or leaves or passes:
            return root
    return root if found is None else found


def note_of(store: LogStore, verdict: Judged | None, line: int, kind: Kind) -> tuple[str, str]:
    """What is said at the right of a line, with its role: root, ranks, victim; "" for most."""
    if left_out := store.left_out(line):
        return f"{left_out:,} bytes left out", "warn"
    group = store.groups.of(line)
    ranks = f"{len(group.ranks)} ranks, same error" if group and group.first == line else ""
    if verdict is None or verdict.root is None:
        return ranks, "bad"
    if line == verdict.root:
        return f"root cause · {ranks}" if ranks else "root cause", "bad"
    if group is not None and group is store.groups.of(verdict.root):
        return f"as {verdict.who}", "bad"
    low, high = verdict.span
    if line in verdict.victims:
        who = f"victim of {verdict.who}"
        return f"{who} · {ranks}" if ranks else who, "warn"
    if kind is Kind.FOLLOWS and low <= line <= max(high, verdict.root) + FOLLOWS:
        return "follows from ✖", "warn"
    return ranks, "bad"


FOLLOWS = 200
"""Lines after a failure within which what tells of an end is its."""
