"""What the HTTP routes need: status, tokenizer, link to the scheduler, limits."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from pathlib import Path
from typing import Any

from eagle3 import protocol
from eagle3.answers import Answer
from eagle3.client import Batch, SchedulerClient
from eagle3.metrics import Metrics
from eagle3.protocol import BadRequest, Body, Call, Fields, Limits
from eagle3.sampling_params import SamplingParams
from eagle3.server_args import ServerArgs
from eagle3.tokens import TokenCoder

COMPLETION_TOKENS = 16
GENERATE_TOKENS = 128
"""Answer lengths where the client gives none, as in OpenAI's interface and in SGLang."""
log = logging.getLogger("eagle3.frontend")


class Frontend:
    """State of one server, shared by its routes.

    Attributes:
        status: "starting" until the warmup passed, then "up"; "unhealthy" after a failed health
            check; "draining" after SIGTERM.
    """

    def __init__(self, args: ServerArgs, client: SchedulerClient, capacity: dict[str, Any]) -> None:
        self.args, self.client, self.capacity = args, client, capacity
        self.coder = TokenCoder(Path(args.model_path))
        self.limits = Limits(capacity["context_length"], self.coder.longest)
        self.metrics = Metrics(args.served_model_name, capacity["max_total_num_tokens"])
        self.status = "starting"
        self.started = time.time()
        self._seed = protocol.seeds(args.random_seed)
        self._health_timeout = float(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT", "20"))

    # ---- requests

    def _ids(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, str):
            protocol.too_long(prompt, self.limits)
            ids = self.coder.encode(prompt)
            if not ids:
                raise BadRequest("the prompt is empty", "prompt")
            return ids
        bad = [token for token in prompt if not 0 <= token < self.coder.vocab]
        if bad:
            raise BadRequest(f"token id {bad[0]} is outside the vocabulary of {self.coder.vocab}")
        return prompt

    def _job(
        self, prompt: str | list[int], body: Body, wanted: int | None, *, logprobs: bool
    ) -> tuple[list[int], SamplingParams]:
        ids = self._ids(prompt)
        room = protocol.room(self.limits, len(ids), wanted)
        return ids, protocol.sampling(body, max_tokens=room, logprobs=logprobs, seed=self._seed)

    @staticmethod
    def _repeat(
        jobs: list[tuple[list[int], SamplingParams]], count: int
    ) -> list[tuple[list[int], SamplingParams]]:
        return [
            (ids, dataclasses.replace(params, seed=params.seed + number))
            for ids, params in jobs
            for number in range(count)
        ]

    def _wanted(self, fields: Fields, *names: str) -> int | None:
        for name in names:
            if fields.body.get(name) is not None:
                return fields.integer(name, 0, 1, 1 << 31)
        return None

    def _openai_call(
        self, body: Body, prompts: list[str | list[int]], wanted: int | None, *, logprobs: bool
    ) -> Call:
        fields = Fields(body)
        count = fields.integer("n", 1, 1, protocol.MAX_CHOICES)
        jobs = [self._job(prompt, body, wanted, logprobs=logprobs) for prompt in prompts]
        usage = Fields(fields.object("stream_options")).flag("include_usage")
        return Call(self._repeat(jobs, count), fields.flag("stream"), usage)

    def completion(self, body: Body) -> tuple[Call, bool]:
        """A ``/v1/completions`` call, and whether it wants log-probabilities.

        Raises:
            BadRequest: it cannot be served.
        """
        prompts, _ = protocol.prompts(body.get("prompt"), "prompt")
        logprobs = Fields(body).integer("logprobs", -1, 0, 5) >= 0
        wanted = self._wanted(Fields(body), "max_tokens") or COMPLETION_TOKENS
        return self._openai_call(body, prompts, wanted, logprobs=logprobs), logprobs

    def chat(self, body: Body) -> tuple[Call, bool]:
        """A ``/v1/chat/completions`` call, and whether it wants log-probabilities.

        Raises:
            BadRequest: it cannot be served.
        """
        fields = Fields(body)
        prompt = self.coder.chat(protocol.messages(body))
        wanted = self._wanted(fields, "max_completion_tokens", "max_tokens")
        logprobs = fields.flag("logprobs")
        return self._openai_call(body, [prompt], wanted, logprobs=logprobs), logprobs

    def generate(self, body: Body) -> Call:
        """A ``/generate`` call.

        Raises:
            BadRequest: it cannot be served.
        """
        name = "input_ids" if body.get("text") is None else "text"
        prompts, single = protocol.prompts(body.get(name), name)
        fields = Fields(body)
        params = fields.object("sampling_params")
        wanted = self._wanted(Fields(params), "max_new_tokens") or GENERATE_TOKENS
        logprobs = fields.flag("return_logprob")
        params = {"seed": params.get("sampling_seed")} | params
        jobs = [self._job(prompt, params, wanted, logprobs=logprobs) for prompt in prompts]
        return Call(jobs, fields.flag("stream"), usage_in_stream=False, single=single)

    def submit(self, call: Call) -> tuple[Batch, list[Answer]]:
        """Start a call's jobs."""
        answers = [Answer(len(ids)) for ids, _ in call.jobs]
        return self.client.submit(call.jobs), answers

    def finished(self, answers: list[Answer]) -> None:
        """Count answers in the metrics."""
        now = time.monotonic()
        for answer in answers:
            if answer.finish:
                self.metrics.observe(answer, now)

    # ---- state

    async def healthy(self) -> bool:
        """Whether anything comes out of the scheduler: one token, or any other request's output."""
        if self.status in ("starting", "draining"):
            if self.status == "draining":
                log.info("Health check request received during shutdown. Returning 503.")
            return False
        self.client.heard.clear()
        batch = self.client.submit([([0], SamplingParams(max_tokens=1, ignore_eos=True))])
        try:
            async with asyncio.timeout(self._health_timeout):
                await self.client.heard.wait()
        except TimeoutError:
            log.error(
                "Health check failed. Server couldn't get a response from detokenizer for last "
                "%g seconds.", self._health_timeout,
            )  # fmt: skip
            self.status = "unhealthy"
            return False
        finally:
            batch.close()
        self.status = "up"
        return True

    def model_info(self) -> dict[str, Any]:
        """``/model_info``."""
        return {
            "model_path": self.args.model_path,
            "tokenizer_path": self.args.model_path,
            "is_generation": True,
            "served_model_name": self.args.served_model_name,
        }

    def server_info(self) -> dict[str, Any]:
        """``/server_info``: the arguments, without the key, and the scheduler's state."""
        stats = self.client.stats
        state: dict[str, Any] = {
            "last_gen_throughput": stats.get("throughput", 0.0),
            "memory_usage": {
                "kvcache": round(self.capacity["kvcache_gb"], 3),
                "token_capacity": self.capacity["max_total_num_tokens"],
            },
        }
        if stats.get("verify"):
            state["avg_spec_accept_length"] = stats["total_accept_length"]
        arguments = dataclasses.asdict(self.args)
        arguments["api_key"] = None if self.args.api_key is None else "******"
        return arguments | self.capacity | {
            "status": self.status, "engine": "eagle3", "internal_states": [state],
        }  # fmt: skip

    def loads(self) -> dict[str, Any]:
        """``/v1/loads``."""
        stats = self.client.stats
        load: dict[str, Any] = {
            "dp_rank": 0,
            "num_running_reqs": stats.get("running", 0),
            "num_waiting_reqs": stats.get("queue", 0),
            "num_used_tokens": stats.get("used_tokens", 0),
            "max_total_num_tokens": self.capacity["max_total_num_tokens"],
            "gen_throughput": stats.get("throughput", 0.0),
        }
        if self.args.speculative is not None:
            load["speculative"] = {
                "accept_length": stats.get("accept_length", 0.0),
                "accept_rate": stats.get("accept_rate", 0.0),
            }
        return {
            "timestamp": time.time(),
            "dp_rank_count": 1,
            "loads": [load],
            "aggregate": {
                "total_running_reqs": load["num_running_reqs"],
                "total_waiting_reqs": load["num_waiting_reqs"],
                "total_reqs": load["num_running_reqs"] + load["num_waiting_reqs"],
            },
        }
