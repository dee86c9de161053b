"""Frozen dataclasses to JSON values and back, so that a plan survives the console that made it."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from console.errors import ActionFailed

T = TypeVar("T")


def encode(value: Any) -> Any:
    """A dataclass (or a container of them) as JSON values; enums as their value, sets sorted."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((encode(item) for item in value), key=str)
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], data: object, *, place: str = "") -> T:
    """A dataclass from what :func:`encode` made; unknown keys are ignored, missing ones defaulted.

    Raises:
        ActionFailed: a value of another type, or a required key that is missing; ``place`` is the
            trail of keys.
    """
    value: T = _decode(kind, data, place or kind.__name__)
    return value


def _decode(kind: Any, data: object, place: str) -> Any:
    if kind is Any or kind is object:
        return data
    if is_dataclass(kind):
        return _dataclass(kind, data, place)
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in args:
            return None
        return _decode(next(arg for arg in args if arg is not type(None)), data, place)
    if origin is Literal:
        if data in args:
            return data
        raise _wrong(place, f"one of {', '.join(map(str, args))}", data)
    if origin in (tuple, frozenset):
        if not isinstance(data, (list, tuple)):
            raise _wrong(place, "a list", data)
        return origin(_items(origin, args, data, place))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise _wrong(place, "an object", data)
        return {
            args[0](key): _decode(args[1], item, f"{place}.{key}") for key, item in data.items()
        }
    return _scalar(kind, data, place)


def _items(origin: Any, args: tuple[Any, ...], data: Any, place: str) -> list[Any]:
    if origin is tuple and args[-1] is not Ellipsis:
        return [
            _decode(arg, item, f"{place}[{i}]")
            for i, (arg, item) in enumerate(zip(args, data, strict=True))
        ]
    return [_decode(args[0], item, f"{place}[{i}]") for i, item in enumerate(data)]


def _scalar(kind: Any, data: object, place: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(data)
        except ValueError:
            raise _wrong(place, f"one of {', '.join(m.value for m in kind)}", data) from None
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if isinstance(kind, type) and (not isinstance(data, kind) or (kind is int and data is True)):
        raise _wrong(place, kind.__name__, data)
    return data


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _dataclass(kind: Any, data: object, place: str) -> Any:
    if not isinstance(data, Mapping):
        raise _wrong(place, "an object", data)
    hints = _hints(kind)
    values = {}
    for field in fields(kind):
        if field.name in data:
            values[field.name] = _decode(
                hints[field.name], data[field.name], f"{place}.{field.name}"
            )
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ActionFailed(f"the key {field.name} is missing", place=place)
    return kind(**values)


def _wrong(place: str, wanted: str, data: object) -> ActionFailed:
    return ActionFailed(f"wanted {wanted}, found {str(data)[:60]!r}", place=place)
