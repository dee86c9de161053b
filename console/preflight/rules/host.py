"""Rules over the host: paths, ports, containers, the log, driver, other servers.

Facts: docker's 64 MiB /dev/shm; CUDA compatibility tables (driver 580 for CUDA 13, 525 for 12, 450
for 11, minor versions compatible); SGLang ZMQ_TCP_PORT_DELTA = 233.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from console.model import Change, Finding
from console.preflight.command import LaunchCommand
from console.preflight.context import Context, truthy
from console.preflight.docker import DEFAULT_SHM_MIB
from console.preflight.rules.environment import effective
from console.text import clean

DEFAULT_PORT = {"sglang": 30000, "bundled": 30000, "vllm": 8000}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PATH_FLAGS = (
    ("model-path", "the target's folder"),
    ("speculative-draft-model-path", "the draft's folder"),
    ("tokenizer-path", "the tokenizer's folder"),
    ("chat-template", "the chat template"),
    ("ssl-keyfile", "the TLS key"),
    ("ssl-certfile", "the TLS certificate"),
    ("config", "the file with more flags"),
    ("speculative-token-map", "the token map"),
)
_CACHES = (
    *("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"),
    *("TORCH_EXTENSIONS_DIR", "FLASHINFER_WORKSPACE_BASE", "SGLANG_DG_CACHE_DIR", "TMPDIR"),
)
"""Variables that name a folder which the engine, or what it compiles with, makes and writes to."""
_DRIVER_FOR_CUDA = {11: 450, 12: 525, 13: 580}
_MIN_LOG_MIB = 100.0
_MIN_SHM_MIB = 1024.0


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the host."""
    yield from paths(ctx)
    yield from caches(ctx)
    yield from ports(ctx)
    yield from host_form(ctx)
    yield from reachable(ctx)
    yield from shared_memory(ctx)
    yield from log(ctx)
    yield from hangup(ctx)
    yield from driver(ctx)
    yield from served(ctx)


def is_local(path: str) -> bool:
    """Whether text is a path of the host rather than a repository's name."""
    return path.startswith(("/", "./", "../", "~"))


def wanted_paths(command: LaunchCommand, settings_text: dict[str, str]) -> tuple[str, ...]:
    """The paths whose state the rules ask for, for whoever collects the facts.

    ``settings_text`` maps canonical flag names to values.
    """
    found = [settings_text[key] for key, _ in _PATH_FLAGS if key in settings_text]
    found += [item for item in (command.cwd, command.python) if item]
    if command.log:
        found.append(str(PurePosixPath(command.log).parent))
    found += command.env_files
    found += [command.env[name] for name in _CACHES if name in command.env]
    return tuple(dict.fromkeys(path for path in found if is_local(path)))


def paths(ctx: Context) -> Iterator[Finding]:
    """Paths that are named exist and can be read."""
    command = ctx.command
    named = [(ctx.settings.text(key), what, f"--{key}") for key, what in _PATH_FLAGS]
    named += [(command.cwd, "the working directory", ""), (command.python, "the interpreter", "")]
    named += [(file, "the environment file", "") for file in command.env_files]
    for path, what, flag in named:
        facts = ctx.facts.paths.get(path) if path and is_local(path) else None
        if path is None or facts is None:
            continue
        flags = (flag,) if flag else ()
        shown = clean(path, limit=100)
        if facts.exists is False:
            yield ctx.error("path-missing", f"{what} {shown} does not exist", "correct the path",
                            *flags)  # fmt: skip
        elif facts.readable is False:
            yield ctx.error("path-unreadable", f"{what} {shown} cannot be read by the user that "
                            "launches", "change its mode or the user", *flags)  # fmt: skip
    for key in ("model-path", "speculative-draft-model-path"):
        uri = re.match(r"(s3|gs|az|azure)://", ctx.settings.text(key) or "")
        if uri:
            yield ctx.warning(
                "model-remote",
                f"--{key} is in object storage: the start downloads it first",
                "copy it to the host before",
                f"--{key}",
            )


def caches(ctx: Context) -> Iterator[Finding]:
    """Folders for caches are folders, and the user that launches may write there."""
    for name in _CACHES:
        path = ctx.command.env.get(name, "")
        facts = ctx.facts.paths.get(path)
        if facts is None or not facts.exists:
            continue  # it is made where it is missing
        shown = f"{name}={clean(path, limit=100)}"
        if facts.directory is False:
            yield ctx.error("cache-not-a-folder", f"{shown} is a file: the first kernel or file "
                            "that is kept there ends the start", "name a folder")  # fmt: skip
        elif facts.writable is False:
            yield ctx.warning("cache-unwritable", f"{shown} cannot be written by the user that "
                              "launches", "name a folder of that user's own")  # fmt: skip


