"""``specops logs`` and ``specops diagnose``: a server's log, or any file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.cli.common import Cli, common, connected, run_async
from console.cli.logfiles import BLOCK, blocks, local, refuse_packed
from console.cli.output import paint, print_json, say, say_while_read, warn
from console.errors import UsageError

if TYPE_CHECKING:
    from console.diagnosis import Rules
    from console.model import Diagnosis, Server
    from console.remote import LogChunk, LogSource, Remote

LAST_LINES = 200
MESSAGE_LINES, MESSAGE_CHARS = 8, 600
"""Of a root's message, so many lines and of each so many characters are for people."""
DIAGNOSED_BYTES = 16 << 20
"""Of a log on a host, so much of its end is read for a diagnosis: the last start is in it."""


@click.command()
@click.argument("what", metavar="SERVER|FILE")
@click.option("-n", "last", type=click.IntRange(0), help=f"The last N lines ({LAST_LINES}).")
@click.option("-f", "follow", is_flag=True, help="Go on as the log grows.")
@click.option("--errors", is_flag=True, help="Only errors, tracebacks and exception lines.")
@click.option(
    "--grep", "pattern", metavar="RE", help="Only lines that match; searched on the host."
)
@click.option("--host", "node", metavar="HOST", help="Of a server over several: this node's.")
@common()
def logs(
    cli: Cli, what: str, last: int | None, follow: bool, errors: bool, pattern: str | None,
    node: str | None,
) -> int:  # fmt: skip
    """Show, follow or search a server's log, or a file on this machine."""
    if follow and cli.json:
        raise UsageError("-f with --json never ends its document", hint="leave one of them out")
    if pattern:
        _check_pattern(pattern)
    path = _local(cli, what)
    if path:
        refuse_packed(path)
        return run_async(_show(cli, None, path, what, last, follow, errors, pattern))
    config = cli.config()
    server = config.server(what)
    if node is not None and node not in server.nodes:
        raise UsageError(f"{what} does not run on {node}", hint=f"on {', '.join(server.nodes)}")
    server = replace(server, host=node or server.host)
    return run_async(_remote(cli, server, last, follow, errors, pattern))


def _check_pattern(pattern: str) -> None:
    import re

    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"not a regular expression: {error}", place="--grep") from error


def _local(cli: Cli, what: str, *, stream: bool = False) -> Path | None:
    """The file meant, where it is one: a name with a slash, or no server of that name."""
    path = Path(what)
    if "/" in what or what.startswith("."):
        return local(what, stream=stream)
    if what in cli.config().servers or not path.exists():
        return None
    return local(what, stream=stream)


async def _remote(
    cli: Cli, server: Server, last: int | None, follow: bool, errors: bool, pattern: str | None
) -> int:
    from console.logs.several import name_of

    config = cli.config()
    async with connected(config, config.host(server.host), read_only=True) as remote:
        source = await log_source(remote, server)
        return await _show(cli, remote, source, name_of(source), last, follow, errors, pattern)


async def log_source(remote: Remote, server: Server) -> LogSource:
    """Where the newest run of a server writes: its record says, else the configuration.

    Raises:
        UsageError: neither does.
    """
    from console.logs.follower import source_of

    runs = [run for run in await remote.runs() if run.server == server.name]
    source = source_of(server, max(runs, key=lambda run: run.launched_at, default=None))
    if source is not None:
        return source
    hint = f"specops launch {server.name}, or name a log in hosts.yaml"
    raise UsageError("no run is recorded and no log is named", place=server.name, hint=hint)


async def _show(
    cli: Cli, remote: Remote | None, source: Any, name: str, last: int | None, follow: bool,
    errors: bool, pattern: str | None,
) -> int:  # fmt: skip
    from console.logs.pieces import MOST
    from console.text import clean, mask

    found = _found(remote, source, last, follow, errors, pattern)
    shown: list[dict[str, Any]] = []
    async for offset, raw in found:
        text = mask(clean(raw, limit=MOST + 40))  # the note of what is left out included
        if errors and not _is_error(text):
            continue
        if cli.json:
            shown.append({"offset": offset, "text": text})
        else:
            _print(text)
    if cli.json:
        print_json({"log": name, "lines": shown})
    return 0


