"""The same failure as another host would have written it: every variant keeps the answer.

Each variant is a function of a case's text and a seed. What it renames or shifts it renames
consistently, and :func:`adapted` gives the expectation in the new names.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from typing import Any

Variant = Callable[[str, random.Random], str]

_TIME = re.compile(r"(?<=\b\d{4}-\d\d-\d\d )(\d\d)(?=:\d\d:\d\d)")
_FRAME_LINE = re.compile(r'(File "[^"]+", line )(\d+)')
_PID = re.compile(r"(?<=pid=)(\d{3,7})|(?<=[Pp]rocess )(\d{4,7})")
_PORT = re.compile(r"(?<=127\.0\.0\.1:)(\d{4,5})|(?<=port[:=] )(\d{4,5})")

SHIFT = 37
"""How far the line numbers of frames are shifted."""


def renamed_hosts(text: str, rng: random.Random) -> str:
    for name in sorted(set(re.findall(r"\bgpu-[a-z0-9-]+", text)), key=len, reverse=True):
        text = text.replace(name, f"node{rng.randrange(10, 99)}x")
    return re.sub(r"\b10\.(\d+)\.(\d+)\.(\d+)\b", r"172.\1.\2.\3", text)


def renamed_paths(text: str, _rng: random.Random) -> str:
    for old, new in (
        ("/usr/local/lib/python3.12/dist-packages", "/srv/py/lib/python3.11/site-packages"),
        ("/sgl-workspace/sglang/python", "/app/src"),
        ("/home/infer/miniforge3/envs/serve", "/opt/conda/envs/llm"),
        ("/opt/venvs/sgl", "/data/venv"),
        ("/opt/serve", "/usr/share/srv"),
        ("/root/sglang/python", "/work/checkout"),
        ("/srv/models", "/mnt/weights"),
    ):
        text = text.replace(old, new)
    return text


def shifted_times(text: str, rng: random.Random) -> str:
    hours = rng.randrange(1, 5)
    return _TIME.sub(lambda m: f"{(int(m[1]) + hours) % 24:02d}", text)


def renamed_ports(text: str, rng: random.Random) -> str:
    step = rng.randrange(3, 900)
    text = _PORT.sub(lambda m: str(int(m[0]) + step), text)
    return _PID.sub(lambda m: m[0], text)


def shifted_lines(text: str, _rng: random.Random) -> str:
    return _FRAME_LINE.sub(lambda m: f"{m[1]}{int(m[2]) + SHIFT}", text)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def journald(text: str, rng: random.Random) -> str:
    pid = rng.randrange(1000, 99999)
    return _wrap(
        text, lambda i: f"Nov 29 14:{i // 60 % 60:02d}:{i % 60:02d} n7 sglang-a.service[{pid}]: "
    )


def journald_iso(text: str, rng: random.Random) -> str:
    pid = rng.randrange(1000, 99999)
    return _wrap(
        text, lambda i: f"2026-11-29T14:{i // 60 % 60:02d}:{i % 60:02d}+0000 n7 python3[{pid}]: "
    )


def compose(text: str, _rng: random.Random) -> str:
    return _wrap(text, lambda _i: "llm-server-1  | ")


def kubernetes(text: str, _rng: random.Random) -> str:
    return _wrap(
        text, lambda i: f"2026-11-29T14:{i // 60 % 60:02d}:{i % 60:02d}.123456789Z stderr F "
    )


def kubectl_prefix(text: str, _rng: random.Random) -> str:
    return _wrap(text, lambda _i: "[pod/llm-0/server] ")


def docker(text: str, _rng: random.Random) -> str:
    return "".join(
        json.dumps(
            {"log": line + "\n", "stream": "stderr", "time": f"2026-11-29T14:00:{i % 60:02d}Z"}
        )
        + "\n"
        for i, line in enumerate(_lines(text))
    )


def ray(text: str, rng: random.Random) -> str:
    pid = rng.randrange(1000, 99999)
    return _wrap(text, lambda _i: f"\x1b[36m(SGLangEngine pid={pid})\x1b[0m ")


def _wrap(text: str, prefix: Callable[[int], str]) -> str:
    return "\n".join(prefix(i) + line for i, line in enumerate(_lines(text))) + "\n"


def cut_head(text: str, _rng: random.Random) -> str:
    """Lines before the first sign of trouble are gone, as in the tail of a rotated log."""
    lines = _lines(text)
    first = next((i for i, line in enumerate(lines) if _TROUBLE.search(line)), 0)
    return "\n".join(lines[first:]) + "\n"


def cut_tail(text: str, _rng: random.Random) -> str:
    """What came after the last exception is gone, as when the box lost power."""
    lines = _lines(text)
    last = max((i for i, line in enumerate(lines) if _TROUBLE.search(line)), default=len(lines) - 1)
    keep = min(len(lines), last + 1 + 12)
    return "\n".join(lines[:keep])


def noisy(text: str, _rng: random.Random) -> str:
    """Hours of ordinary serving before the trouble."""
    day = re.search(r"\d{4}-\d\d-\d\d (?=\d\d:)", text)
    hour = day[0] + text[day.end() : day.end() + 2] if day else "2026-01-01 00"
    noise = "".join(
        f"[{hour}:{i // 60 % 60:02d}:{i % 60:02d}] INFO:     127.0.0.1:5{i:04d} - "
        f'"POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        for i in range(300)
    )
    return noise + text


def crlf(text: str, _rng: random.Random) -> str:
    return text.replace("\n", "\r\n")


def interleaved(text: str, _rng: random.Random) -> str:
    """A second rank prints the same traceback, line by line in turn with the first."""
    lines = _lines(text)
    out: list[str] = []
    inside = False
    for line in lines:
        header = _HEADER.search(line)
        if header:
            inside = True
            out += [line, line.replace(header[0], f"TP{int(header[1]) + 50}]")]
        elif inside and (line.startswith("  ") or re.match(r"[\w.]+Error\b", line)):
            out += [line, line]
            inside = line.startswith("  ")
        else:
            inside = False
            out.append(line)
    return "\n".join(out) + "\n"


_HEADER = re.compile(r"TP(\d+)\](?= Scheduler hit an exception: Traceback)")
_TROUBLE = re.compile(
    r"Traceback|Error\b|Assertion|NVRM|NCCL WARN|atchdog|NVML|Killed|Signal:|Ignore import"
    r"|sglang::|VLLM::|Warning: Target|fatal error|cannot find| D |knvlink|Cuda error|accept len"
    r"|health|Worker is|running-req|ready to roll|exception|checkpoint shards|monitoredBarrier"
    r"|oom-kill|\$ "
)

VARIANTS: dict[str, Variant] = {
    "hosts": renamed_hosts,
    "paths": renamed_paths,
    "times": shifted_times,
    "ports": renamed_ports,
    "lines": shifted_lines,
    "journald": journald,
    "journald-iso": journald_iso,
    "compose": compose,
    "kubernetes": kubernetes,
    "kubectl": kubectl_prefix,
    "docker": docker,
    "ray": ray,
    "interleaved": interleaved,
    "head": cut_head,
    "tail": cut_tail,
    "noise": noisy,
    "crlf": crlf,
}


def varied(text: str, names: Iterable[str], seed: int) -> str:
    """The text after the named variants in turn."""
    rng = random.Random(seed)
    for name in names:
        text = VARIANTS[name](text, rng)
    return text


def adapted(expect: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The expectation in the names of the variant."""
    expect = dict(expect)
    for name in names:
        if name == "lines" and expect.get("file_line"):
            file, _, line = expect["file_line"].rpartition(":")
            expect["file_line"] = f"{file}:{int(line) + SHIFT}"
        if name in ("hosts", "paths", "ports", "lines"):
            texts = expect.get("message_contains")
            if texts:
                as_list = [texts] if isinstance(texts, str) else texts
                expect["message_contains"] = [
                    VARIANTS[name](text, random.Random(0)) for text in as_list
                ]
    return expect
