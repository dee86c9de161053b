"""The command line: SGLang's flag names, their rules, and what this engine does not do.

The rules of speculative decoding are those of SGLang 0.5.12, down to the type of the error, so that
a command that starts here has speculative flags that start there. Flags of SGLang that cannot
change what this engine does are accepted and ignored; flags that would are refused with a reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eagle3.config import ModelConfig, read_draft, read_target
from eagle3.speculative_args import SpeculativeParams, resolve_speculative

OVERWRITE_CONTEXT = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
DEFAULT_RUNNING = 48
"""SGLang's limit of running requests under speculative decoding."""


@dataclass(frozen=True)
class ServerArgs:
    """Everything a start is decided by; lengths in tokens, times in seconds.

    Attributes:
        debug_hang_at: a phase at which to stop for ever. For tests only.
        parent_death_signal: whether the scheduler dies with its launcher, as SGLang's does.
    """

    model_path: str
    served_model_name: str
    host: str = "127.0.0.1"
    port: int = 30000
    device: str = "cpu"
    dtype: str = "auto"
    context_length: int | None = None
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    chunked_prefill_size: int = 2048
    random_seed: int | None = None
    api_key: str | None = None
    log_level: str = "info"
    log_level_http: str | None = None
    enable_metrics: bool = False
    decode_log_interval: int = 40
    watchdog_timeout: float = 300
    skip_server_warmup: bool = False
    drain_timeout: float = 30
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    parent_death_signal: bool = True
    debug_hang_at: str | None = None

    @property
    def speculative(self) -> SpeculativeParams | None:
        """The three numbers, once resolved."""
        if self.speculative_algorithm is None:
            return None
        assert self.speculative_num_steps is not None
        assert self.speculative_eagle_topk is not None
        assert self.speculative_num_draft_tokens is not None
        return SpeculativeParams(
            self.speculative_num_steps,
            self.speculative_eagle_topk,
            self.speculative_num_draft_tokens,
        )

    def shown(self) -> str:
        """The arguments for the log, the key hidden."""
        hidden = dataclasses.replace(self, api_key="******") if self.api_key else self
        return repr(hidden)


PHASES = ("load_target", "kv_target", "load_draft", "kv_draft", "warmup")
"""Where ``--debug-hang-at`` can stop a start."""

# Flags of SGLang that tune a GPU, a cluster or a cache this engine does not have. With a value: 1.
_IGNORED = {
    "--mem-fraction-static": 1, "--attention-backend": 1, "--sampling-backend": 1, "--page-size": 1,
    "--schedule-policy": 1, "--schedule-conservativeness": 1, "--max-prefill-tokens": 1,
    "--cuda-graph-max-bs": 1, "--num-continuous-decode-steps": 1, "--dist-timeout": 1,
    "--nccl-port": 1, "--base-gpu-id": 1, "--download-dir": 1, "--load-format": 1,
    "--tokenizer-path": 1,
    "--speculative-attention-mode": 1, "--speculative-token-map": 1, "--soft-watchdog-timeout": 1,
    "--crash-dump-folder": 1, "--numa-node": 1, "--dist-init-addr": 1, "--log-requests-level": 1,
    "--trust-remote-code": 0, "--disable-cuda-graph": 0, "--disable-radix-cache": 0,
    "--disable-overlap-schedule": 0, "--disable-custom-all-reduce": 0,
    "--log-requests": 0, "--enable-cache-report": 0, "--disable-cuda-graph-padding": 0,
    "--enable-p2p-check": 0, "--enable-torch-compile": 0, "--skip-tokenizer-init": 0,
    "--show-time-cost": 0, "--allow-auto-truncate": 0, "--disable-piecewise-cuda-graph": 0,
}  # fmt: skip
# Flags whose only value this engine can honour is 1: it runs in one process on one device.
_ONE = ("--tp-size", "--dp-size", "--pp-size", "--ep-size", "--nnodes")
_ALIASES = {
    "--tp-size": ["--tensor-parallel-size"], "--dp-size": ["--data-parallel-size"],
    "--pp-size": ["--pipeline-parallel-size"], "--ep-size": ["--expert-parallel-size", "--ep"],
}  # fmt: skip


