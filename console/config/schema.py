"""hosts.yaml: what it may hold, read into frozen data. Every refusal names file, line and key."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.config.nodes import Node, nearest, read_all
from console.errors import ConfigError, Mistakes, UsageError
from console.model import Host, Outer, Runner, Server, Via

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_RULE = "a letter or digit first, then letters, digits, '.', '_' and '-', 63 at most"
HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})")
"""Names only: what OpenSSH 9.6 accepts, so that no ProxyCommand ever sees a shell character."""
USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}\$?")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FLAG_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]+\.service")

HOST_DEFAULTS = ("user", "port", "connect_timeout", "python", "identity_files", "known_hosts")
RUNNERS = "process, {systemd: UNIT.service} or {docker: NAME}"


@dataclass(frozen=True, slots=True)
class Notify:
    """What happens when a launch becomes ready or fails."""

    bell: bool = True
    osc9: bool = True
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """A loaded hosts.yaml. ``note`` says why a nearer file was passed over."""

    path: Path
    hosts: Mapping[str, Host] = field(default_factory=dict)
    servers: Mapping[str, Server] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    notify: Notify = field(default_factory=Notify)
    theme: str | None = None
    note: str = ""
    places: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """``file:line:column`` of each key, by its trail."""

    @contextmanager
    def at(self, *trail: str) -> Iterator[None]:
        """Errors from here are of this key (or the one below it that they name as place).

        Raises:
            ConfigError: with the file and the line.
        """
        try:
            yield
        except (ConfigError, UsageError) as error:
            told = Mistakes()
            for one in error.each if isinstance(error, ConfigError) else (error,):
                where = ".".join(trail) or one.place
                place = self.places.get(where, str(self.path))
                told.add(ConfigError(f"{where}: {one.message}", place=place, hint=one.hint))
            told.tell()

    def host(self, name: str) -> Host:
        """The host of that name, or ``UsageError`` with the nearest one."""
        if name not in self.hosts:
            raise UsageError(
                f"no host '{name}'", place=str(self.path), hint=nearest(name, self.hosts)
            )
        return self.hosts[name]

    def server(self, name: str) -> Server:
        """The server of that name, or ``UsageError`` with the nearest one."""
        if name not in self.servers:
            raise UsageError(
                f"no server '{name}'", place=str(self.path), hint=nearest(name, self.servers)
            )
        return self.servers[name]

    def servers_on(self, host: str) -> tuple[Server, ...]:
        """The servers that a host runs, alone or as one of several."""
        return tuple(s for s in self.servers.values() if s.host == host or host in s.hosts)


def read_config(root: Node) -> Config:
    """The whole file; where the root's mistakes are kept, what of it can be read."""
    top = root.read(
        {
            "defaults": lambda node: node.read({key: HOST[key] for key in HOST_DEFAULTS}),
            "hosts": _named,
            "servers": _named,
            "keys": lambda node: node.table(Node.text),
            "notify": lambda node: Notify(**node.read(NOTIFY)),
            "theme": Node.text,
        }
    )
    hosts: dict[str, Node] = top.get("hosts", {})
    servers: dict[str, Node] = top.get("servers", {})
    defaults = top.get("defaults", {})
    read = read_all(hosts, dict.fromkeys(hosts, lambda node: _host(node, defaults)))
    for name, host in read.items():
        with root.kept():
            _check_references(hosts[name], host, hosts, read)
    return Config(
        path=root.path,
        hosts=read,
        servers=read_all(servers, dict.fromkeys(servers, lambda node: _server(node, hosts))),
        keys=top.get("keys", {}),
        notify=top.get("notify", Notify()),
        theme=top.get("theme"),
        places=root.places(),
    )


def _named(node: Node) -> dict[str, Node]:
    def named(entry: Node) -> Node:
        if not NAME.fullmatch(entry.trail[-1]):
            with entry.kept():  # what is wrong within it is told as well
                entry.fail("is not a name", NAME_RULE)
        return entry

    return node.table(named)


def _host(node: Node, defaults: Mapping[str, Any]) -> Host:
    own = node.read(HOST)
    values = {**defaults, **own}
    if len(own) < len(node.mapping()):  # a mistake that is said already may be the missing one
        return Host(name=node.trail[-1], **values)
    if values.get("transport", "ssh") != "local" and not values.get("address"):
        node.fail("has no address", "address: a host name or IP address, or transport: local")
    return Host(name=node.trail[-1], **values)