def _found(
    remote: Remote | None, source: Any, last: int | None, follow: bool, errors: bool,
    pattern: str | None,
) -> AsyncIterator[tuple[int, bytes]]:  # fmt: skip
    """The lines asked for, searched where the log is; a followed log is searched as it comes."""
    if follow:
        rows = _tail(remote, source, LAST_LINES if last is None else last, follow)
        return _matching(rows, pattern) if pattern else rows
    if pattern:
        return _grep(remote, source, pattern, last)
    if errors and last is None and remote is not None:
        from console.diagnosis import TROUBLE
        from console.remote import MOST_HITS

        return _grep(remote, source, TROUBLE, MOST_HITS)
    return _tail(remote, source, LAST_LINES if last is None and not errors else last, follow)


async def _matching(
    rows: AsyncIterator[tuple[int, bytes]], pattern: str
) -> AsyncIterator[tuple[int, bytes]]:
    import re

    wanted = re.compile(pattern.encode())
    async for offset, line in rows:
        if wanted.search(line):
            yield offset, line


def _is_error(text: str) -> bool:
    from console.diagnosis import LineKind, classify_line

    plain = (LineKind.PLAIN, LineKind.WARNING, LineKind.BAR)
    return classify_line(text) not in plain


def _print(text: str) -> None:
    say_while_read(paint(text, "red") if _is_error(text) else text)


async def _grep(
    remote: Remote | None, source: Any, pattern: str | Sequence[str], last: int | None
) -> AsyncIterator[tuple[int, bytes]]:
    """Lines that match: all of a file here, the first or the last so many of a log on a host."""
    if remote is not None:
        from console.logs.several import grep
        from console.remote import MOST_HITS

        count = 0
        async for at, label, line in grep(remote, source, pattern, last=last):
            yield at, f"{label} | ".encode() + line if label else line
            count += 1
        if count == MOST_HITS:
            which = "first" if last is None else "last"
            warn(f"only the {which} {count} lines that match are shown (-n N: the last N)")
        return
    import re
    from collections import deque

    assert isinstance(pattern, str)  # words are for a host's grep
    wanted, offset = re.compile(pattern.encode()), 0
    newest: deque[tuple[int, bytes]] = deque(maxlen=last)
    with source.open("rb") as file:
        for line in file:
            if wanted.search(line):
                newest.append((offset, line.rstrip(b"\r\n")))
                if last is None:
                    yield newest.pop()
            offset += len(line)
    for hit in newest:
        yield hit


async def _tail(
    remote: Remote | None, source: Any, last: int | None, follow: bool
) -> AsyncIterator[tuple[int, bytes]]:
    """Whole lines with their offsets; of a line that was redrawn, its last state."""
    from console.logs.pieces import Lines

    lines, end = Lines(), 0
    async for chunk in _chunks(remote, source, last, follow):
        if chunk.gap_bytes:
            warn(f"{chunk.gap_bytes} bytes left out: the link is slower than the log")
        if chunk.event:
            warn(f"log {chunk.event}")
        end = chunk.cursor.offset
        for hit in lines.feed(chunk.data, end - len(chunk.data)):
            yield hit
    for hit in lines.rest(end):
        yield hit


def _chunks(
    remote: Remote | None, source: Any, last: int | None, follow: bool
) -> AsyncIterator[LogChunk]:
    if remote is None:
        from console.logs.localtail import tail as tail_here
        from console.remote import LogSource

        here = LogSource(path=str(source))
        return tail_here("", here, offset=_last_lines(source, last), follow=follow)
    from console.logs.several import tail

    return tail(remote, source, last_lines=last, follow=follow)


def _last_lines(path: Path, count: int | None) -> int:
    """The offset at which the last so many lines begin; 0 for all of them."""
    if count is None:
        return 0
    size = end = path.stat().st_size
    seen = 0
    with path.open("rb") as file:
        while end > 0:
            start = max(0, end - BLOCK)
            file.seek(start)
            block = file.read(end - start)
            if end == size and block.endswith(b"\n"):
                block = block[:-1]
            here = block.count(b"\n")
            if seen + here >= count:
                for _ in range(count - seen - 1):
                    block = block[: block.rindex(b"\n")]
                cut = block.rfind(b"\n") if count else len(block)
                return start + cut + 1
            seen += here
            end = start
    return 0


# ---- diagnose


