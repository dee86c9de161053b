"""Rules over variables: NCCL's, proxies, secrets, switches that fake or slow, login against launch.

Facts: data/nccl.yaml; SGLang environ.py and entrypoints/http_server.py (its warm-up is a request to
its own address through ``requests``, which obeys proxy variables); Python urllib getproxies.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

from console.model import Change, Finding
from console.preflight.context import Context, truthy
from console.preflight.tables import variables
from console.text import clean, is_secret_name

SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader in C where it is there: the table is long, and a launch waits for it."""
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_COLLECTIVES = frozenset(
    {"broadcast", "reduce", "allgather", "reducescatter", "allreduce", "sendrecv"}
)
_LOGIN_MATTERS = re.compile(
    r"(?:PATH|LD_LIBRARY_PATH|LD_PRELOAD|CUDA_\w+|NCCL_\w+|SGLANG_\w+|HF_\w+|TRITON_\w+|VIRTUAL_ENV"
    r"|CONDA_PREFIX|PYTHONPATH|\w*_proxy|\w*_PROXY|GLOO_\w+|TORCH_\w+)$"
)

_FOLDER_LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_EVERYWHERE = frozenset(
    {
        *("", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"),
        *("/usr/games", "/usr/local/games", "/snap/bin"),
    }
)
"""Folders that a login shell adds on any host and no server needs."""


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over variables."""
    env = effective(ctx)
    yield from nccl(ctx, env)
    yield from proxies(ctx, env)
    yield from switches(ctx, env)
    yield from misspelt(ctx, env)
    yield from secrets(ctx)
    yield from login(ctx, env)


def effective(ctx: Context) -> Mapping[str, str]:
    """What the server will see, as far as it is known: the launch's own variables win."""
    return {**(ctx.facts.launch_env or {}), **ctx.command.env}


@cache
def nccl_variables() -> Mapping[str, Any]:
    """NCCL's variables and what each takes."""
    file = resources.files("console.preflight") / "data" / "nccl.yaml"
    known: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=SAFE)  # noqa: S506
    return known


def nccl(ctx: Context, env: Mapping[str, str]) -> Iterator[Finding]:
    """NCCL takes any name and any value in silence, so a slip costs speed and nobody sees why."""
    known = nccl_variables()
    for name, value in sorted(env.items()):
        if not name.startswith("NCCL_") or "$" in value:
            continue
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
            yield ctx.warning(
                "nccl-unknown",
                f"{clean(name, limit=60)} is no variable of NCCL; it has no effect",
                f"did you mean {near[0]}?" if near else "remove it",
                change=Change(env={name: None, **({near[0]: value} if near else {})}),
            )
        elif wrong := nccl_wrong(known[name], value):
            yield ctx.warning(
                "nccl-value",
                f"{name}={clean(value, limit=60)}: {wrong}; NCCL refuses or ignores it",
                "correct it, or remove the variable",
            )
    low, high = env.get("NCCL_MIN_NCHANNELS", ""), env.get("NCCL_MAX_NCHANNELS", "")
    if low.isdigit() and high.isdigit() and int(low) > int(high):
        yield ctx.warning(
            "nccl-value",
            f"NCCL_MIN_NCHANNELS={low} is more than NCCL_MAX_NCHANNELS={high}",
            "swap them, or remove one",
        )


def nccl_wrong(kind: Any, value: str) -> str:
    """What is wrong with a value, empty where nothing is."""
    if kind == "text":
        return "" if value else "it is empty"
    if kind in ("int", "bool"):
        if not re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", value.strip()):
            return "not a whole number"
        return "not 0 or 1" if kind == "bool" and value.strip() not in ("0", "1", "2") else ""
    allowed = {str(item).lower(): str(item) for item in kind}
    for word in re.split(r"[,;:^=\s]+", value.strip()):
        if word and word.lower() not in allowed and word.lower() not in _COLLECTIVES:
            near = difflib.get_close_matches(word.lower(), allowed, n=1, cutoff=0.6)
            hint = f", did you mean {allowed[near[0]]}?" if near else ""
            return f"'{clean(word, limit=40)}' is none of {', '.join(allowed.values())}{hint}"
    return "" if value.strip() else "it is empty"


def proxies(ctx: Context, env: Mapping[str, str]) -> Iterator[Finding]:
    """A proxy that the server's own warm-up request goes through."""
    if ctx.settings.on("skip-server-warmup"):
        return
    name = next((p for p in _PROXIES if env.get(p)), None)
    if name is None:
        return
    host = ctx.settings.text("host") or "127.0.0.1"
    own = "127.0.0.1" if host in ("0.0.0.0", "") else host  # noqa: S104 - compared, not bound
    excluded = env.get("no_proxy") or env.get("NO_PROXY") or ""
    if excludes(excluded, own):
        return
    yield ctx.warning(
        "proxy-warmup",
        f"{name} is set and no_proxy does not name {own}: the server sends its own warm-up request "
        "through the proxy and may never become ready",
        f"set no_proxy={own},localhost",
        change=Change(env={"no_proxy": ",".join(filter(None, (excluded, own, "localhost")))}),
    )


