"""The same engine on a CUDA device: same text, with and without speculation."""

from __future__ import annotations

import pytest

from eagle3.engine import Engine, EngineConfig
from eagle3.speculative_args import SpeculativeParams
from eagle3.weights import paths
from tests.unit.eagle3 import support

pytestmark = pytest.mark.gpu
SHAPES = [(1, 1, 2), (3, 1, 4), (5, 1, 6), (3, 4, 8), (5, 4, 8)]


def engine(shape: tuple[int, int, int] | None, dtype: str = "float32") -> Engine:
    params = SpeculativeParams(*shape) if shape else None
    draft = paths().draft if shape else None
    return Engine.load(
        EngineConfig(paths().target, draft, params, slots=8, device="cuda", dtype=dtype)
    )


def prompts() -> list[list[int]]:
    return support.chat_prompts(8) + support.code_prompts(8)


def same(wanted: Engine, got: Engine, together: int = 1) -> int:
    """Requests whose text is the same, of 16."""
    a = support.answer(wanted, prompts(), 32)
    b = support.answer(got, prompts(), 32, together=together)
    assert sum(s.accepted for s in b) > 0 or got.config.speculative is None
    return sum(x.tokens == y.tokens for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_greedy_text_is_the_same(shape: tuple[int, int, int]) -> None:
    assert same(engine(None), engine(shape)) == 16


def test_text_is_that_of_the_cpu() -> None:
    assert same(support.engine(), engine(None)) == 16


def test_eight_at_once() -> None:
    assert same(engine(None), engine((3, 1, 4)), together=8) == 16


def test_bf16_speculates_too() -> None:
    """Passes of different shapes round differently in bf16; how many texts agree is only shown."""
    print("bf16:", same(engine(None, "bfloat16"), engine((3, 1, 4), "bfloat16")), "of 16 equal")