_POSITIVE = (
    "context_length", "max_running_requests", "max_total_tokens", "chunked_prefill_size",
    "decode_log_interval",
)  # fmt: skip


def _add_quiet_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that have one possible value here, or none that matters."""
    for flag in _ONE:
        parser.add_argument(flag, *_ALIASES.get(flag, []), type=int, default=1)
    for flag, values in _IGNORED.items():
        if values:
            parser.add_argument(flag, dest="ignored", action="append", help=argparse.SUPPRESS)
        else:
            parser.add_argument(
                flag, dest="ignored", action="append_const", const=flag, help=argparse.SUPPRESS
            )


def _add_own_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that SGLang does not have."""
    own = parser.add_argument_group("not of SGLang")
    own.add_argument(
        "--engine", choices=["auto", "torch", "sglang"], default="auto",
        help="who computes: this package, or SGLang where it is installed with CUDA",
    )  # fmt: skip
    own.add_argument(
        "--check", action="store_true", help="check arguments and configs, start nothing"
    )
    own.add_argument(
        "--no-parent-death-signal", action="store_true",
        help="let the scheduler outlive its launcher (to try out orphans)",
    )  # fmt: skip
    own.add_argument("--debug-hang-at", choices=PHASES, help="for tests: stop for ever at a phase")


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``python -m eagle3.launch_server``."""
    parser = argparse.ArgumentParser(
        prog="python -m eagle3.launch_server", description="Serve a model."
    )
    add = parser.add_argument
    add("--model-path", "--model", required=True, help="folder of the target model")
    add("--served-model-name", help="name that clients use (the model path)")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=30000)
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    add("--dtype", choices=["auto", "float32", "bfloat16"], default="auto",
        help="what to compute in (fp32 on a CPU, bf16 on CUDA)")  # fmt: skip
    add("--context-length", type=int, help="longest prompt plus answer, tokens (the model's)")
    add("--max-running-requests", type=int, help=f"requests at once ({DEFAULT_RUNNING})")
    add("--max-total-tokens", type=int, help="size of the KV pool, tokens")
    add("--chunked-prefill-size", type=int, default=2048, help="prompt tokens per pass (2048)")
    add("--random-seed", type=int, help="base of the seeds of requests without one (random)")
    add("--api-key", help="bearer token to ask for; EAGLE3_API_KEY keeps it out of ps")
    add("--log-level", choices=["debug", "info", "warning", "error"], default="info")
    add("--log-level-http", choices=["debug", "info", "warning", "error"])
    add("--enable-metrics", action="store_true", help="serve /metrics")
    add("--decode-log-interval", type=int, default=40, help="decode steps between two log lines")
    add(
        "--watchdog-timeout",
        type=float,
        default=300,
        help="end the server when a step takes longer, s",
    )
    add("--skip-server-warmup", action="store_true")
    add(
        "--drain-timeout",
        type=float,
        default=30,
        help="after SIGTERM, wait so long for requests, s",
    )
    add(
        "--speculative-algorithm",
        type=str.upper,
        choices=["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"],
    )
    add("--speculative-draft-model-path", "--speculative-draft-model")
    add("--speculative-num-steps", type=int)
    add("--speculative-eagle-topk", type=int)
    add("--speculative-num-draft-tokens", type=int)
    add("--speculative-accept-threshold-single", type=float, default=1.0)
    add("--speculative-accept-threshold-acc", type=float, default=1.0)
    add("--node-rank", type=int, default=0)
    add("--enable-mixed-chunk", action="store_true", help="accepted; speculation turns it off")
    add("--quantization")
    add("--kv-cache-dtype", default="auto")
    _add_quiet_flags(parser)
    _add_own_flags(parser)
    return parser


def _refuse_unsupported(args: argparse.Namespace) -> None:
    for flag in _ONE:
        value = getattr(args, flag.removeprefix("--").replace("-", "_"))
        if value != 1:
            raise ValueError(
                f"{flag} {value}: the bundled engine runs on one device; use --engine sglang"
            )
    if args.quantization is not None:
        raise ValueError("--quantization: the bundled engine serves unquantised weights only")
    if args.kv_cache_dtype != "auto":
        raise ValueError("--kv-cache-dtype: the bundled engine keeps keys and values unquantised")
    thresholds = (args.speculative_accept_threshold_single, args.speculative_accept_threshold_acc)
    if thresholds != (1.0, 1.0):
        raise ValueError(
            "accept thresholds other than 1.0 change the text; this engine is lossless"
        )
    if not 0 <= args.port <= 65535:
        raise ValueError(f"--port {args.port}: not a port")
    for name in _POSITIVE:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} {value}: must be at least 1")
    if args.served_model_name and ":" in args.served_model_name:
        raise ValueError("served_model_name may not contain ':'")


def context_error(user: int, derived: int, reason: str) -> str:
    """SGLang's text for a context longer than the model's; tools look for its beginning."""
    return (
        f"Warning: {reason} context_length ({user}) is greater than the derived context_length "
        f"({derived}). This may lead to incorrect model outputs or CUDA errors. Note that the "
        "derived context_length may differ from max_position_embeddings in the model's config. "
        f"To allow overriding this maximum, set the env var {OVERWRITE_CONTEXT}=1"
    )


def check_context(user: int, derived: int, reason: str) -> str | None:
    """A warning if a longer context was allowed by the environment, else None.

    Raises:
        ValueError: the context is longer than the model's and nothing allows it.
    """
    if user <= derived:
        return None
    text = context_error(user, derived, reason)
    if os.environ.get(OVERWRITE_CONTEXT, "").lower() not in ("1", "true", "yes"):
        raise ValueError(text)
    return text


def _device(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    # Asking torch would cost its import in the launcher; a driver without a device fails later.
    return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"


def resolve(args: argparse.Namespace) -> ServerArgs:
    """Apply the rules to parsed arguments; warnings go through :mod:`warnings`.

    Raises:
        ValueError, AssertionError, TypeError: as SGLang raises for the same flags.
        ConfigError: the target's folder cannot be served.
    """
    _refuse_unsupported(args)
    names = {field.name for field in dataclasses.fields(ServerArgs)}
    values = {name: value for name, value in vars(args).items() if name in names}
    values["served_model_name"] = args.served_model_name or args.model_path
    values["device"] = _device(args.device)
    values["api_key"] = args.api_key or os.environ.get("EAGLE3_API_KEY") or None
    values["parent_death_signal"] = not args.no_parent_death_signal
    target = read_target(Path(args.model_path))
    if args.context_length is not None:
        warning = check_context(args.context_length, target.context, "User-specified")
        if warning:
            warnings.warn(warning, stacklevel=2)
    values |= resolve_speculative(args, target)
    if values["speculative_algorithm"] is not None and args.max_running_requests is None:
        warnings.warn(
            f"Max running requests is reset to {DEFAULT_RUNNING} for speculative decoding. You can "
            "override this by explicitly setting --max-running-requests.", stacklevel=2,
        )  # fmt: skip
        values["max_running_requests"] = DEFAULT_RUNNING
    return ServerArgs(**values)


def check_models(args: ServerArgs) -> tuple[ModelConfig, ModelConfig | None]:
    """What the scheduler checks about the two models before it loads the draft.

    Raises:
        ValueError: the draft's context is shorter than the target's (SGLang's text).
        ConfigError: the draft does not fit.
    """
    target = read_target(Path(args.model_path))
    if args.speculative_draft_model_path is None:
        return target, None
    draft = read_draft(Path(args.speculative_draft_model_path), target)
    served = args.context_length or target.context
    warning = check_context(served, draft.context, "Target model's")
    if warning:
        warnings.warn(warning, stacklevel=2)
    return target, draft


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse; unknown flags exit with 2, as argparse does."""
    return build_parser().parse_args(sys.argv[1:] if argv is None else argv)
