"""Requests as they arrive, turned into jobs; what cannot be served is refused with the reason."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eagle3.sampling_params import SamplingParams

Body = dict[str, Any]
MAX_CHOICES = 64
MAX_STOPS = 16
_SEED_LIMIT = 1 << 63
_REFUSED = {
    "tools": "tool calls", "functions": "function calls", "response_format": "structured output",
    "logit_bias": "logit bias", "echo": "echo", "suffix": "suffix", "min_p": "min_p",
    "presence_penalty": "penalties", "frequency_penalty": "penalties",
    "repetition_penalty": "penalties",
    "regex": "structured output", "json_schema": "structured output", "ebnf": "structured output",
    "lora_path": "LoRA", "min_tokens": "min_tokens", "min_new_tokens": "min_new_tokens",
}  # fmt: skip
_HARMLESS = {"repetition_penalty": 1.0, "response_format": {"type": "text"}}


class BadRequest(ValueError):
    """A request that cannot be served; the message is for the client.

    Attributes:
        param: the field at fault.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True)
class Limits:
    """What prompts are measured against, tokens."""

    context: int
    longest_token: int


@dataclass(frozen=True)
class Call:
    """One HTTP call: its prompts, how to answer each, and how to send the answers."""

    jobs: list[tuple[list[int], SamplingParams]]
    stream: bool
    usage_in_stream: bool
    single: bool = True


def parse_body(data: bytes) -> Body:
    """The JSON object of a request.

    Raises:
        BadRequest: not UTF-8, not JSON, or not an object.
    """
    try:
        body = json.loads(data)
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest(f"the body must be a JSON object, not {type(body).__name__}")
    return body


class Fields:
    """Typed access to a request's fields; null counts as absent."""

    def __init__(self, body: Body) -> None:
        self.body = body

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A finite number in [low, high]."""
        value = self.body.get(name)
        if value is None:
            return default
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not (math.isfinite(value) and low <= value <= high):
            raise BadRequest(f"{name} must be a number from {low:g} to {high:g}", name)
        return float(value)

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """An integer in [low, high]."""
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadRequest(f"{name} must be an integer from {low} to {high}", name)
        return value

    def flag(self, name: str) -> bool:
        """A boolean, false unless given."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, bool):
            raise BadRequest(f"{name} must be true or false", name)
        return value is True

    def object(self, name: str) -> Body:
        """A JSON object, empty unless given."""
        value = self.body.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise BadRequest(f"{name} must be an object", name)
        return value


