"""The interface, asked by OpenAI's own client and by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from .live import Live, serving

pytestmark = pytest.mark.server
QUESTION: list[Any] = [{"role": "user", "content": "What does NCCL_PROTO=LL do?"}]


@pytest.fixture(scope="module")
def client(server: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_chat_answers_an_operations_question(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="any", messages=QUESTION, temperature=0)
    text = answer.choices[0].message.content
    assert text is not None
    assert "low latency" in text
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_adds_up_to_the_whole_answer(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="any", messages=QUESTION, temperature=0.7, seed=5)
    chunks = list(client.chat.completions.create(
        model="any", messages=QUESTION, temperature=0.7, seed=5, stream=True,
        stream_options={"include_usage": True},
    ))  # fmt: skip
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert len(chunks) > 5


def test_completions_several_prompts_and_choices(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="any", prompt=["import os\n", "def main("], n=2, max_tokens=8, seed=3
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    again = client.completions.create(model="any", prompt="def main(", max_tokens=8, seed=4)
    assert again.choices[0].text == answer.choices[3].text


def test_stop_string_is_cut_off_and_never_streamed(client: openai.OpenAI) -> None:
    asked = {
        "model": "any",
        "prompt": "import os\nimport sys\n",
        "temperature": 0,
        "max_tokens": 40,
    }
    free = client.completions.create(**asked).choices[0].text  # type: ignore[call-overload]
    stop = free[10:14]
    cut = client.completions.create(**asked, stop=[stop]).choices[0]  # type: ignore[call-overload]
    assert cut.text == free[: free.index(stop)]
    assert cut.finish_reason == "stop"
    parts = client.completions.create(**asked, stop=[stop], stream=True)  # type: ignore[call-overload]
    assert "".join(part.choices[0].text for part in parts) == cut.text


def test_logprobs_of_the_chosen_tokens(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="any", messages=QUESTION, temperature=0, max_tokens=6, logprobs=True
    )
    assert answer.choices[0].logprobs is not None
    content = answer.choices[0].logprobs.content
    assert content is not None
    assert len(content) == 6
    assert "".join(item.token for item in content) == answer.choices[0].message.content
    assert all(item.logprob <= 0 for item in content)


def test_context_overflow_is_a_400_with_the_numbers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"2048 tokens: \d+ in the prompt plus 5000"):
        client.completions.create(model="any", prompt="import os", max_tokens=5000)
    with pytest.raises(openai.BadRequestError, match="2048"):
        client.completions.create(model="any", prompt="import os\n" * 3000, max_tokens=1)


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()]


def test_generate_reports_acceptance(server: Live) -> None:
    params = {"temperature": 0, "max_new_tokens": 30}
    status, answer = server.post("/generate", {"text": "import os\n", "sampling_params": params})
    assert status == 200
    meta = answer["meta_info"]
    assert meta["completion_tokens"] == len(answer["output_ids"]) == 30
    assert 1 < meta["spec_accept_length"] <= 4.1
    assert meta["finish_reason"] == {"type": "length", "length": 30}
    status, several = server.post("/generate", {"text": ["a", "b"], "sampling_params": params})
    assert status == 200
    assert len(several) == 2


def test_what_an_operator_reads(server: Live) -> None:
    params = {"temperature": 0, "max_new_tokens": 200, "ignore_eos": True}
    assert server.post("/generate", {"text": "import os\n", "sampling_params": params})[0] == 200
    metrics = server.get("/metrics")[1].decode()
    values = {
        line.split("{")[0]: float(line.rsplit(" ", 1)[1])
        for line in metrics.splitlines()
        if "{" in line
    }
    assert 1 < values["sglang:spec_accept_length"] <= 4
    assert values["sglang:generation_tokens_total"] >= 200
    assert values["sglang:num_running_reqs"] == 0
    line = [line for line in server.text().splitlines() if "Decode batch" in line][-1]
    found = re.search(
        r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] Decode batch, #running-req: (\d+), #token: \d+, "
        r"token usage: [\d.]+, accept len: ([\d.]+), accept rate: ([\d.]+), cuda graph: False, "
        r"gen throughput \(token/s\): ([\d.]+), #queue-req: (\d+)$",
        line,
    )
    assert found, line
    length, rate = float(found[2]), float(found[3])
    assert (length - 1) / 3 == pytest.approx(rate, abs=0.01)
    info = json.loads(server.get("/server_info")[1])
    assert 1 < info["internal_states"][0]["avg_spec_accept_length"] <= 4
    loads = json.loads(server.get("/v1/loads?include=all")[1])
    assert loads["aggregate"]["total_running_reqs"] == 0
    for path in (
        "/health",
        "/health_generate",
        "/model_info",
        "/get_model_info",
        "/get_server_info",
    ):
        assert server.get(path)[0] == 200


def test_api_key(tmp_path_factory: pytest.TempPathFactory) -> None:
    key = "only-for-this-test"
    with serving(tmp_path_factory.mktemp("key"), env={"EAGLE3_API_KEY": key}) as live:
        assert live.get("/health")[0] == 200
        assert live.get("/v1/models")[0] == live.get("/server_info")[0] == 401
        with openai.OpenAI(base_url=f"{live.url}/v1", api_key=key, max_retries=0) as client:
            assert client.models.list().data
        with (
            openai.OpenAI(base_url=f"{live.url}/v1", api_key="wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.models.list()
        assert key not in live.text()
