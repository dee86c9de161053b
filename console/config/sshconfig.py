"""Hosts proposed from the operator's own ``~/.ssh/config``. Pure; reading files is the caller's.

Follows ssh_config(5) where it matters here: the first value of a keyword wins, blocks with patterns
apply to the names they match, ``Include`` reads other files in place. ``Match`` blocks are left
out: they may run commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from console.config.schema import HOSTNAME, NAME, USER

Include = Callable[[str], Sequence[str]]
"""The texts of the files that one word after ``Include`` means."""

DEEPEST = 16
"""How deep files may include each other, as in ssh; one that includes itself ends there."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One host as hosts.yaml would have it; ``why_not`` says why it cannot be taken over."""

    name: str
    values: Mapping[str, object] = field(default_factory=dict)
    why_not: str = ""

    @property
    def jump(self) -> str | None:
        """The host that this one is reached through."""
        value = self.values.get("jump")
        return value if isinstance(value, str) else None


@dataclass(slots=True)
class _Block:
    conditions: list[list[str]]
    """Lists of patterns that must all match: a file included within a block has two."""
    values: dict[str, list[str]] = field(default_factory=dict)

    def applies(self, name: str) -> bool:
        """Whether a name is meant: each time by a pattern, and by no negated one."""
        return all(_matches(name, patterns) for patterns in self.conditions)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    if any(fnmatchcase(name, p[1:]) for p in patterns if p.startswith("!")):
        return False
    return any(fnmatchcase(name, p) for p in patterns if not p.startswith("!"))


def _no_files(_word: str) -> Sequence[str]:
    return ()


def proposals(text: str, user: str, include: Include = _no_files) -> tuple[Proposal, ...]:
    """Every ``Host`` of an ssh_config without wildcards. ``user`` is the operator's login name."""
    blocks = list(_blocks(text, include, [], DEEPEST))
    patterns = (p for b in blocks for condition in b.conditions for p in condition)
    names = list(dict.fromkeys(p for p in patterns if not set("*?!") & set(p)))
    found = {name: _proposal(name, blocks, names, user) for name in names}
    return tuple(_reachable(one, found) for one in found.values())


def _reachable(one: Proposal, found: Mapping[str, Proposal]) -> Proposal:
    """The proposal, by the system's ssh where its jump host cannot stand in a hosts.yaml."""
    if one.jump is None or not found[one.jump].why_not:
        return one
    return replace(one, values=_by_ssh(one.name, str(one.values["user"])))


def _by_ssh(name: str, login: str) -> dict[str, object]:
    """Only ssh itself knows the way, so it is given its own name for the host."""
    return {"address": name, "transport": "openssh", "user": login}


def _blocks(text: str, include: Include, within: list[list[str]], depth: int) -> Iterator[_Block]:
    block: _Block | None = _Block(within)
    for row in text.splitlines():
        words = _words(row)
        if not words:
            continue
        keyword, rest = words[0].lower(), words[1:]
        if keyword in ("host", "match"):
            if block is not None:
                yield block
            block = _Block([*within, rest]) if keyword == "host" else None
        elif block is None or not rest:
            continue
        elif keyword == "include" and depth:
            yield block  # what stands before it comes first
            for inner in (inner for word in rest for inner in include(word)):
                yield from _blocks(inner, include, block.conditions, depth - 1)
            block = _Block(block.conditions)
        elif keyword == "identityfile":  # the one keyword that adds up
            block.values.setdefault(keyword, []).extend(rest)
        else:
            block.values.setdefault(keyword, rest)
    if block is not None:
        yield block


def _words(row: str) -> list[str]:
    row = row.strip()
    if not row or row.startswith("#"):
        return []
    keyword = row.replace("=", " ", 1) if "=" in row.split(None, 1)[0] else row
    try:
        words = shlex.split(keyword)
    except ValueError:
        return []
    return words[:1] + words[2:] if words[1:2] == ["="] else words


def _proposal(name: str, blocks: Sequence[_Block], names: Sequence[str], user: str) -> Proposal:
    found: dict[str, list[str]] = {}
    for block in blocks:
        if block.applies(name):
            for keyword, words in block.values.items():
                if keyword == "identityfile":
                    found.setdefault(keyword, []).extend(words)
                else:
                    found.setdefault(keyword, words)
    address = found.get("hostname", [name])[0].replace("%h", name)
    login = found.get("user", [user])[0]
    port = found.get("port", ["22"])[0]
    if not NAME.fullmatch(name):
        return Proposal(name, why_not="its name does not fit a hosts.yaml")
    if not HOSTNAME.fullmatch(address) and ":" not in address:
        return Proposal(name, why_not="its HostName is no host name")
    if not USER.fullmatch(login) or not port.isdigit():
        return Proposal(name, why_not="its User or Port is not plain")
    jump = found.get("proxyjump", ["none"])[0]
    if "proxycommand" in found or (jump != "none" and jump not in names):
        return Proposal(name, _by_ssh(name, login))
    values: dict[str, object] = {"address": address, "user": login}
    if port != "22":
        values["port"] = int(port)
    if jump != "none":
        values["jump"] = jump
    if "identityfile" in found and not any("%" in path for path in found["identityfile"]):
        values["identity_files"] = found["identityfile"]
    return Proposal(name, values)


DEMO = (
    "  demo: {transport: local}",
    "servers:",
    "  # The bundled pair, to try things on this machine; its worker outlives a killed launcher.",
    "  demo-eagle3: {host: demo, engine: bundled, port: 30000, speculative: eagle3-3step,",
    "                args: {no-parent-death-signal: true}}",
)


def with_jumps(found: Sequence[Proposal], names: Sequence[str]) -> tuple[Proposal, ...]:
    """The proposals of these names, and the hosts that they are reached through."""
    by_name = {one.name: one for one in found}
    wanted, queue = set(), [name for name in names if name in by_name]
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue += [jump for jump in (by_name[name].jump,) if jump in by_name]
    return tuple(one for one in found if one.name in wanted)


def entry(one: Proposal) -> str:
    """One host as a line of hosts.yaml."""
    import yaml  # noqa: PLC0415 - only when a file is written

    flow = yaml.safe_dump(dict(one.values), default_flow_style=True, sort_keys=False,
                          width=10_000).strip()  # fmt: skip
    key = one.name if isinstance(yaml.safe_load(one.name), str) else f'"{one.name}"'
    return f"  {key}: {flow}"


def document(found: Sequence[Proposal], *, demo: bool = False) -> str:
    """A hosts.yaml of the proposals; what could not be taken over stands in it as a comment.

    ``demo`` adds this machine with the bundled server.
    """
    rows = ["# Proposed from ~/.ssh/config. Every key is explained in the README; check this file",
            "# with: specops config validate", "hosts:"]  # fmt: skip
    rows += [
        f"  # {one.name}: left out, {one.why_not}" if one.why_not else entry(one) for one in found
    ]
    return "\n".join([*rows, *(DEMO if demo else ("servers: {}",)), ""])
