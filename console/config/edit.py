"""Change one value of a YAML file and nothing else: comments, order and spelling stay.

The file is not dumped anew. The span of the value is replaced in the text, or a line is added where
a mapping ends; then the result is parsed and must hold exactly the change that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from console.config.whole import write_atomically
from console.errors import ConfigError


def set_value(path: Path, trail: Sequence[str], value: Any) -> None:
    """Set the value at a trail of keys in a file; missing mappings on the way are made.

    Raises:
        ConfigError: the file does not hold a mapping there, or the change cannot be made in place.
    """
    text = path.read_text(encoding="utf-8")
    write_atomically(path, edited(text, trail, value, place=str(path)))


def edited(text: str, trail: Sequence[str], value: Any, *, place: str = "") -> str:
    """The text with one value changed."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    wanted = _with_value(yaml.safe_load(text), trail, value, place)
    if root is None:
        out = text + ("" if not text or text.endswith("\n") else "\n") + _block(trail, value, 0)
    else:
        out = _edit(text, root, list(trail), value)
    if _parsed(out) != wanted:
        hint = "edit it by hand"
        raise ConfigError(f"cannot change {'.'.join(trail)} in place", place=place, hint=hint)
    return out


def _parsed(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _with_value(data: Any, trail: Sequence[str], value: Any, place: str) -> dict[str, Any]:
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{trail[0]}: there is no mapping to hold it", place=place)
    head, *rest = trail
    inner = (data or {}).get(head)
    return {**(data or {}), head: _with_value(inner, rest, value, place) if rest else value}


def _edit(text: str, node: yaml.Node, trail: list[str], value: Any) -> str:
    assert isinstance(node, yaml.MappingNode)  # _with_value has refused everything else
    for key, child in node.value:
        if key.value != trail[0]:
            continue
        if len(trail) > 1 and not _is_empty(child):
            return _edit(text, child, trail[1:], value)
        new = _nested(trail[1:], value)
        end = _end(child)
        gap = "" if child.start_mark.index > key.end_mark.index + 1 else " "
        return text[: child.start_mark.index] + gap + _flow(new) + text[end:]
    return _insert(text, node, trail, value)


def _is_empty(node: yaml.Node) -> bool:
    if isinstance(node, yaml.ScalarNode):
        return bool(node.tag == "tag:yaml.org,2002:null")
    return not node.value


def _insert(text: str, node: yaml.MappingNode, trail: list[str], value: Any) -> str:
    if node.flow_style:
        at = node.end_mark.index - 1
        before = text[:at].rstrip()
        comma = ", " if node.value else ""
        return before + comma + f"{_flow(trail[0])}: {_flow(_nested(trail[1:], value))}" + text[at:]
    at = _end(node.value[-1][1])
    newline = text.find("\n", at)
    at = len(text) if newline < 0 else newline + 1
    prefix = "" if text[:at].endswith("\n") else "\n"
    indent = node.value[0][0].start_mark.column
    return text[:at] + prefix + _block(trail, value, indent) + text[at:]


def _end(node: yaml.Node) -> int:
    """Where a node's own text ends; a block node's mark runs on over comments that follow it."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)


def _nested(trail: Sequence[str], value: Any) -> Any:
    for key in reversed(trail):
        value = {key: value}
    return value


def _flow(value: Any) -> str:
    """A value on one line, quoted as inside brackets: it may land there."""
    dumped = yaml.safe_dump([value], default_flow_style=True, width=10**6, sort_keys=False)
    return dumped.strip()[1:-1]


def _block(trail: Sequence[str], value: Any, indent: int) -> str:
    """New lines of a block mapping: one level of keys a line, the value on the last."""
    head, *rest = trail
    margin = " " * indent
    if rest:
        return f"{margin}{_flow(head)}:\n{_block(rest, value, indent + 2)}"
    return f"{margin}{_flow(head)}: {_flow(value)}\n"
