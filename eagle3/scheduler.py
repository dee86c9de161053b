"""The scheduler process: loads the models, batches requests continuously, sends back text.

Started by the launcher as ``python -m eagle3.scheduler FD`` with one end of a socket pair. A new
request is prefilled between two decode steps and joins the running batch; a request that ends, or
whose client is gone, leaves it at once.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from pathlib import Path
from typing import Any

import torch
from setproctitle import setproctitle
from tokenizers import Tokenizer

from eagle3.cache import KVCache
from eagle3.engine import Engine, EngineConfig, Sequence
from eagle3.link import Closed, Link, Message
from eagle3.logs import ShardBar, configure, host_memory_gb
from eagle3.sampling_params import SamplingParams
from eagle3.server_args import ServerArgs, check_models
from eagle3.stats import Stats
from eagle3.text import TextStream

TITLE = "eagle3::scheduler"
_PR_SET_PDEATHSIG = 1
_GB = 1 << 30
log = logging.getLogger("eagle3.scheduler")


class Request:
    """A request from arrival to its last token."""

    def __init__(self, message: Message, tokenizer: Tokenizer) -> None:
        params = dict(message["params"])
        params["stop"], params["stop_ids"] = tuple(params["stop"]), frozenset(params["stop_ids"])
        self.id: str = message["id"]
        self.sequence = Sequence(message["ids"], SamplingParams(**params))
        self.text = TextStream(tokenizer, self.sequence.params.stop)
        self.count = 0
        self.finish: dict[str, Any] | None = None

    def take(self, tokens: list[int], end: frozenset[int]) -> dict[str, Any]:
        """Take new tokens up to the one that ends the answer; what to send."""
        params, text, taken = self.sequence.params, "", []
        stop_ids = params.stop_ids if params.ignore_eos else params.stop_ids | end
        for token in tokens:
            taken.append(token)
            self.count += 1
            if token in stop_ids:
                self.finish = {"type": "stop", "matched": token}
            else:
                text += self.text.feed(token)
                if self.text.matched is not None:
                    self.finish = {"type": "stop", "matched": self.text.matched}
                elif self.count >= params.max_tokens:
                    self.finish = {"type": "length", "length": self.count}
            if self.finish:
                text += self.text.rest()
                break
        done = self.count - len(taken)
        return {
            "id": self.id,
            "text": text,
            "ids": taken,
            "logprobs": self.sequence.logprobs[done : self.count],
            "finish": self.finish,
            "verify_ct": self.sequence.verify_steps,
            "correct": self.sequence.accepted,
        }


class Scheduler:
    """Queue, running batch and the loop between them."""

    def __init__(self, args: ServerArgs, link: Link) -> None:
        self.args, self.link = args, link
        self.tokenizer = Tokenizer.from_file(str(Path(args.model_path) / "tokenizer.json"))
        self.queue: deque[Request] = deque()
        self.running: dict[str, Request] = {}
        self.stats = Stats()
        self.busy_since: float | None = None
        self.engine = self._build()

    # ---- start

    def _build(self) -> Engine:
        args, params = self.args, self.args.speculative
        # One process on one device has no group to join; like SGLang's stage of this name, this
        # one picks the device and looks at its memory.
        log.info("Init torch distributed begin.")
        began = time.perf_counter()
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        draft = (
            Path(args.speculative_draft_model_path) if args.speculative_draft_model_path else None
        )
        slots = args.max_running_requests or 48
        config = EngineConfig(
            Path(args.model_path), draft if params else None, params, args.context_length,
            slots, args.chunked_prefill_size, args.device, args.dtype,
        )  # fmt: skip
        engine = Engine(config)
        if args.max_total_tokens:
            slots = max(1, min(slots, args.max_total_tokens // engine.context))
            engine.config = EngineConfig(**{**vars(config), "slots": slots})
        log.info("Init torch distributed ends. elapsed=%.2f s, mem usage=0.00 GB",
                 time.perf_counter() - began)  # fmt: skip
        self._phase("load_target")
        self._load("LlamaForCausalLM", engine.load_target)
        self._phase("kv_target")
        self._pool(engine.allocate_target(), engine)
        if params:
            check_models(args)  # after the target, as SGLang
            self._phase("load_draft")
            self._load("LlamaForCausalLMEagle3", engine.load_draft)
            self._phase("kv_draft")
            self._pool(engine.allocate_draft(), engine)
        log.info(
            "max_total_num_tokens=%d, chunked_prefill_size=%d, max_prefill_tokens=%d, "
            "max_running_requests=%d, context_len=%d, available_gpu_mem=%.2f GB",
            slots * engine.context, args.chunked_prefill_size, 16384, slots, engine.context,
            self._available(),
        )  # fmt: skip
        return engine

    def _phase(self, name: str) -> None:
        if self.args.debug_hang_at == name:
            log.info("Stopping for ever at %s, as --debug-hang-at asks.", name)
            while True:
                time.sleep(3600)

    def _available(self) -> float:
        if self.args.device == "cuda":
            return torch.cuda.mem_get_info()[0] / _GB
        return host_memory_gb()

    def _load(self, kind: str, load: Any) -> None:
        before, began = self._available(), time.perf_counter()
        log.info("Load weight begin. avail mem=%.2f GB", before)
        load(ShardBar())
        after = self._available()
        log.info(
            "Load weight end. elapsed=%.2f s, type=%s, avail mem=%.2f GB, mem usage=%.2f GB.",
            time.perf_counter() - began, kind, after, before - after,
        )  # fmt: skip

    def _pool(self, cache: KVCache, engine: Engine) -> None:
        half = cache.bytes / 2 / _GB
        log.info("KV Cache is allocated. #tokens: %d, K size: %.2f GB, V size: %.2f GB",
                 cache.slots * engine.context, half, half)  # fmt: skip
        log.info("Memory pool end. avail mem=%.2f GB", self._available())

    # ---- loop

    def run(self) -> None:
        """Serve until the launcher says stop or is gone.

        Raises:
            Closed: the launcher is gone.
        """
        self.link.send({"op": "ready", "capacity": self._capacity()})
        while True:
            for message in self._receive():
                if message["op"] == "stop":
                    return
                self._handle(message)
            self.busy_since = time.monotonic()
            if self.queue and not self.engine.full:
                self._admit(self.queue.popleft())
            elif self.running:
                self._step()
            self.busy_since = None

    def _receive(self) -> list[Message]:
        """What has arrived; waits while there is nothing to do, and takes that off the interval."""
        began = time.perf_counter()
        messages = self.link.receive(block=not self.queue and not self.running)
        self.stats.began += time.perf_counter() - began
        return messages

    def _handle(self, message: Message) -> None:
        if message["op"] == "generate":
            self.queue.append(Request(message, self.tokenizer))
            return
        identity = message["id"]
        self.queue = deque(request for request in self.queue if request.id != identity)
        request = self.running.pop(identity, None)
        if request is not None:
            self.engine.release(request.sequence)
        self._send([])

    def _admit(self, request: Request) -> None:
        tokens = len(request.sequence.tokens)
        log.info(
            "Prefill batch, #new-seq: 1, #new-token: %d, #cached-token: 0, token usage: %.2f, "
            "#running-req: %d, #queue-req: %d, ",
            tokens, self._usage(), len(self.running), len(self.queue),
        )  # fmt: skip
        self.stats.prompt_tokens += tokens
        self.stats.prefilled += 1
        self.running[request.id] = request
        first = self.engine.admit(request.sequence)
        self._send([self._take(request, [first])])

    def _step(self) -> None:
        by_sequence = {id(request.sequence): request for request in self.running.values()}
        sequences = list(self.engine.running)
        before = [sequence.accepted for sequence in sequences]
        steps = self.engine.step()
        params = self.args.speculative
        drafted = params.draft_tokens - 1 if params else 0
        self.stats.step(
            requests=len(sequences),
            correct=sum(s.accepted - b for s, b in zip(sequences, before, strict=True)),
            proposed=drafted * len(sequences),
            tokens=sum(map(len, steps)),
        )
        if self.stats.steps % self.args.decode_log_interval == 0:
            self._log_decode(len(sequences))
        out = [
            self._take(by_sequence[id(sequence)], tokens)
            for sequence, tokens in zip(sequences, steps, strict=True)
        ]
        self._send(out)

    def _take(self, request: Request, tokens: list[int]) -> dict[str, Any]:
        out = request.take(tokens, self.engine.target_config.stop_ids)
        if request.finish:
            self.engine.release(request.sequence)
            del self.running[request.id]
        return out

    def _log_decode(self, running: int) -> None:
        self.stats.close_interval()
        last = self.stats.last
        accept = (
            f"accept len: {last.accept_length:.2f}, accept rate: {last.accept_rate:.2f}, "
            if self.args.speculative
            else ""
        )
        log.info(
            "Decode batch, #running-req: %d, #token: %d, token usage: %.2f, %scuda graph: False, "
            "gen throughput (token/s): %.2f, #queue-req: %d",
            running, self._used(), self._usage(), accept, self.stats.throughput, len(self.queue),
        )  # fmt: skip

    # ---- reporting

    def _capacity(self) -> dict[str, Any]:
        engine, draft = self.engine, self.args.speculative is not None
        return {
            "max_total_num_tokens": engine.config.slots * engine.context,
            "context_length": engine.context,
            "max_running_requests": engine.config.slots,
            "kvcache_gb": (engine.cache.bytes + (engine.draft_cache.bytes if draft else 0)) / _GB,
        }

    def _used(self) -> int:
        return sum(len(sequence.tokens) for sequence in self.engine.running)

    def _usage(self) -> float:
        return self._used() / (self.engine.config.slots * self.engine.context)

    def _send(self, outputs: list[dict[str, Any]]) -> None:
        stats, total = self.stats, self.stats.total
        self.link.send({
            "op": "out",
            "out": outputs,
            "stats": {
                "running": len(self.running),
                "queue": len(self.queue),
                "used_tokens": self._used(),
                "throughput": stats.throughput if self.running else 0.0,
                "accept_length": stats.last.accept_length,
                "accept_rate": stats.last.accept_rate,
                "total_accept_length": total.accept_length,
                "generated": total.tokens + stats.prefilled,
                "prompt": stats.prompt_tokens,
                "verify": total.requests if self.args.speculative else 0,
            },
        })  # fmt: skip


def _watch(scheduler: Scheduler, timeout: float) -> None:
    """End the server when one step takes longer than ``timeout`` seconds."""
    while True:
        time.sleep(min(1.0, timeout / 4))
        since = scheduler.busy_since
        if since is not None and time.monotonic() - since > timeout:
            faulthandler.dump_traceback(all_threads=True)
            log.error(
                "Scheduler watchdog timeout (self.watchdog_timeout=%g, self.soft=False)", timeout
            )
            os.kill(os.getppid(), signal.SIGQUIT)
            return


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the launcher dies, as SGLang does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(fd: int) -> None:
    """Serve over the socket ``fd``; report a crash to the launcher by SIGQUIT."""
    os.environ["SPT_NOENV"] = "1"  # the environment identifies a server; keep it readable
    setproctitle(TITLE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides
    parent = os.getppid()
    link = Link(socket.socket(fileno=fd))
    args = ServerArgs(**link.receive(block=True)[0]["args"])
    configure(args.log_level)
    if args.parent_death_signal:
        _die_with_parent()
    try:
        scheduler = Scheduler(args, link)
        threading.Thread(
            target=_watch, args=(scheduler, args.watchdog_timeout), daemon=True
        ).start()
        scheduler.run()
    except Closed:
        # An orphan by design keeps what it holds, as a rank waiting for its peers does.
        while not args.parent_death_signal:
            signal.pause()
    except BaseException:  # the last line of defence: say why, tell the launcher, end
        log.error("Scheduler hit an exception: %s", traceback.format_exc())
        os.kill(parent, signal.SIGQUIT)
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
