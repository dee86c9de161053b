"""Bytes made to take a careless reader quadratic time."""

from __future__ import annotations

HOSTILE = [
    b"\x1b[" * 20000,
    b"Traceback (most recent call last):\n" * 3000,
    b'  File "a", line 1, in f\n' * 6000,
    b"(" * 5000 + b"pid=1) " * 5000,
    b"ValueError: " + b"a " * 60000,
    b"\n".join(b"|" * n for n in range(400)),
    b'{"log": ' * 5000,
    b"[" + b"2026-01-01 00:00:00 TP1] [" * 3000,
    b"Error: Error: " * 8000,
    b"During handling of the above exception, another exception occurred:\n" * 3000,
    b"NCCL WARN " * 9000 + b"\n" + b"Xid (" * 9000,
    b"exit code exit code " * 5000,
    b"out of memory Process 1 has 1 GiB memory in use. " * 2000,
]

"""Each once; the bench measures that four times the bytes take about four times the time."""