def port_of(ctx: Context) -> int | None:
    """The HTTP port; None where the text does not tell."""
    return ctx.settings.integer("port", DEFAULT_PORT[ctx.command.engine])


def ports(ctx: Context) -> Iterator[Finding]:
    """Ports that are valid, free and different."""
    http, nccl = port_of(ctx), ctx.settings.integer("nccl-port")
    used = ctx.facts.ports or {}
    for flag, port in (("--port", http), ("--nccl-port", nccl)):
        if port is None:
            continue
        if not (0 < port < 65536 or (port == 0 and ctx.bundled)):
            yield ctx.error("port-range", f"{flag} {port} is not between 1 and 65535",
                            "use 30000", flag)  # fmt: skip
        elif port in used:
            late = " after everything has loaded" if flag == "--port" else ""
            yield ctx.error(
                "port-in-use",
                f"{flag} {port} is taken by {clean(used[port], limit=80) or 'another process'}; "
                f"the bind fails{late}",
                "stop it, or use another port",
                flag,
            )
    bootstrap = ctx.settings.integer("disaggregation-bootstrap-port", 8998)
    if http == bootstrap and ctx.settings.text("disaggregation-mode") == "prefill":
        yield ctx.error(
            "port-same",
            f"--port and --disaggregation-bootstrap-port are both {http}",
            "use another --port",
            "--port",
            "--disaggregation-bootstrap-port",
        )
    if http is not None and http == nccl:
        yield ctx.error("port-same", f"--port and --nccl-port are both {http}",
                        "leave --nccl-port out", "--port", "--nccl-port")  # fmt: skip
    yield from grpc_port(ctx, http)
    address = ctx.settings.text("dist-init-addr") or ""
    meeting = address.rpartition(":")[2]
    if meeting.isdigit() and ctx.settings.integer("node-rank", 0) == 0 and int(meeting) in used:
        yield ctx.error(
            "port-in-use",
            f"the port of --dist-init-addr, {meeting}, is taken by "
            f"{clean(used[int(meeting)], limit=80) or 'another process'}",
            "use another port on every node",
            "--dist-init-addr",
        )
    if http is not None and ctx.attention_dp > 1:
        block = [port for port in range(http + 233, http + 238) if port in used]
        if block:
            yield ctx.error(
                "port-in-use",
                f"split attention uses ports {http + 233} to {http + 237}; {block[0]} is taken",
                "use another --port",
                "--port",
            )


def host_form(ctx: Context) -> Iterator[Finding]:
    """--host is a name or an address, without scheme or port."""
    host = ctx.settings.text("host") or ""
    if "//" in host or host.count(":") == 1 or (host and not host.strip()) or "/" in host:
        yield ctx.error(
            "host-form",
            f"--host {clean(host, limit=60)} is no name or address: the bind fails after "
            "everything has loaded",
            "write --host 0.0.0.0 --port 30000",
            "--host",
            "--port",
        )


def grpc_port(ctx: Context, http: int | None) -> Iterator[Finding]:
    """The port that the engine derives from --port for gRPC, whether it serves gRPC or not."""
    given = effective(ctx).get("SGLANG_GRPC_PORT", "").strip()
    if http is None or not 0 < http < 65536 or not ctx.source("port-grpc") or ctx.bundled:
        return
    if given and not given.isdigit():
        return
    port = int(given) if given else http + 10000
    if not 0 < port < 65536:
        where = "SGLANG_GRPC_PORT" if given else f"--port {http} + 10000"
        yield ctx.error(
            "port-grpc",
            f"the gRPC port, {where} = {port}, is above 65535: the start ends in a ValueError",
            "use a --port up to 55535, or set SGLANG_GRPC_PORT",
            "--port",
            change=Change(env={"SGLANG_GRPC_PORT": "50051"}),
        )
    elif given and port == http and truthy(effective(ctx).get("SGLANG_ENABLE_GRPC")):
        yield ctx.error(
            "port-grpc",
            f"SGLANG_GRPC_PORT and --port are both {http}",
            "unset SGLANG_GRPC_PORT",
            "--port",
            change=Change(env={"SGLANG_GRPC_PORT": None}),
        )


