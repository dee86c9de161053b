"""One setting by itself: whether any version knows it, and whether any could take the value.

A form asks this while it is typed in, before any server is chosen. What holds for one version, or
together with other settings, only preflight can tell.
"""

from __future__ import annotations

import difflib
from typing import Any

from console.preflight.rules.environment import nccl_variables, nccl_wrong
from console.preflight.tables import BUNDLED, Option, load, options_anywhere, versions
from console.preflight.tables import variables as sglang_variables
from console.preflight.values import convert
from console.text import clean, is_secret_name

_SGLANG = ("SGLANG_", "SGL_")
_TYPES = {"int": "a whole number", "float": "a number", "json": "JSON",
          "human_readable_int": "a size: 131072, 128k or 128Ki"}  # fmt: skip


def names(*, variable: bool) -> list[str]:
    """The flags of the newest version without their dashes, or the variables that are known."""
    if variable:
        return sorted({*nccl_variables(), *sglang_variables()})
    return sorted({option.key for option in load(versions()[-1]).options.values()})


def about(name: str, *, variable: bool) -> str:
    """What a setting takes, as the newest version that has it says; empty if not known."""
    if variable:
        kind = nccl_variables().get(name)
        if isinstance(kind, list):
            return "one of " + ", ".join(str(item) for item in kind)
        return {"int": "a whole number", "bool": "0 or 1"}.get(str(kind), "")
    found = _options(name)
    if not found:
        return ""
    newest = found[0]
    if newest.values == 0:
        return "a switch: true"
    if newest.choices:
        return "one of " + ", ".join(str(item) for item in newest.choices if item is not None)
    return _TYPES.get(newest.type, "")


def doubt(name: str, value: Any, *, variable: bool) -> str:
    """What speaks against a setting whatever the version is; empty where nothing does."""
    if value is None or value is False:  # taken away
        return ""
    if is_secret_name(name) and not str(value).startswith("secret:"):
        return "a secret: write secret:NAME, it is read at launch and never shown"
    return _variable(name, str(value)) if variable else _flag(name, value)


def _variable(name: str, value: str) -> str:
    if name.startswith("NCCL_"):
        known = nccl_variables()
        return nccl_wrong(known[name], value) if name in known else _unknown(name, known, "NCCL")
    if name.startswith(_SGLANG) and name not in sglang_variables():
        return _unknown(name, sglang_variables(), "SGLang")
    return ""


def _unknown(name: str, known: Any, whose: str) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"{whose} reads no such variable" + (f": {near[0]}?" if near else "")


def _options(name: str) -> list[Option]:
    own = load(BUNDLED).options.get(f"--{name}")
    return options_anywhere(f"--{name}") or ([own] if own else [])


def _flag(name: str, value: Any) -> str:
    found = _options(name)
    if not found:
        near = difflib.get_close_matches(name, names(variable=False), n=1, cutoff=0.7)
        return "no known version has this flag" + (f": {near[0]}?" if near else "")
    said = [_against(option, value) for option in found]
    return said[0] if all(said) else ""


def _against(option: Option, value: Any) -> str:
    if value is True:
        return "" if option.values in (0, "?", "*") else "it needs a value"
    if option.values == 0:
        return "a switch: true, or empty"
    for word in map(str, value if isinstance(value, list | tuple) else (value,)):
        if "$" in word:
            continue
        read, wrong = convert(word, option.type)
        shown = clean(word, limit=40)
        if wrong:
            return f"'{shown}' is {wrong}"
        if option.choices and read not in option.choices:
            allowed = [str(choice) for choice in option.choices if choice is not None]
            near = difflib.get_close_matches(str(read), allowed, n=1, cutoff=0.6)
            return f"'{shown}' is none of " + (f"its choices: {near[0]}?" if near else
                                               ", ".join(allowed))  # fmt: skip
    return ""