def _match(node: Node, pattern: re.Pattern[str], what: str) -> str:
    value = node.text()
    if not pattern.fullmatch(value):
        node.fail(f"'{value}' is not {what}")
    return value


def _address(node: Node) -> str:
    value = node.text()
    bare = value.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return _match(node, HOSTNAME, "a host name or IP address")
    return bare


def _one_of(node: Node, known: set[str]) -> tuple[str, Node]:
    entries = node.known_keys(known)
    if len(entries) != 1:
        node.fail(f"takes exactly one of {', '.join(sorted(known))}")
    return next(iter(entries.items()))


def _via(node: Node) -> Via:
    kind, value = _one_of(node, {"pct", "docker"})
    if kind == "pct":
        return Via("pct", str(value.integer(100, 999_999_999)))
    return Via("docker", _match(value, NAME, "a container name"))


def _outer(node: Node) -> Outer:
    entries = node.known_keys({"host", "pct", "docker"})
    if "host" not in entries:
        node.fail("needs the hypervisor", "outer: {host: NAME, pct: 129}")
    return Outer(
        host=entries["host"].text(),
        pct=entries["pct"].integer(100, 999_999_999) if "pct" in entries else None,
        docker=entries["docker"].text() if "docker" in entries else None,
    )


def _check_references(
    node: Node, host: Host, names: Mapping[str, Node], hosts: Mapping[str, Host]
) -> None:
    """``names`` are all hosts of the file, ``hosts`` those that could be read."""
    entries = node.mapping()
    if host.outer and host.outer.host not in names:
        with node.kept():
            outer = entries["outer"]
            outer.fail(f"no host '{host.outer.host}'", nearest(host.outer.host, names))
    if host.jump and host.jump not in names:
        entries["jump"].fail(f"no host '{host.jump}'", nearest(host.jump, names))
    seen, at = {host.name}, host.jump
    while at and at not in seen:
        seen.add(at)
        at = hosts[at].jump if at in hosts else None
    if at == host.name == min(seen):  # said once, not of each host in it
        entries["jump"].fail("jumps in a circle")


def _server(node: Node, hosts: Mapping[str, Node]) -> Server:
    given = node.known_keys({*OTHERS, *SERVER})
    values = read_all(given, SERVER)
    if "log" in given:
        with node.kept():
            values["log"], values["logs"] = _logs(given["log"])
    where: tuple[str, ...] = ()
    with node.kept():
        where = _where(node, given, hosts)
    server = Server(
        name=node.trail[-1], host=next(iter(where), ""),
        hosts=where if "hosts" in given else (), **values,
    )  # fmt: skip
    known = len(values.keys() & SERVER.keys()) == len(node.mapping().keys() - OTHERS)
    wants_model = server.engine != "bundled" and server.runner.kind == "process"
    if known and wants_model and not server.model:
        node.fail("names no model", "model: a path on the host")
    return server


def _where(node: Node, given: Mapping[str, Node], hosts: Mapping[str, Node]) -> tuple[str, ...]:
    """The hosts that a server runs on, node 0 first."""
    where = given["hosts"].texts() if "hosts" in given else ()
    if "host" not in given and not where:
        node.fail("names no host", "host: NAME")
    if {"host", "hosts"} <= given.keys():
        given["hosts"].fail("stands beside host", "leave host out: node 0 is the first of hosts")
    if len(set(where)) < len(where):
        given["hosts"].fail("names a host twice", "each host once, node 0 first")
    host = given["host"].text() if "host" in given else where[0]
    for one in where or (host,):
        if one not in hosts:
            entry = given.get("host") or given["hosts"]
            with node.kept():
                entry.fail(f"no host '{one}'", nearest(one, hosts))
    return where or (host,)


def _logs(node: Node) -> tuple[str | None, tuple[str, ...]]:
    """The file that a launch writes to, and further files or patterns that are shown with it."""
    paths = node.texts()
    if any(not path.strip() for path in paths):
        node.fail("holds an empty path", "a path on the host, a pattern, or a list of them")
    single = [path for path in paths if not any(mark in path for mark in "*?[")]
    return next(iter(single), None), tuple(path for path in paths if path not in single[:1])