def reachable(ctx: Context) -> Iterator[Finding]:
    """A container's published port leads to the port that the server binds."""
    container, http = ctx.command.container, port_of(ctx)
    if container is None or container.host_network or http is None or not container.ports:
        return
    host = ctx.settings.text("host") or ("127.0.0.1" if ctx.sglang else "0.0.0.0")  # noqa: S104
    if http not in container.ports.values():
        inside = ", ".join(str(p) for p in sorted(set(container.ports.values())))
        yield ctx.warning(
            "container-port",
            f"the server listens on {http}, the container publishes {inside}",
            f"publish {http}:{http}",
            "--port",
        )
    elif host in _LOOPBACK:
        yield ctx.warning(
            "container-loopback",
            f"the server binds {host} inside the container: it looks healthy from inside and every "
            "connection to the published port is reset",
            "add --host 0.0.0.0",
            "--host",
        )


def shared_memory(ctx: Context) -> Iterator[Finding]:
    """Ranks exchange data through /dev/shm."""
    if ctx.parallel("tp-size") * ctx.parallel("pp-size") < 2:
        return
    container = ctx.command.container
    if container is not None and not container.ipc_host:
        given = container.shm_mib if container.shm_mib is not None else DEFAULT_SHM_MIB
        if given < _MIN_SHM_MIB:
            yield ctx.warning(
                "shm-small",
                f"the container's /dev/shm has {given:.0f} MiB; NCCL's ranks fail to share memory "
                "when it runs full",
                "add --shm-size 32g or --ipc=host",
            )
    elif ctx.facts.shm_free_mib is not None and ctx.facts.shm_free_mib < _MIN_SHM_MIB:
        yield ctx.warning(
            "shm-small",
            f"{ctx.facts.shm_free_mib:.0f} MiB of /dev/shm are free; NCCL's ranks share it",
            "remove what a dead server left in it",
        )


def log(ctx: Context) -> Iterator[Finding]:
    """The log has a folder, space, and gets standard error."""
    command = ctx.command
    out = [r for r in command.redirections if r.fd == "1"]
    if command.form == "shell" and out and command.log is None and out[-1].path != "/dev/null":
        yield ctx.warning(
            "log-stderr",
            f"only standard output goes to {clean(out[-1].path, limit=80)}; the log is written to "
            "standard error",
            "write > FILE 2>&1 (in this order)",
        )
    if command.log is None or not is_local(command.log):
        return
    folder = str(PurePosixPath(command.log).parent)
    facts = ctx.facts.paths.get(folder)
    if facts is None:
        return
    if facts.exists is False:
        yield ctx.error("log-folder", f"the log's folder {clean(folder, limit=80)} does not exist; "
                        "nothing is started", "create it")  # fmt: skip
    elif facts.writable is False:
        yield ctx.error("log-folder", f"the log's folder {clean(folder, limit=80)} cannot be "
                        "written; nothing is started", "change its mode")  # fmt: skip
    elif facts.free_mib is not None and facts.free_mib < _MIN_LOG_MIB:
        yield ctx.warning("disk-full", f"{facts.free_mib:.0f} MiB are left where the log is "
                          "written", "free some space")  # fmt: skip


def hangup(ctx: Context) -> Iterator[Finding]:
    """A background job of a login shell dies with it."""
    kept = {"nohup", "setsid", "screen", "systemd-run", "tmux"}
    command = ctx.command
    if command.form == "shell" and command.background and not kept & set(command.wrapper):
        yield ctx.info(
            "background-hangup",
            "the server is a plain background job: it can end with the shell that started it",
            "put setsid or nohup before it",
        )


def driver(ctx: Context) -> Iterator[Finding]:
    """The driver is new enough for the CUDA that torch was built for."""
    cuda, have = ctx.facts.torch_cuda, ctx.facts.driver
    if not cuda or not have:
        return
    major, branch = cuda.split(".")[0], have.split(".")[0]
    if not major.isdigit() or not branch.isdigit():
        return
    needs = _DRIVER_FOR_CUDA.get(int(major))
    if needs is not None and int(branch) < needs:
        yield ctx.error(
            "driver-cuda",
            f"torch is built for CUDA {cuda}, which needs driver {needs} or newer; the host has "
            f"{have}",
            "update the driver, or install torch for an older CUDA",
        )


def served(ctx: Context) -> Iterator[Finding]:
    """The same model is served already."""
    path = ctx.settings.text("model-path")
    for server in ctx.facts.served or ():
        if path and server.model == path and not server.replaced:
            where = f" on port {server.port}" if server.port else ""
            yield ctx.warning(
                "already-served",
                f"'{clean(server.name, limit=60)}' serves this model already{where}",
                "stop it first unless both are wanted",
                "--model-path",
            )
