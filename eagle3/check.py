"""``--check``: would this command start? One JSON document, and the status of what would happen."""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

from eagle3.server_args import check_models, resolve


def verdict(args: argparse.Namespace) -> dict[str, Any]:
    """What the rules say about parsed arguments and the two model configs.

    ``stage`` is "args" where the launcher would refuse at once and "scheduler" where it would fail
    after loading the target.
    """
    error, stage = None, "args"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            resolved = resolve(args)
            stage = "scheduler"
            check_models(resolved)
        except (ValueError, AssertionError, TypeError) as raised:
            error = {"type": type(raised).__name__, "message": str(raised), "stage": stage}
    return {
        "ok": error is None,
        "error": error,
        "warnings": [str(warning.message) for warning in caught],
    }


def run(args: argparse.Namespace) -> int:
    """Print the verdict; the status with which a start would end, 0 where it would serve."""
    result = verdict(args)
    print(json.dumps(result))
    if result["error"] is None:
        return 0
    return 1 if result["error"]["stage"] == "args" else 137
