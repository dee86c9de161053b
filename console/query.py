"""The small filter language of ``/``: ``memory>80 !ready label:pcie kimi``.

Words must all match. ``word`` matches any text, ``!`` negates, ``name:text`` one field,
``name>n``, ``name<n`` and ``name=x`` compare. Unknown values match no comparison.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from console.errors import UsageError

Facts = Mapping[str, "str | float | None"]
Test = Callable[[Facts], bool]

_TERM = re.compile(r"(?P<not>!)?(?:(?P<name>[a-z_]+)(?P<op>>=|<=|[:><=]))?(?P<value>.*)", re.DOTALL)


def parse(text: str, fields: Mapping[str, str | float | None]) -> Test:
    """The test that a filter line means; an empty line matches all.

    Raises:
        UsageError: a field that does not exist, or a comparison with something not a number.
    """
    tests = [_term(word, fields) for word in text.lower().split()]
    return lambda facts: all(test(facts) for test in tests)


def _term(word: str, fields: Mapping[str, str | float | None]) -> Test:
    match = _TERM.fullmatch(word)
    assert match is not None  # the last group takes anything
    name, op, value = match["name"], match["op"], match["value"]
    if name is None or op is None:
        test = _anywhere(value)
    elif name not in fields:
        hint = "there are " + ", ".join(fields)
        raise UsageError(f"no field '{name}' to filter by", place=word, hint=hint)
    elif op == ":":
        test = _contains(name, value)
    else:
        test = _compare(name, op, value, word)
    if match["not"]:
        return lambda facts: not test(facts)
    return test


def _anywhere(value: str) -> Test:
    return lambda facts: any(isinstance(v, str) and value in v.lower() for v in facts.values())


def _contains(name: str, value: str) -> Test:
    return lambda facts: value in str(facts[name] if facts[name] is not None else "").lower()


def _compare(name: str, op: str, value: str, word: str) -> Test:
    try:
        limit = float(value)
    except ValueError:
        if op == "=":
            return lambda facts: str(facts[name]).lower() == value
        raise UsageError(f"'{value}' is not a number", place=word, hint="memory>80") from None
    compare: Mapping[str, Callable[[float], bool]] = {
        ">": lambda x: x > limit,
        "<": lambda x: x < limit,
        ">=": lambda x: x >= limit,
        "<=": lambda x: x <= limit,
        "=": lambda x: x == limit,
    }

    def test(facts: Facts) -> bool:
        known = facts[name]
        return isinstance(known, int | float) and compare[op](float(known))

    return test
