"""What servers count, read from each form they tell it in."""

import pytest

from console.model import Server
from console.watch.probe import Metrics, address, from_prometheus, from_server_info

SGLANG = """# HELP sglang:spec_accept_length mean
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{model_name="m",tp_rank="0"} 2.41
sglang:gen_throughput{model_name="m"} 340.39
sglang:num_running_reqs{model_name="m"} 3.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:generation_tokens_total{model_name="m"} 1.2e+04
"""


def test_sglangs_metrics() -> None:
    assert from_prometheus(SGLANG) == Metrics(2.41, 340.39, 3, 1, 12000.0)


def test_several_schedulers_add_up_and_zero_acceptance_is_no_sample() -> None:
    text = 'sglang:num_running_reqs{dp="0"} 2\nsglang:num_running_reqs{dp="1"} 5\n'
    text += "sglang:spec_accept_length 0.0\n"
    found = from_prometheus(text)
    assert found is not None
    assert found.running == 7
    assert found.accept_length is None


@pytest.mark.parametrize(
    "text", ["", "up 1\n", "sglang:gen_throughput NaN\n", "<html>", "\x00\xff"]
)
def test_unknown_is_none_and_never_zero(text: str) -> None:
    assert from_prometheus(text) is None


def test_server_info_gives_numbers_and_never_the_key() -> None:
    text = """{"api_key": "k", "model_path": "/m", "internal_states":
      [{"avg_spec_accept_length": 1.7, "last_gen_throughput": 10}, {"last_gen_throughput": 5}]}"""
    assert from_server_info(text) == Metrics(1.7, 15.0, model="/m")
    assert from_server_info("[1]") == Metrics()
    assert from_server_info("{") == Metrics()


def test_a_wildcard_bind_is_asked_on_loopback() -> None:
    assert address(Server("a", "h", bind="0.0.0.0", port=1)) == "http://127.0.0.1:1"
    assert address(Server("a", "h", bind="::1", port=1)) == "http://[::1]:1"
    assert address(Server("a", "h", bind="10.0.0.7", port=1)) == "http://10.0.0.7:1"
