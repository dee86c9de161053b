"""``--engine sglang``: the same command, computed by SGLang."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NoReturn

_OWN_WITH_VALUE = ("--engine", "--debug-hang-at", "--drain-timeout")
_OWN_BARE = ("--check", "--no-parent-death-signal")
# SGLang dropped --cuda-graph-max-bs and --cuda-graph-bs after 0.5.12 and split each into two.
_SPLIT_AFTER = (0, 5, 13)
_SPLIT = {
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
}
# Gone after 0.5.3, with what replaced them.
_GONE_AFTER = (0, 5, 4)
_GONE = {
    "--enable-beta-spec": "set SGLANG_ENABLE_SPEC_V2=1 instead",
    "--enable-ep-moe": "use --ep-size",
    "--enable-deepep-moe": "use --moe-a2a-backend deepep",
}


def wanted(argv: Sequence[str]) -> bool:
    """Whether SGLang should compute: asked for, or possible and not refused.

    Only the flags that decide are looked at: the others may be ones that SGLang alone knows.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_known_args(argv)[0]
    if args.check:
        return False
    if args.engine != "auto":
        return bool(args.engine == "sglang")
    has_gpu = Path("/dev/nvidiactl").exists() and args.device != "cpu"
    return has_gpu and importlib.util.find_spec("sglang") is not None


def version() -> tuple[int, ...]:
    """The installed SGLang's version.

    Raises:
        ValueError: there is none.
    """
    try:
        text = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        raise ValueError(
            "--engine sglang: SGLang is not installed in this Python environment"
        ) from None
    numbers = []
    for part in text.split(".")[:3]:
        digits = "".join(ch for ch in part if ch.isdigit())
        numbers.append(int(digits or 0))
    return tuple(numbers)


def translate(argv: Sequence[str], installed: tuple[int, ...]) -> list[str]:
    """The arguments for that version: our own flags dropped, renamed ones renamed.

    Raises:
        ValueError: a flag is gone in that version; the message says what replaced it.
    """
    out: list[str] = []
    items = iter(argv)
    for item in items:
        flag, equals, value = item.partition("=")
        if flag in _OWN_BARE:
            continue
        if flag in _OWN_WITH_VALUE:
            if not equals:
                next(items, None)
            continue
        if flag in _GONE and installed >= _GONE_AFTER:
            raise ValueError(
                f"{flag}: SGLang {'.'.join(map(str, installed))} has no such flag; {_GONE[flag]}"
            )
        if flag in _SPLIT and installed >= _SPLIT_AFTER:
            flag = _SPLIT[flag]
        out.append(flag + equals + value)
    return out


def run(argv: Sequence[str]) -> NoReturn:
    """Become ``sglang.launch_server``; environment and process id stay, so a run record still fits.

    Raises:
        ValueError: SGLang is missing, or lacks a flag.
    """
    arguments = translate(argv, version())
    os.execv(sys.executable, [sys.executable, "-m", "sglang.launch_server", *arguments])  # noqa: S606
