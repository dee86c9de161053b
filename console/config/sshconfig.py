"""Hosts proposed from the operator's own ``~/.ssh/config``. Pure; reading the file is the caller's.

Follows ssh_config(5) where it matters here: the first value of a keyword wins, blocks with patterns
apply to the names they match. ``Match`` blocks are left out: they may run commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from console.config.schema import HOSTNAME, NAME, USER


@dataclass(frozen=True, slots=True)
class Proposal:
    """One host as hosts.yaml would have it; ``why_not`` says why it cannot be taken over."""

    name: str
    values: Mapping[str, object] = field(default_factory=dict)
    why_not: str = ""


@dataclass(slots=True)
class _Block:
    patterns: list[str]
    values: dict[str, list[str]] = field(default_factory=dict)

    def applies(self, name: str) -> bool:
        """Whether a name is meant: by a pattern, and by no negated one."""
        if any(fnmatchcase(name, p[1:]) for p in self.patterns if p.startswith("!")):
            return False
        return any(fnmatchcase(name, p) for p in self.patterns if not p.startswith("!"))


def proposals(text: str, user: str) -> tuple[Proposal, ...]:
    """Every ``Host`` of an ssh_config without wildcards. ``user`` is the operator's login name."""
    blocks = list(_blocks(text))
    names = list(dict.fromkeys(p for b in blocks for p in b.patterns if not set("*?!") & set(p)))
    return tuple(_proposal(name, blocks, names, user) for name in names)


def _blocks(text: str) -> Iterator[_Block]:
    block: _Block | None = _Block(["*"])
    for row in text.splitlines():
        words = _words(row)
        if not words:
            continue
        keyword, rest = words[0].lower(), words[1:]
        if keyword in ("host", "match"):
            if block is not None:
                yield block
            block = _Block(rest) if keyword == "host" else None
        elif block is not None and rest:
            if keyword == "identityfile":  # the one keyword that adds up
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
        # Only ssh itself knows the way, so it is given its own name for the host.
        return Proposal(name, {"address": name, "transport": "openssh", "user": login})
    values: dict[str, object] = {"address": address, "user": login}
    if port != "22":
        values["port"] = int(port)
    if jump != "none":
        values["jump"] = jump
    if "identityfile" in found and not any("%" in path for path in found["identityfile"]):
        values["identity_files"] = found["identityfile"]
    return Proposal(name, values)


def document(found: Sequence[Proposal]) -> str:
    """A hosts.yaml of the proposals; what could not be taken over stands in it as a comment."""
    import yaml  # noqa: PLC0415 - only when a file is written

    rows = ["# Proposed from ~/.ssh/config. Every key is explained in the README; check this file",
            "# with: specops config validate", "hosts:"]  # fmt: skip
    for one in found:
        if one.why_not:
            rows.append(f"  # {one.name}: left out, {one.why_not}")
            continue
        flow = yaml.safe_dump(dict(one.values), default_flow_style=True, sort_keys=False,
                              width=10_000).strip()  # fmt: skip
        key = one.name if isinstance(yaml.safe_load(one.name), str) else f'"{one.name}"'
        rows.append(f"  {key}: {flow}")
    return "\n".join([*rows, "servers: {}", ""])
