"""Answers as they leave: the shapes of OpenAI's interface and of SGLang's ``/generate``."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from eagle3.client import Batch

Json = dict[str, Any]


@dataclass
class Answer:
    """One answer while it grows.

    Attributes:
        finish: why it ended, as the scheduler says; None while it grows.
        began, first, last: when it was asked for, began and last grew, monotonic seconds.
    """

    prompt_tokens: int
    text: str = ""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Json | None = None
    verify_ct: int = 0
    correct: int = 0
    began: float = field(default_factory=time.monotonic)
    first: float | None = None

    def add(self, output: Json) -> None:
        """Append one output of the scheduler."""
        if self.first is None:
            self.first = time.monotonic()
        self.text += output["text"]
        self.ids += output["ids"]
        self.logprobs += output["logprobs"]
        self.finish = output["finish"]
        self.verify_ct, self.correct = output["verify_ct"], output["correct"]

    @property
    def reason(self) -> str | None:
        """OpenAI's ``finish_reason``."""
        return str(self.finish["type"]) if self.finish else None


def usage(answers: list[Answer]) -> Json:
    """OpenAI's token counts; a prompt asked for several answers counts once per answer."""
    prompt = sum(answer.prompt_tokens for answer in answers)
    completion = sum(len(answer.ids) for answer in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": None,
    }


class OpenAIShape:
    """Completions or chat completions, whole or in chunks."""

    def __init__(
        self, model: str, *, chat: bool, token_text: Callable[[int], str], logprobs: bool
    ) -> None:
        self.model, self.chat, self.logprobs = model, chat, logprobs
        self.token_text = token_text
        self.id = ("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex
        self.created = int(time.time())

    def _envelope(self, choices: list[Json], *, chunk: bool) -> Json:
        kind = "chat.completion" if self.chat else "text_completion"
        return {
            "id": self.id,
            "object": kind + (".chunk" if chunk and self.chat else ""),
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _logprobs(self, ids: list[int], values: list[float]) -> Json | None:
        if not self.logprobs:
            return None
        tokens = [self.token_text(token) for token in ids]
        if self.chat:
            return {"content": [
                {"token": token, "logprob": value, "bytes": list(token.encode()),
                 "top_logprobs": []}
                for token, value in zip(tokens, values, strict=True)
            ]}  # fmt: skip
        return {"tokens": tokens, "token_logprobs": values, "top_logprobs": None, "text_offset": []}

    def whole(self, answers: list[Answer]) -> Json:
        """The answer to a call that does not stream."""
        choices = []
        for index, answer in enumerate(answers):
            content: Json = (
                {"message": {"role": "assistant", "content": answer.text}}
                if self.chat
                else {"text": answer.text}
            )
            matched = answer.finish.get("matched") if answer.finish else None
            choices.append({
                "index": index,
                **content,
                "logprobs": self._logprobs(answer.ids, answer.logprobs),
                "finish_reason": answer.reason,
                "matched_stop": matched,
            })  # fmt: skip
        return self._envelope(choices, chunk=False) | {"usage": usage(answers)}

    def chunk(self, index: int, answer: Answer, output: Json) -> Json:
        """What one output of the scheduler adds."""
        begins = len(answer.ids) == len(output["ids"])
        delta: Json = {"content": output["text"]} | ({"role": "assistant"} if begins else {})
        choice = {
            "index": index,
            **({"delta": delta} if self.chat else {"text": output["text"]}),
            "logprobs": self._logprobs(output["ids"], output["logprobs"]),
            "finish_reason": answer.reason,
        }
        return self._envelope([choice], chunk=True)

    def last(self, answers: list[Answer]) -> Json:
        """The final chunk with the token counts, where the client asked for it."""
        return self._envelope([], chunk=True) | {"usage": usage(answers)}


class NativeShape:
    """SGLang's ``/generate``, whose chunks carry the whole text so far."""

    def __init__(self, *, steps: int | None, drafted: int, single: bool) -> None:
        self.steps, self.drafted, self.single = steps, drafted, single
        self.id = uuid.uuid4().hex

    def _one(self, answer: Answer) -> Json:
        meta: Json = {
            "id": self.id,
            "finish_reason": answer.finish,
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": len(answer.ids),
            "cached_tokens": 0,
            "e2e_latency": time.monotonic() - answer.began,
        }
        if self.steps is not None and answer.verify_ct:
            proposed = answer.verify_ct * self.drafted
            meta |= {
                "spec_accept_length": len(answer.ids) / answer.verify_ct,
                "spec_accept_rate": answer.correct / proposed,
                "spec_verify_ct": answer.verify_ct,
                "spec_num_correct_drafts": answer.correct,
                "spec_num_proposed_drafts": proposed,
            }
        if answer.logprobs:
            pairs = zip(answer.logprobs, answer.ids, strict=True)
            meta["output_token_logprobs"] = [[value, token, None] for value, token in pairs]
        return {"text": answer.text, "output_ids": answer.ids, "meta_info": meta}

    def whole(self, answers: list[Answer]) -> Json | list[Json]:
        """The answer to a call that does not stream; a list for a list of prompts."""
        shaped = [self._one(answer) for answer in answers]
        return shaped[0] if self.single else shaped

    def chunk(self, index: int, answer: Answer, output: Json) -> Json:
        """The whole answer so far."""
        del output
        return self._one(answer) | ({} if self.single else {"index": index})

    def last(self, answers: list[Answer]) -> Json:
        """Never asked for: the counts are in every chunk."""
        raise NotImplementedError


Shape = OpenAIShape | NativeShape


async def collect(batch: Batch, answers: list[Answer]) -> None:
    """Read all outputs into ``answers``."""
    async for index, output in batch:
        answers[index].add(output)


async def events(
    batch: Batch, answers: list[Answer], shape: Shape, *, with_usage: bool
) -> AsyncIterator[str]:
    """Server-sent events, one per output, then ``[DONE]``."""
    async for index, output in batch:
        answers[index].add(output)
        yield event(shape.chunk(index, answers[index], output))
    if with_usage:
        yield event(shape.last(answers))
    yield "data: [DONE]\n\n"


def event(value: Json) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
