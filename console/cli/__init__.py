"""The command ``specops``. Subcommands live in modules of their own, imported when called."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the ``specops`` command; ends the process with the contract's exit code."""
    from console.cli.output import standard_streams
    from console.cli.root import run

    standard_streams()
    sys.exit(run(sys.argv[1:]))
