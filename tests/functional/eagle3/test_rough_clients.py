"""Malformed requests, clients that vanish, and what is left afterwards: nothing."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from typing import Any

import pytest

from tests import scale

from .live import PATIENCE, Live

pytestmark = pytest.mark.server
CHAT, COMPLETION, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
SAY = [{"role": "user", "content": "hi"}]
BAD: list[tuple[str, Any]] = [
    (COMPLETION, b""),
    (COMPLETION, b"{"),
    (COMPLETION, b"[1, 2]"),
    (COMPLETION, b'"text"'),
    (COMPLETION, b"\xff\xfe{}"),
    (COMPLETION, b"[" * 100_000),
    (COMPLETION, b'{"prompt": ' + b"9" * 5000 + b"}"),
    (COMPLETION, {}),
    (COMPLETION, {"prompt": ""}),
    (COMPLETION, {"prompt": None}),
    (COMPLETION, {"prompt": 7}),
    (COMPLETION, {"prompt": []}),
    (COMPLETION, {"prompt": [-1]}),
    (COMPLETION, {"prompt": [1 << 40]}),
    (COMPLETION, {"prompt": [True]}),
    (COMPLETION, {"prompt": ["a", 1]}),
    (COMPLETION, b'{"prompt": "\\ud800"}'),
    (COMPLETION, {"prompt": "x", "max_tokens": 0}),
    (COMPLETION, {"prompt": "x", "max_tokens": -5}),
    (COMPLETION, {"prompt": "x", "max_tokens": "8"}),
    (COMPLETION, {"prompt": "x", "max_tokens": 1e9}),
    (COMPLETION, {"prompt": "x", "max_tokens": 2049}),
    (COMPLETION, {"prompt": "x", "temperature": -1}),
    (COMPLETION, {"prompt": "x", "temperature": "hot"}),
    (COMPLETION, b'{"prompt": "x", "temperature": NaN}'),
    (COMPLETION, {"prompt": "x", "top_p": 0}),
    (COMPLETION, {"prompt": "x", "top_p": 2}),
    (COMPLETION, {"prompt": "x", "seed": 1 << 70}),
    (COMPLETION, {"prompt": "x", "stop": 5}),
    (COMPLETION, {"prompt": "x", "stop": ["a"] * 99}),
    (COMPLETION, {"prompt": "x", "stop_token_ids": ["a"]}),
    (COMPLETION, {"prompt": "x", "n": 0}),
    (COMPLETION, {"prompt": "x", "n": 10_000}),
    (COMPLETION, {"prompt": "x", "stream": "yes"}),
    (COMPLETION, {"prompt": "x", "stream_options": 3}),
    (COMPLETION, {"prompt": "x", "presence_penalty": 1.5}),
    (COMPLETION, {"prompt": "x", "logit_bias": {"5": 1}}),
    (COMPLETION, {"prompt": "x" * 3_000_000}),
    (CHAT, {"messages": "hi"}),
    (CHAT, {"messages": []}),
    (CHAT, {"messages": [5]}),
    (CHAT, {"messages": [{"role": "pirate", "content": "hi"}]}),
    (CHAT, {"messages": [{"role": "user"}]}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
    (CHAT, {"messages": SAY, "tools": [{}]}),
    (CHAT, {"messages": SAY, "response_format": {"type": "json_object"}}),
    (GENERATE, {"text": "x", "sampling_params": []}),
    (GENERATE, {"text": "x", "sampling_params": {"max_new_tokens": 0}}),
    (GENERATE, {"input_ids": "x y"[0:0]}),
]


@pytest.mark.parametrize(("path", "body"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_a_malformed_request_is_refused_with_the_reason(server: Live, path: str, body: Any) -> None:
    status, answer = server.post(path, body)
    assert status == 400, answer
    assert len(answer["message"]) > 10
    assert "Traceback" not in answer["message"]


def test_a_body_without_end_is_cut_off(server: Live) -> None:
    status, answer = server.post(COMPLETION, b" " * (17 << 20))
    assert status == 413
    assert "longer than" in answer["message"]


def test_unknown_paths_and_methods(server: Live) -> None:
    assert server.get("/nothing")[0] == 404
    assert server.get(COMPLETION)[0] == 405


def idle(server: Live) -> bool:
    load = json.loads(server.get("/v1/loads")[1])["loads"][0]
    counts = ("num_running_reqs", "num_waiting_reqs", "num_used_tokens")
    return all(load[name] == 0 for name in counts)


def until_idle(server: Live) -> None:
    deadline = time.monotonic() + PATIENCE
    while not idle(server):
        assert time.monotonic() < deadline, server.get("/v1/loads")
        time.sleep(0.05)


def test_random_bytes_never_break_it(server: Live) -> None:
    rng = random.Random(scale.seed())
    valid = json.dumps(
        {"prompt": "import os", "max_tokens": 3, "temperature": 0.5, "stop": ["x"]}
    ).encode()
    for _ in range(scale.count(2000)):
        data = bytearray(valid)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        status, _ = server.post(COMPLETION, bytes(data))
        assert status in (200, 400), bytes(data)
    until_idle(server)


def test_clients_that_vanish_leave_no_slot_taken(server: Live) -> None:
    rng = random.Random(scale.seed())
    for _ in range(scale.count(500)):
        stream = rng.random() < 0.5
        body = json.dumps({
            "prompt": "import os\n", "max_tokens": 1500, "stream": stream, "temperature": 1,
        }).encode()  # fmt: skip
        head = (
            f"POST {COMPLETION} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        data = head + body
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(data[: rng.choice((len(data), len(data), rng.randrange(1, len(data))))])
            time.sleep(rng.random() * 0.05)
            if rng.random() < 0.5:  # an abrupt end: RST instead of FIN
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    until_idle(server)
    assert server.get("/health")[0] == 200
    assert "hit an exception" not in server.text()
    assert "Traceback" not in server.text()


def test_concurrent_answers_equal_lone_ones(server: Live) -> None:
    bodies = [
        {"prompt": f"class Server{n}:\n", "max_tokens": 24, "temperature": 0.6, "seed": n}
        for n in range(12)
    ]
    alone = [server.post(COMPLETION, body)[1]["choices"][0]["text"] for body in bodies]
    together: dict[int, str] = {}

    def ask(number: int) -> None:
        together[number] = server.post(COMPLETION, bodies[number])[1]["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[number] for number in range(len(bodies))] == alone
