"""YAML with places: typed access to nodes, so that errors name file, line, key and likely word.

The safe loader builds plain values and forgets where they stood; here the node tree is kept until
each value has been read by a reader that knows what it wants.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from console.errors import ConfigError, Mistakes

MAX_BYTES = 1 << 20
"""A hosts.yaml of a thousand hosts is 100 kB; larger than this is not one."""
MAX_DEPTH = 12
MAX_PLACES = 50_000
"""Keys whose place is remembered: aliases of aliases make a short file endless."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint with the likely word, or the known ones where nothing is near."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names[:12])}{' …' if len(names) > 12 else ''}" if names else ""


@dataclass(frozen=True, slots=True)
class Node:
    """A YAML node with the file it stands in and the keys that lead to it.

    Where ``mistakes`` collects, a mistake costs only the value that it is in.
    """

    raw: yaml.Node
    path: Path
    trail: tuple[str, ...] = ()
    mistakes: Mistakes | None = field(default=None, repr=False, compare=False)

    @property
    def line(self) -> int:
        """Line in the file, counted from 1."""
        return int(self.raw.start_mark.line) + 1

    @property
    def place(self) -> str:
        """File, line and column, counted from 1, as ``file:line:column``."""
        return f"{self.path}:{self.line}:{int(self.raw.start_mark.column) + 1}"

    def fail(self, message: str, hint: str = "") -> NoReturn:
        """Raise ``ConfigError`` at this node."""
        where = ".".join(self.trail)
        raise ConfigError(f"{where}: {message}" if where else message, place=self.place, hint=hint)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """What is wrong within costs no more than what is read there, if mistakes are collected."""
        try:
            yield
        except ConfigError as error:
            if self.mistakes is None:
                raise
            self.mistakes.add(error)

    # -- readers

    def mapping(self) -> dict[str, Node]:
        """The entries of a mapping, each key a string and given once."""
        if self._is_null():
            return {}
        if not isinstance(self.raw, yaml.MappingNode):
            self.fail(f"expected a mapping (key: value), found {self._kind()}")
        out: dict[str, Node] = {}
        for key_node, value_node in self.raw.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else ""
            child = self._below(value_node, key or "?")
            at_key = self._below(key_node, key or "?")
            with self.kept():
                if not key:
                    at_key.fail("a key must be a plain word")
                if key in out:
                    at_key.fail("given twice", "remove one of them")
                if len(child.trail) > MAX_DEPTH:
                    at_key.fail("nested too deep")
                out[key] = child
        return out

    def known_keys(self, known: Iterable[str]) -> dict[str, Node]:
        """The entries of a mapping that may hold only these keys."""
        entries = self.mapping()
        allowed = set(known)
        for key in [key for key in entries if key not in allowed]:
            del entries[key]
            with self.kept():
                self._at_key(key).fail("unknown key", nearest(key, allowed))
        return entries

    def read(self, readers: Mapping[str, Callable[[Node], Any]]) -> dict[str, Any]:
        """The values of a mapping that may hold only the keys that have a reader."""
        return read_all(self.known_keys(readers), readers)

    def items(self) -> Iterator[Node]:
        """The items of a list."""
        if not isinstance(self.raw, yaml.SequenceNode):
            self.fail(f"expected a list, found {self._kind()}")
        for index, item in enumerate(self.raw.value):
            yield self._below(item, str(index))

    def text(self) -> str:
        """A string; numbers and booleans are taken as they are written."""
        if not isinstance(self.raw, yaml.ScalarNode) or self._is_null():
            self.fail(f"expected text, found {self._kind()}")
        value = str(self.raw.value)
        if any(ord(char) < 32 or ord(char) == 127 for char in value):
            self.fail("holds a control character", "remove it")
        return value

    def texts(self) -> tuple[str, ...]:
        """A string or a list of strings."""
        if isinstance(self.raw, yaml.ScalarNode):
            if not isinstance(self.scalar(), str | None):
                self.fail(f"expected text or a list of it, found {self._kind()}", "quote it")
            return (self.text(),)
        return tuple(item.text() for item in self.items())

    def integer(self, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self.scalar()
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(f"expected a whole number, found {self._kind()}")
        if not low <= value <= high:
            self.fail(f"{value} is not between {low} and {high}")
        return value

    def seconds(self) -> float:
        """A duration above zero: a number of seconds, or text like ``30 min`` or ``2h``."""
        value = self.scalar()
        if isinstance(value, str):
            number, unit = value.rstrip("abcdefghijklmnopqrstuvwxyz "), value.lstrip("0123456789. ")
            factor = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600}.get(unit.strip())
            if factor is None or not number.replace(".", "", 1).isdigit():
                self.fail(f"'{value}' is not a duration", "write seconds, or '30 min', '2 h'")
            value = float(number) * factor
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e8:
            self.fail("expected a duration above zero", "write seconds, or '30 min', '2 h'")
        return float(value)

    def boolean(self) -> bool:
        """A yes or no."""
        value = self.scalar()
        if not isinstance(value, bool):
            self.fail(f"expected true or false, found {self._kind()}")
        return value

    def choice(self, known: Iterable[str]) -> str:
        """One of a few words."""
        value = self.text()
        allowed = tuple(known)
        if value not in allowed:
            self.fail(f"'{value}' is not one of them", nearest(value, allowed))
        return value

    def scalar(self) -> Any:
        """A plain value with the type YAML gives it: text, number, boolean or ``None``."""
        if not isinstance(self.raw, yaml.ScalarNode):
            self.fail(f"expected a single value, found {self._kind()}")
        try:
            return yaml.SafeLoader.construct_object(_constructor(), self.raw)
        except (yaml.YAMLError, ValueError) as error:
            self.fail(f"cannot be read: {error}")

    def table(self, read: Callable[[Node], Any]) -> dict[str, Any]:
        """A mapping with every value read by the same reader."""
        entries = self.mapping()
        return read_all(entries, dict.fromkeys(entries, read))

    def places(self) -> dict[str, str]:
        """The place of every key below, by its trail: ``servers.one.port``."""
        out: dict[str, str] = {}
        waiting = [self]
        while waiting and len(out) < MAX_PLACES:
            node = waiting.pop()
            if isinstance(node.raw, yaml.MappingNode) and len(node.trail) < MAX_DEPTH:
                for key_node, value_node in node.raw.value:
                    at = node._below(key_node, str(key_node.value))
                    out[".".join(at.trail)] = at.place
                    waiting.append(node._below(value_node, at.trail[-1]))
        return out

    # -- helpers

    def _below(self, raw: yaml.Node, key: str) -> Node:
        return Node(raw, self.path, (*self.trail, key), self.mistakes)

    def _at_key(self, key: str) -> Node:
        assert isinstance(self.raw, yaml.MappingNode)
        for key_node, _ in self.raw.value:
            if key_node.value == key:
                return self._below(key_node, key)
        return self

    def _is_null(self) -> bool:
        return isinstance(self.raw, yaml.ScalarNode) and self.raw.tag == "tag:yaml.org,2002:null"

    def _kind(self) -> str:
        if isinstance(self.raw, yaml.MappingNode):
            return "a mapping"
        if isinstance(self.raw, yaml.SequenceNode):
            return "a list"
        return "nothing" if self._is_null() else f"'{self.raw.value}'"