def read_flags(node: Node) -> dict[str, Any]:
    """Flags without dashes; a value is text, a number, true, false, null or a list of text."""
    out: dict[str, Any] = {}
    for key, value in node.mapping().items():
        flag = key.removeprefix("--").replace("_", "-")
        with node.kept():
            if not FLAG_NAME.fullmatch(flag):
                hint = "a flag without its dashes, like mem-fraction-static"
                value.fail("is not a flag name", hint)
            if flag in out:
                value.fail("given twice", "remove one of them")
            plain = not hasattr(value.raw, "value") or isinstance(value.raw.value, str)
            out[flag] = _printable(value, value.scalar()) if plain else value.texts()
    return out


def _printable(node: Node, value: Any) -> Any:
    return node.text() if isinstance(value, str) else value


def read_env(node: Node) -> dict[str, str]:
    """Variables of a server's environment. ``secret:NAME`` is resolved at launch."""
    out: dict[str, str] = {}
    for key, value in node.mapping().items():
        with node.kept():
            check_env_name(key, value)
            out[key] = value.text()
    return out


def check_env_name(name: str, node: Node) -> None:
    """Refuse what no shell or unit file would take as the name of a variable."""
    if not ENV_NAME.fullmatch(name):
        node.fail("is not a variable name", "letters, digits and '_', no digit first")


def _container(entries: Mapping[str, Node]) -> Runner:
    name = _match(entries["docker"], NAME, "a container name")
    options = entries["options"].texts() if "options" in entries else ()
    if options and "image" not in entries:
        entries["options"].fail("options without an image", "image: the image to run")
    for word in options:
        if word.partition("=")[0] in ("--name", "--label", "-d", "--detach", "--rm"):
            entries["options"].fail(f"{word} is specops' own to give")
    image = entries["image"].text() if "image" in entries else None
    return Runner("docker", container=name, image=image, options=options)


def _command(node: Node) -> tuple[str, ...]:
    """A command as a list of words, or as one line that is cut as a shell would; none runs it."""
    if not isinstance(node.raw.value, str):
        return node.texts()
    try:
        return tuple(shlex.split(node.text()))
    except ValueError as error:
        node.fail(f"is no command line: {error}", "close the quotes, or give a list of words")


def _runner(node: Node) -> Runner:
    if isinstance(node.raw.value, str):
        if node.text() != "process":
            node.fail(f"'{node.text()}' is not a runner", RUNNERS)
        return Runner("process")
    entries = node.known_keys({"systemd", "docker", "user", "image", "options"})
    if ("systemd" in entries) == ("docker" in entries):
        node.fail("is none", RUNNERS)
    if "docker" in entries:
        return _container(entries)
    if "image" in entries or "options" in entries:
        node.fail("image and options belong to {docker: NAME}")
    unit = _match(entries["systemd"], UNIT, "a unit name ending in .service")
    return Runner("systemd", unit=unit, user_unit="user" in entries and entries["user"].boolean())


Readers = Mapping[str, Callable[[Node], Any]]

HOST: Readers = {
    "address": _address,
    "transport": lambda node: node.choice(("ssh", "openssh", "local")),
    "user": lambda node: _match(node, USER, "a user name"),
    "port": lambda node: node.integer(1, 65535),
    "connect_timeout": Node.seconds,
    "python": Node.text,
    "jump": Node.text,
    "identity_files": lambda node: tuple(str(Path(t).expanduser()) for t in node.texts()),
    "known_hosts": lambda node: str(Path(node.text()).expanduser()),
    "via": _via,
    "outer": _outer,
    "sudo": Node.boolean,
    "labels": Node.texts,
}
"""The keys of a host. What needs other hosts is checked when all are read."""

SERVER: Readers = {
    "engine": lambda node: node.choice(("bundled", "sglang", "vllm")),
    "model": Node.text,
    "draft": Node.text,
    "port": lambda node: node.integer(1, 65535),
    "bind": _address,
    "speculative": Node.text,
    "nccl": Node.text,
    "runner": _runner,
    "args": read_flags,
    "env": read_env,
    "python": Node.text,
    "cwd": Node.text,
    "never_ready_after": Node.seconds,
}
OTHERS = {"host", "hosts", "log"}
"""The keys of a server; the others need more than their own node."""

NOTIFY: Readers = {"bell": Node.boolean, "osc9": Node.boolean, "command": _command}
