"""Mend a terminal whose program was killed before it could give it back.

Line discipline: POSIX termios, the values of ``stty sane``. Modes: xterm's control sequences
(DECSET numbers) and the kitty keyboard protocol, each set back to what a shell expects.
"""

from __future__ import annotations

import os
import termios

from console.errors import UsageError

SEQUENCES = (
    "\x1b[?1049l"  # the main screen again
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # mouse off
    "\x1b[?1004l"  # no focus reports
    "\x1b[?2004l"  # pasted text without brackets
    "\x1b[?2026l\x1b[?2048l"  # draw at once; no reports of a new size
    "\x1b[<u\x1b[=0u\x1b[>4;0m"  # keys as ever: kitty protocol, modifyOtherKeys
    "\x1b[?1l\x1b>"  # cursor keys and keypad as ever
    "\x1b[r\x1b[?6l\x1b[?7h\x1b[4l"  # whole screen scrolls, lines wrap, text overwrites
    "\x1b(B\x0f"  # the plain character set
    "\x1b[0m\x1b[?25h"  # no colour, the cursor seen
)
_CONTROL_KEYS = {
    termios.VINTR: b"\x03", termios.VQUIT: b"\x1c", termios.VERASE: b"\x7f",
    termios.VKILL: b"\x15", termios.VEOF: b"\x04", termios.VSTART: b"\x11",
    termios.VSTOP: b"\x13", termios.VSUSP: b"\x1a",
}  # fmt: skip


def mend(path: str = "/dev/tty") -> None:
    """Set the controlling terminal's modes back; harmless on one that is well.

    Raises:
        UsageError: there is no terminal.
    """
    try:
        terminal = os.open(path, os.O_RDWR | os.O_NOCTTY)
    except OSError as error:
        hint = "run it in the terminal that is broken"
        raise UsageError("no terminal to mend", place=path, hint=hint) from error
    try:
        sane(terminal)
        os.write(terminal, SEQUENCES.encode("ascii") + b"\r\n")
    finally:
        os.close(terminal)


def sane(terminal: int) -> None:
    """The line discipline of a login: echo, whole lines, signals, newline translation.

    Raises:
        UsageError: the file is no terminal.
    """
    try:
        modes = termios.tcgetattr(terminal)
    except termios.error as error:
        raise UsageError("not a terminal", hint="run it in the broken one") from error
    iflag, oflag, cflag, lflag, ispeed, ospeed, keys = modes
    iflag |= termios.BRKINT | termios.ICRNL | termios.IXON | termios.IMAXBEL
    iflag &= ~(termios.IGNBRK | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IXOFF)
    oflag |= termios.OPOST | termios.ONLCR
    oflag &= ~(termios.OCRNL | termios.ONOCR | termios.ONLRET)
    cflag |= termios.CREAD
    lflag |= termios.ISIG | termios.ICANON | termios.IEXTEN
    lflag |= termios.ECHO | termios.ECHOE | termios.ECHOK
    lflag |= termios.ECHOCTL | termios.ECHOKE
    lflag &= ~(termios.ECHONL | termios.NOFLSH | termios.TOSTOP)
    for key, value in _CONTROL_KEYS.items():
        keys[key] = value
    changed = [iflag, oflag, cflag, lflag, ispeed, ospeed, keys]
    termios.tcsetattr(terminal, termios.TCSANOW, changed)
    termios.tcflush(terminal, termios.TCIFLUSH)  # mouse reports typed into it meanwhile