def _unicode(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(
            f"{name} holds half of a surrogate pair, which is not text", name
        ) from None
    return text


def _stops(body: Body) -> tuple[str, ...]:
    value = body.get("stop")
    items = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise BadRequest("stop must be a string or a list of strings", "stop")
    if len(items) > MAX_STOPS:
        raise BadRequest(f"stop holds {len(items)} strings; {MAX_STOPS} are possible", "stop")
    return tuple(_unicode(item, "stop") for item in items if item)


def _stop_ids(body: Body) -> frozenset[int]:
    value = body.get("stop_token_ids")
    value = [] if value is None else value
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise BadRequest("stop_token_ids must be a list of integers", "stop_token_ids")
    return frozenset(value)


def sampling(
    body: Body, *, max_tokens: int, logprobs: bool, seed: Callable[[], int]
) -> SamplingParams:
    """The sampling parameters among a body's fields.

    Raises:
        BadRequest: a field is out of range, or asks for what is not implemented.
    """
    for name, what in _REFUSED.items():
        value = body.get(name)
        if value and value != _HARMLESS.get(name):
            raise BadRequest(f"{name}: {what} not supported by this server", name)
    fields = Fields(body)
    top_p = fields.number("top_p", 1.0, 0.0, 1.0)
    if top_p == 0:
        raise BadRequest("top_p must be above 0", "top_p")
    given = fields.integer("seed", -1, -_SEED_LIMIT, _SEED_LIMIT - 1)
    return SamplingParams(
        temperature=fields.number("temperature", 1.0, 0.0, 100.0),
        top_p=top_p,
        top_k=fields.integer("top_k", -1, -1, 1 << 31),
        seed=seed() if body.get("seed") is None else given,
        max_tokens=max_tokens,
        stop=_stops(body),
        stop_ids=_stop_ids(body),
        ignore_eos=fields.flag("ignore_eos"),
        logprobs=logprobs,
    )


def seeds(base: int | None) -> Callable[[], int]:
    """Seeds for requests that bring none: counted up from ``base``, or random."""
    if base is None:
        return lambda: secrets.randbits(63)
    state = [base]

    def following() -> int:
        state[0] += 1
        return state[0]

    return following


def room(limits: Limits, prompt: int, wanted: int | None) -> int:
    """How many tokens an answer may have.

    Raises:
        BadRequest: prompt and answer do not fit; the message says the numbers.
    """
    left = limits.context - prompt
    if left < 1:
        raise BadRequest(
            f"The prompt has {prompt} tokens, which leaves no room in this model's context of "
            f"{limits.context} tokens"
        )
    if wanted is not None and wanted > left:
        raise BadRequest(
            f"Requested token count exceeds the model's maximum context length of {limits.context} "
            f"tokens: {prompt} in the prompt plus {wanted} to generate are {prompt + wanted}",
            "max_tokens",
        )
    return left if wanted is None else wanted


def too_long(text: str, limits: Limits) -> None:
    """Refuse a text that cannot fit, without spending time on its tokens.

    Raises:
        BadRequest: even the longest tokens would need more than the context.
    """
    least = len(text.encode()) // limits.longest_token
    if least > limits.context:
        raise BadRequest(
            f"The prompt has at least {least} tokens, which exceeds this model's context of "
            f"{limits.context} tokens"
        )


def is_ids(value: object) -> bool:
    """Whether a value is a list of token ids."""
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def prompts(value: object, name: str) -> tuple[list[str | list[int]], bool]:
    """The prompts of a field that takes one or several, as text or token ids; whether it was one.

    Raises:
        BadRequest: it is neither.
    """
    if isinstance(value, str):
        return [_unicode(value, name)], True
    if is_ids(value):
        return [value], True  # type: ignore[list-item]
    if isinstance(value, list) and value and len(value) <= MAX_CHOICES:
        if all(isinstance(item, str) for item in value):
            return [_unicode(item, name) for item in value], False
        if all(is_ids(item) for item in value):
            return list(value), False
    raise BadRequest(
        f"{name} must be a text, a list of token ids, or a list of up to {MAX_CHOICES} of either",
        name,
    )


_ROLES = ("system", "developer", "user", "assistant", "tool")


def messages(body: Body) -> list[dict[str, str]]:
    """The messages of a chat, their content as plain text.

    Raises:
        BadRequest: missing, empty, or of a form this model cannot read.
    """
    value = body.get("messages")
    if not isinstance(value, list) or not value:
        raise BadRequest("messages must be a list with at least one message", "messages")
    found = []
    for number, item in enumerate(value):
        place = f"messages[{number}]"
        if not isinstance(item, dict) or item.get("role") not in _ROLES:
            raise BadRequest(
                f"{place} must be an object whose role is one of {', '.join(_ROLES)}", place
            )
        found.append({"role": item["role"], "content": _content(item.get("content"), place)})
    return found


def _content(value: object, place: str) -> str:
    if isinstance(value, str):
        return _unicode(value, place)
    if isinstance(value, list):
        parts = [
            part.get("text")
            for part in value
            if isinstance(part, dict) and part.get("type") == "text"
        ]
        if len(parts) == len(value) and all(isinstance(part, str) for part in parts):
            return _unicode("".join(map(str, parts)), place)
        raise BadRequest(f"{place}: only text parts can be read by this model", place)
    raise BadRequest(f"{place}: content must be a text", place)