@click.command()
@click.argument("what", metavar="FILE|-|SERVER")
@click.option("--rules", "extra", type=click.Path(path_type=Path), help="More rules of your own.")
@common()
def diagnose(cli: Cli, what: str, extra: Path | None) -> int:
    """The root cause in a log, its category, and the change that would fix it.

    Exit status 1 when something is wrong, 0 when nothing is.
    """
    from console.diagnosis import diagnose as judge
    from console.diagnosis import diagnosis_to_json, load_rules

    rules = load_rules(extra or _own_rules())
    node: dict[str, Any] = {}
    failed: Diagnosis | None = None
    path = None if what == "-" else _local(cli, what, stream=True)
    if what == "-" or path is not None:
        found = judge(blocks(path), rules=rules)
    else:
        server = cli.config().server(what)
        found = judge(run_async(_read_log(cli, server)), rules=rules)
        if len(server.nodes) > 1:
            found, node = _of_nodes(cli, server, found, rules)
        if found.category == "none":
            failed = run_async(_failure(cli, server))
            found = failed or found
    if cli.json:
        document = {**diagnosis_to_json(found), **node}
        print_json({key: value for key, value in document.items() if key != "schema"})
    else:
        if node:
            say(f"rank {node['node']['rank']} on {node['node']['host']}:")
        say_diagnosis(found)
    return 0 if found.category == "none" and failed is None else 1


def _of_nodes(
    cli: Cli, server: Server, first: Diagnosis, rules: Rules
) -> tuple[Diagnosis, dict[str, Any]]:
    """What the node's log says whose failure the others followed, and which node that is."""
    from console.diagnosis import diagnose as judge
    from console.watch.group import told

    logs = [run_async(_read_log(cli, replace(server, host=name))) for name in server.nodes[1:]]
    found = [first, *(judge(log, rules=rules) for log in logs)]
    at = min(
        range(len(found)),
        key=lambda rank: 9 if found[rank].category == "none" else told(found[rank]),
    )
    return found[at], {"node": {"rank": at, "host": server.nodes[at]}}


def _own_rules() -> Path | None:
    from console.config import config_dir

    path = config_dir() / "rules.yaml"
    return path if path.is_file() else None


async def _read_log(cli: Cli, server: Server) -> bytes:
    config = cli.config()
    async with connected(config, config.host(server.host), read_only=True) as remote:
        source = await log_source(remote, server)
        if source.path and not source.also:
            return await read_end(remote, source.path)
        return b"\n".join([line async for _, line in _tail(remote, source, 20_000, False)])


async def _failure(cli: Cli, server: Server) -> Diagnosis | None:
    """How a server ended whose log is silent about it, as ``status`` says it."""
    from console.watch.observe import Observer

    config = cli.config()
    async with connected(config, config.host(server.host), read_only=True) as remote:
        observer = Observer(remote, [server])
        try:
            view = await observer.observe()
        finally:
            await observer.close()
    return next((s.diagnosis for s in view.servers if s.phase.value == "failed"), None)


async def read_end(remote: Remote, path: str, limit: int = DIAGNOSED_BYTES) -> bytes:
    """The end of a file on a host, in pieces that the agent may send at once."""
    (info,) = await remote.stat([path])
    at = max(0, info.size_bytes - limit)
    out = bytearray()
    while block := await remote.read_file(path, offset=at, limit=BLOCK):
        out += block
        at += len(block)
    return bytes(out)


def say_diagnosis(found: Diagnosis) -> None:
    """A diagnosis for people: what, where, why, and what to do."""
    from console.text import clean

    if found.root is None and found.category == "none":
        say(found.summary + (" (It is incomplete.)" if found.incomplete else ""))
        return
    if found.root is not None:
        root = found.root
        place = f"  {root.file}:{root.line}" if root.file else ""
        rank = f"  {root.rank}" if root.rank else ""
        say(paint(clean(root.type), "red", "bold") + clean(place + rank))
        lines = root.message.split("\n")
        for line in lines[:MESSAGE_LINES]:
            say(f"  {clean(line, limit=MESSAGE_CHARS)}")
        if len(lines) > MESSAGE_LINES:
            say(f"  … {len(lines) - MESSAGE_LINES} more of its lines left out (--json has all)")
    else:
        say(paint("No exception was raised.", "bold"))
    phase = f", in phase {found.phase}" if found.phase else ""
    times = f", {found.incidents} times" if found.incidents > 1 else ""
    say(f"Kind: {found.category}{phase}{times}")
    for name, text in (("Why", found.explanation), ("Fix", found.fix)):
        if text:
            say(f"{name}: {clean(text)}")
    if found.change and (found.change.flags or found.change.env):
        words = [f"--{k} {v}" if v is not True else f"--{k}" for k, v in found.change.flags.items()]
        words += [f"unset {k}" if v is None else f"{k}={v}" for k, v in found.change.env.items()]
        say(
            f"  apply: {' '.join(words)}"
            + (f"  (risk: {found.change.risk})" if found.change.risk else "")
        )
    if found.victims:
        say(f"  follows from it: {len(found.victims)} more")
