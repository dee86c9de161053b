"""SGLang's log format, so that one phase machine reads both."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

FORMAT = "[%(asctime)s] %(message)s"
DATE = "%Y-%m-%d %H:%M:%S"
_ACCESS = '[%(asctime)s] %(levelprefix)s %(client_addr)s - "%(request_line)s" %(status_code)s'
_KIB_PER_GB = 1 << 20


def configure(level: str) -> None:
    """Log to stderr, one timestamp a line and no level name."""
    logging.basicConfig(
        level=level.upper(), format=FORMAT, datefmt=DATE, stream=sys.stderr, force=True
    )
    warnings.showwarning = _log_warning


def _log_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Log a message alone; the source line that Python adds tells an operator nothing."""
    logging.getLogger("eagle3").warning(message)


def uvicorn_config(level: str) -> dict[str, Any]:
    """Uvicorn's logging with the same timestamps."""
    plain = "[%(asctime)s] %(levelprefix)s %(message)s"
    formatters = {
        name: {"()": f"uvicorn.logging.{kind}", "use_colors": False, "fmt": text, "datefmt": DATE}
        for name, kind, text in (
            ("default", "DefaultFormatter", plain),
            ("access", "AccessFormatter", _ACCESS),
        )
    }
    stream = {"class": "logging.StreamHandler", "stream": "ext://sys.stderr"}
    own = {"level": level.upper(), "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": formatters,
        "handlers": {name: {**stream, "formatter": name} for name in formatters},
        "loggers": {
            "uvicorn": {**own, "handlers": ["default"]},
            "uvicorn.access": {**own, "handlers": ["access"]},
        },
    }


def host_memory_gb() -> float:
    """Memory that is still available on this host, GB as SGLang counts them (GiB)."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:  # macOS has no /proc
        return float("nan")
    available = next(line for line in lines if line.startswith("MemAvailable:"))
    return int(available.split()[1]) / _KIB_PER_GB


class ShardBar:
    """The loading progress in SGLang's form, redrawn in place."""

    def __call__(self, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` shards are read."""
        end = "\n" if done == total else ""
        sys.stderr.write(
            f"\rLoading safetensors checkpoint shards: {100 * done // total:3d}% Completed "
            f"| {done}/{total}{end}"
        )
        sys.stderr.flush()
