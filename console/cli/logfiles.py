"""A log given as a file or a stream of this machine: what it is, and its text in blocks."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from console.cli.output import warn
from console.errors import UsageError

if TYPE_CHECKING:
    from bz2 import BZ2File
    from gzip import GzipFile
    from lzma import LZMAFile

BLOCK = 1 << 20
_LOOKED_AT = 4096  # bytes of a file's begin that tell what it is
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "lzma"}
_OTHER = {
    b"\x7fELF": ("a program (ELF)", "name the log that it wrote"),
    b"\x28\xb5\x2f\xfd": ("packed with zstd", "zstdcat FILE | specops diagnose -"),
    b"PK\x03\x04": ("a zip archive", "unpack it and name the log in it"),
    b"\x93NUMPY": ("a NumPy array", "name the log"),
    b"LPKSHHRH": ("a journal of systemd", "journalctl --file FILE | specops diagnose -"),
    b"\xff\xfe": ("UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE | specops diagnose -"),
    b"\xfe\xff": ("UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE | specops diagnose -"),
}
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\b\a\x1b"))


def local(what: str, *, stream: bool = False) -> Path:
    """The file of this machine that is meant; ``stream``: a pipe is as good.

    Raises:
        UsageError: nothing is there, or a directory, or a pipe where a file is needed.
    """
    path = Path(what)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise UsageError("no such file", place=what) from None
    except OSError as error:
        raise UsageError(error.strerror or str(error), place=what) from error
    if stat.S_ISDIR(mode):
        raise UsageError("a directory, not a log", place=what, hint="name a file in it")
    if not stat.S_ISREG(mode) and not stream:
        raise UsageError("a pipe or a device, not a file", place=what, hint="write it to a file")
    return path


def refuse_packed(path: Path) -> None:
    """Raises UsageError for a file whose lines cannot be shown as they stand."""
    try:
        with path.open("rb") as file:
            begin = file.read(_LOOKED_AT)
    except OSError as error:
        raise UsageError(error.strerror or str(error), place=str(path)) from error
    _refuse(begin, str(path))
    if packer := _packer(begin):
        hint = "unpack it, or ask specops diagnose, which reads it"
        raise UsageError(f"packed with {packer}", place=str(path), hint=hint)


def _packer(begin: bytes) -> str | None:
    return next((name for magic, name in _PACKED.items() if begin.startswith(magic)), None)


def _refuse(begin: bytes, name: str) -> None:
    for magic, (kind, hint) in _OTHER.items():
        if begin.startswith(magic):
            raise UsageError(f"{kind}, not a log", place=name, hint=hint)
    if begin[257:262] == b"ustar":
        raise UsageError("a tar archive, not a log", place=name, hint="name the log in it")
    text = begin.lstrip(b"\0")  # a log that was truncated while written begins with a hole
    odd = len(text) - len(text.translate(None, _CONTROL))
    if odd * 20 > len(text):
        raise UsageError("binary data, not a log", place=name, hint="name a text file")


def blocks(path: Path | None) -> Iterator[bytes]:
    """The text of a log in blocks, unpacked where it is packed; ``None`` is standard input.

    Raises:
        UsageError: it cannot be read, is empty, or is no text.
    """
    name = str(path) if path else "-"
    try:
        with path.open("rb") if path else sys.stdin.buffer as file:
            yield from _text(cast("BinaryIO", file), name)
    except OSError as error:
        raise UsageError(error.strerror or str(error), place=name) from error


def _text(file: BinaryIO, name: str) -> Iterator[bytes]:
    begin = file.peek(_LOOKED_AT)[:_LOOKED_AT]  # type: ignore[attr-defined] # both are buffered
    if not begin:
        raise UsageError("empty: there is nothing to judge", place=name)
    packer = _packer(begin)
    if packer is None:
        _refuse(begin, name)
        yield from iter(lambda: file.read(BLOCK), b"")
        return
    from lzma import LZMAError
    from zlib import error as zlib_error

    checked = False
    try:
        whole = _unpacked(file, packer)
        while block := whole.read1(BLOCK):  # read() would lose what came before an error
            if not checked:
                _refuse(block[:_LOOKED_AT], name)
            checked = True
            yield block
    except (OSError, EOFError, LZMAError, zlib_error) as error:  # what the three packers raise
        if not checked:
            raise UsageError(f"damaged {packer} data", place=name) from error
        warn(f"the {packer} data is damaged or cut off: judged is what came before", head=name)
        return
    if not checked:
        raise UsageError("empty: there is nothing to judge", place=name)


def _unpacked(file: BinaryIO, packer: str) -> BZ2File | GzipFile | LZMAFile:
    import bz2
    import gzip
    import lzma

    if packer == "bz2":
        return bz2.BZ2File(file)
    return gzip.GzipFile(fileobj=file) if packer == "gzip" else lzma.LZMAFile(file)