def excludes(no_proxy: str, host: str) -> bool:
    """Whether a no_proxy list covers a host: ``*``, the name itself, a suffix, a network."""
    for item in re.split(r"[,\s]+", no_proxy):
        name = item.strip().lstrip(".").split(":")[0] if item.count(":") < 2 else item.strip("[]")
        if name in ("*", host) or (name and host.endswith("." + name)):
            return True
        prefix, slash, bits = name.partition("/")
        if slash and bits.isdigit() and int(bits) >= 8:
            parts = int(bits) // 8
            if prefix.split(".")[:parts] == host.split(".")[:parts]:
                return True
    return False


def switches(ctx: Context, env: Mapping[str, str]) -> Iterator[Finding]:
    """Variables that fake results, hide checks, or slow everything down."""
    fake = env.get("SGLANG_SIMULATE_ACC_LEN", "")
    if re.fullmatch(r"\d+(\.\d+)?", fake) and float(fake) > 0:
        yield ctx.warning(
            "env-simulated-acceptance",
            f"SGLANG_SIMULATE_ACC_LEN={fake} fakes the accept length: metrics mean nothing and the "
            "text is wrong",
            "unset it",
            change=Change(env={"SGLANG_SIMULATE_ACC_LEN": None}),
        )
    if truthy(env.get("SGLANG_IS_IN_CI")):
        yield ctx.warning(
            "env-ci",
            "SGLANG_IS_IN_CI is set: checks such as the context length are skipped",
            "unset it outside CI",
            change=Change(env={"SGLANG_IS_IN_CI": None}),
        )
    for name, why in (
        ("CUDA_LAUNCH_BLOCKING", "every kernel is waited for"),
        ("NCCL_P2P_DISABLE", "GPUs exchange data through host memory"),
        ("NCCL_SHM_DISABLE", "ranks exchange data through sockets"),
    ):
        if env.get(name) == "1":
            yield ctx.info("env-slow", f"{name}=1: {why}, which is slow", "unset it",
                           change=Change(env={name: None}))  # fmt: skip
    if ctx.since("0.5.14") and "SGLANG_ENABLE_SPEC_V2" in ctx.command.env:
        yield ctx.info(
            "env-spec-v2",
            f"SGLANG_ENABLE_SPEC_V2 has no effect in {ctx.tables.version}",
            "remove it",
            change=Change(env={"SGLANG_ENABLE_SPEC_V2": None}),
        )


def misspelt(ctx: Context, env: Mapping[str, str]) -> Iterator[Finding]:
    """A variable that no version of the engine reads, close to one that is read."""
    if not ctx.sglang or ctx.bundled:
        return
    known = variables()
    for name, value in sorted(env.items()):
        if not name.startswith(("SGLANG_", "SGL_")) or name in known:
            continue
        if name.replace("SGL_", "SGLANG_", 1) in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if near:
            yield ctx.warning(
                "env-unknown",
                f"{clean(name, limit=60)} is read by no known version of SGLang; it has no effect",
                f"did you mean {near[0]}?",
                change=Change(env={name: None, near[0]: value}),
            )


def secrets(ctx: Context) -> Iterator[Finding]:
    """A secret on the command line is seen by every user of the host."""
    for key in ("api-key", "admin-api-key"):
        if key in ctx.settings:
            yield ctx.warning(
                "secret-argv",
                f"the value of --{key} is visible in ps and in the server's log",
                "restrict who can log in there; change the key after it was on a shared host",
                f"--{key}",
            )
    for name, words in ctx.command.flags:
        key = name.lstrip("-")
        known = key in ("api-key", "admin-api-key") or key in ctx.settings
        if words and not known and is_secret_name(key):
            yield ctx.warning("secret-argv", f"the value of {clean(name, limit=40)} is visible in "
                              "ps", "pass it in the environment", name)  # fmt: skip


def lacks(name: str, launch: str, shell: str, ctx: Context) -> bool:
    """Whether the launch's value lacks what the login shell's has.

    Of a list of folders only those count that the launch has not; of PATH, where the interpreter is
    named in full, only those with tools that kernels are built with.
    """
    if launch == shell:
        return False
    if name not in _FOLDER_LISTS:
        return True
    extra = set(shell.split(":")) - set(launch.split(":")) - _EVERYWHERE
    if name == "PATH" and ctx.command.python.startswith("/"):
        extra = {folder for folder in extra if re.search(r"cuda|rocm|nvidia|hpc", folder)}
    return bool(extra)


def login(ctx: Context, env: Mapping[str, str]) -> Iterator[Finding]:
    """What a login shell has and the launch has not: the classic 'it works when I type it'."""
    shell, launch = ctx.facts.login_env, ctx.facts.launch_env
    if shell is None or launch is None:
        return
    names = [name for name in shell if _LOGIN_MATTERS.match(name)]
    missing = sorted(name for name in names if name not in env)
    differs = sorted(
        n for n in names if n in env and n in launch and lacks(n, env[n], shell[n], ctx)
    )
    if missing:
        yield ctx.info(
            "env-login-missing",
            f"a login shell has {', '.join(missing[:6])}{', …' if len(missing) > 6 else ''}; the "
            "launch has not",
            "add to the server's env what it needs",
        )
    if differs:
        yield ctx.info(
            "env-login-differs",
            f"{', '.join(differs[:6])}{', …' if len(differs) > 6 else ''} differ between a login "
            "shell and the launch",
            "set them in the server's env where it matters",
        )
