"""``python -m tests.trouble KIND [-n N] [--ranks R] [--mib M] [--run-id ID] [--port P] [--age S]``.

One JSON line a specimen: ``kind``, ``pids`` and ``starts`` by role, ``ports``, ``paths``, …; then
it stays until stdin closes.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.trouble.kinds import NAMES
from tests.trouble.maker import MARK, Maker, launch
from tests.trouble.process import Order


def main() -> None:
    """Make, tell, wait, clean."""
    if sys.argv[1:2] == [MARK]:
        launch(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="trouble", description="Make processes in trouble.")
    parser.add_argument("kind", choices=NAMES)
    parser.add_argument("-n", type=int, default=1, help="how many specimens")
    parser.add_argument("--ranks", type=int, default=1, help="workers of each")
    parser.add_argument("--mib", type=int, default=1, help="memory each worker holds, MiB")
    parser.add_argument("--run-id", default="", help="SPECOPS_RUN_ID of all; {} is its number")
    parser.add_argument("--port", type=int, default=0, help="0 is any")
    parser.add_argument("--age", type=float, default=0, help="how old its files look, s")
    asked = parser.parse_args()
    maker = Maker()
    try:
        for number in range(asked.n):
            order = Order(asked.ranks, asked.mib, asked.port, asked.age, "")
            if asked.kind == "stuck-frozen":
                made = maker.frozen(asked.mib, asked.run_id.replace("{}", str(number)))
            else:
                made = maker.make(asked.kind, order, asked.run_id.replace("{}", str(number)))
            print(json.dumps(made), flush=True)
        sys.stdin.read()
    finally:
        maker.close()


if __name__ == "__main__":
    main()