def read_all(
    entries: Mapping[str, Node], readers: Mapping[str, Callable[[Node], Any]]
) -> dict[str, Any]:
    """The value of each entry that has a reader; one with a mistake is left out if it is kept."""
    out: dict[str, Any] = {}
    for key, node in entries.items():
        if key in readers:
            with node.kept():
                out[key] = readers[key](node)
    return out


def _constructor() -> yaml.SafeLoader:
    return yaml.SafeLoader("")


def parse(text: str, path: Path, mistakes: Mistakes | None = None) -> Node:
    """The root node of a YAML document; mistakes of its readers are raised, or kept where given.

    Raises:
        ConfigError: not YAML, more than one document, or larger than :data:`MAX_BYTES`.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES >> 20} MiB", place=str(path))
    try:
        raw = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        hint = "a tab cannot indent YAML" if "\\t" in str(error) else "check indent and quotes here"
        raise ConfigError(f"not YAML: {error.problem}", place=place, hint=hint) from error
    except (yaml.YAMLError, RecursionError) as error:
        message = str(error).splitlines()[0] if str(error) else "nested too deep"
        raise ConfigError(f"not YAML: {message}", place=str(path)) from error
    if raw is None:
        raw = yaml.MappingNode("tag:yaml.org,2002:map", [], yaml.Mark(str(path), 0, 0, 0, None, 0))
    return Node(raw, path, mistakes=mistakes)
