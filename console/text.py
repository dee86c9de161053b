"""Text from hosts is hostile: made inert once, here, where bytes become text.

A process title, a log line or an error message may hold terminal escapes (OSC 52 writes the
clipboard), bidirectional overrides that reorder what the operator reads, or a password. ``clean``
removes the first two, ``mask`` the third. Neither knows anything of the screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MAX_LINE = 64 * 1024
"""Characters of one line that are kept; what is cut is counted in the text."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, modes
    r"|\x9b[0-?]*[ -/]*[@-~]"  # the same as one C1 character
    r"|(?:\x1b[\]P^_X]|[\x9d\x90\x9e\x9f\x98])"  # OSC, DCS, PM, APC, SOS: a string up to ...
    r"[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # ... BEL or ST, or whatever there is
    r"|\x1b[ -/]*[0-~]"  # two-character escapes and charset switches
)
_INVISIBLE = re.compile(
    "[\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)
_CONTROL = {code: "␛" if code in (0x1B, 0x9B) else "·" for code in (*range(32), *range(127, 160))}
_CONTROL[0x09] = "    "

_SECRET_KEY = re.compile(
    r"(?i)(?:api[-_]?key|access[-_]?key|auth[-_]?token|token|secret|passw(?:or)?d|passphrase"
    r"|credential|private[-_]?key|authorization|bearer)s?$"
)
_NOT_SECRET = re.compile(
    r"(?i)(?:num|max|min|draft|total|accept|chunk|prefill|stop|pad|eos|bos|special|image|per)"
    r"|tokens?[-_](?:id|map|len|count|size|path)"
)
_SENSITIVE = (
    r"(?:[\w-]*(?:api[-_]?key|access[-_]?key|auth[-_]?token|secret|passw(?:or)?d|passphrase)"
    r"|(?:[\w-]*[-_])?token)"
)
_SECRET_PAIR = re.compile(
    rf"(?i)(?P<key>(?<![\w-])(?:{_SENSITIVE}['\"]?\s*[=:]\s*|--?{_SENSITIVE}[= ]\s*))"
    r"(?P<quote>['\"]?)(?P<value>(?!(?:None|null|False|True)\b)[^\s'\",)]+)"
)
_COUNT = re.compile(r"(?i)[\w-]*token\s*[=:]\s*\d{1,9}(?:\.\d+)?")
_REFERENCE = re.compile(r"secret:[A-Z_][A-Z0-9_]*$")
_SECRET_SHAPE = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b|(?i:(?<=bearer )[A-Za-z0-9._~+/-]{8,}=*)"
)
_SHAPED = ("hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "AKIA")
"""What has a shape holds one of these (or follows a bearer): to look for them first is ten times
faster, and a log that pours in is masked line by line."""
_USERINFO = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")

MASK = "***"


def clean(data: bytes | str, *, limit: int = MAX_LINE) -> str:
    r"""One line that can be shown anywhere: no control, escape or bidi characters, bounded length.

    Invalid UTF-8 is shown as ``\xNN``. Line breaks inside become ``·`` so that one field never
    makes two rows. Use :func:`lines` first where line breaks are wanted.
    """
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data
    cut = len(text) - limit
    if cut > 0:
        text = text[:limit]
    if not text.isprintable():
        text = _ESCAPES.sub("", text)
        text = _INVISIBLE.sub("", text)
        text = text.translate(_CONTROL)
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return f"{text} [+{cut} characters]" if cut > 0 else text


def lines(data: bytes | str) -> list[str]:
    r"""Several lines, each cleaned; of a line redrawn with ``\r`` the last state."""
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data
    return [clean(line.rstrip("\r").rsplit("\r", 1)[-1]) for line in text.split("\n")]


def is_secret_name(name: str) -> bool:
    """Whether a flag or variable of this name holds a secret (``HF_TOKEN``, ``--api-key``)."""
    return bool(_SECRET_KEY.search(name)) and not _NOT_SECRET.search(name)


def mask(text: str, values: Iterable[str] = ()) -> str:
    """The text without secrets: known values, recognisable shapes, and values beside a secret name.

    ``values`` are secrets in use now; they are also found in URL-quoted form.
    """
    for value in values:
        if len(value) >= 4:  # shorter ones would blot out ordinary words
            text = text.replace(value, MASK)
            quoted = quote(value, safe="")
            if quoted != value:
                text = text.replace(quoted, MASK)
    if "://" in text:
        text = _USERINFO.sub(MASK, text)
    if any(word in text for word in _SHAPED) or "bearer " in text.lower():
        text = _SECRET_SHAPE.sub(MASK, text)
    return _SECRET_PAIR.sub(_hide_value, text)


def _hide_value(match: re.Match[str]) -> str:
    if _REFERENCE.search(match[0]):  # names a secret, holds none
        return match[0]
    if _COUNT.fullmatch(match[0]):  # "#new-token: 14", of a server's every batch
        return match[0]
    return f"{match['key']}{match['quote']}{MASK}"


def mask_argv(argv: Iterable[str], values: Iterable[str] = ()) -> list[str]:
    """An argument vector without secrets; the value after a secret flag is masked too."""
    known = tuple(values)
    out: list[str] = []
    hide_next = False
    for word in argv:
        flag, eq, _ = word.partition("=")
        if hide_next:
            out.append(MASK)
            hide_next = False
        elif word.startswith("-") and is_secret_name(flag.lstrip("-")):
            out.append(f"{flag}={MASK}" if eq else word)
            hide_next = not eq
        else:
            out.append(mask(word, known))
    return out


def mask_env(env: Mapping[str, str], values: Iterable[str] = ()) -> dict[str, str]:
    """Variables without secrets; ``secret:NAME`` references stay readable."""
    known = tuple(values)
    return {
        name: value
        if _REFERENCE.match(value)
        else MASK
        if is_secret_name(name)
        else mask(value, known)
        for name, value in env.items()
    }
