"""The same error from several ranks is one error: which tracebacks repeat an earlier one. Pure."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from console.logs.lines import FRAMES, RANK, Kind, body_of

RECENT = 64
"""Different errors that a new one is compared with, the newest ones."""

APART = 20_000
"""Lines that two ranks' reports of one error may lie apart."""

LONGEST = 400
"""Lines of a traceback that are compared; a longer one stands for itself."""

_OWN = re.compile(rb"0x[0-9a-fA-F]+|\d+")


@dataclass(slots=True)
class Group:
    """One error: the line that raises it first, and who raised it where, in order."""

    first: int
    last: int
    ranks: list[str] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)


class Groups:
    """Fed with each traceback as it ends."""

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[bytes, ...], Group] = OrderedDict()
        self._of: dict[int, Group] = {}
        self.repeats: set[int] = set()
        """Lines that raise what another rank raised already."""

    def take(self, kinds: Sequence[int], raised: int, raw: Callable[[int], bytes]) -> int | None:
        """A traceback has ended at ``raised``; its first line where it repeats another rank's."""
        head = raised
        while head > 0 and raised - head < LONGEST and kinds[head - 1] in FRAMES:
            head -= 1
        if head in (raised, 0) or kinds[head - 1] != Kind.TRACEBACK:
            return None
        head -= 1
        rank = rank_word(raw, head) or rank_word(raw, raised)
        if rank is None:
            return None
        frames = (body_of(raw(number)) for number in range(head + 1, raised))
        key = (*frames, _OWN.sub(b"#", RANK.sub(b"", body_of(raw(raised)))))
        group = self._recent.get(key)
        if group is None or rank in group.ranks or raised - group.last > APART:
            self._recent[key] = Group(raised, raised, [rank], [head])
            self._recent.move_to_end(key)
            if len(self._recent) > RECENT:
                self._recent.popitem(last=False)
            return None
        group.last = raised
        group.ranks.append(rank)
        group.heads.append(head)
        self._of[group.first] = group
        self._of[raised] = group
        self.repeats.add(raised)
        return head

    def of(self, line: int) -> Group | None:
        """The group that a line raises for, where there is more than one rank in it."""
        return self._of.get(line)

    def lines(self, group: Group) -> list[int]:
        """The lines that raise it, of every rank."""
        return [line for line, other in self._of.items() if other is group]

    def between(self, first: int, last: int) -> list[str]:
        """The ranks whose reports begin within these lines."""
        groups = {id(self._of[n]): self._of[n] for n in range(first, last + 1) if n in self._of}
        return [
            rank
            for group in groups.values()
            for rank, head in zip(group.ranks, group.heads, strict=True)
            if first <= head <= last
        ]


def rank_word(raw: Callable[[int], bytes], line: int) -> str | None:
    """The rank that a line names near its start, as ``TP3`` or ``rank3``."""
    found = RANK.findall(raw(line)[:160])
    named = [hit for hit in found[:3] if hit[0]] or found[:1]  # "rank3 | [... TP3]" says it twice
    words = (f"{a.decode() or 'rank'}{(b or c or d).decode()}" for a, b, c, d in named)
    return " ".join(dict.fromkeys(words)) or None


def spoken(ranks: Sequence[str]) -> str:
    """Ranks in a few words: ``TP1 TP3-TP7``."""
    split = [re.fullmatch(r"(.*?)(\d+)", rank) for rank in ranks]
    numbers = sorted((match[1], int(match[2])) for match in split if match)
    out: list[str] = []
    at = 0
    while at < len(numbers):
        end = at
        word, number = numbers[at]
        while end + 1 < len(numbers) and numbers[end + 1] == (word, numbers[end][1] + 1):
            end += 1
        if end - at < 2:
            out += [f"{word}{n}" for _, n in numbers[at : end + 1]]
        else:
            out.append(f"{word}{number}-{word}{numbers[end][1]}")
        at = end + 1
    return " ".join(out)
