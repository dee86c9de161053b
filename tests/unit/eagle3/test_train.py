"""The training command on a scrap of text: a pair comes out that the engine reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from eagle3.engine import Engine, EngineConfig
from eagle3.speculative_args import SpeculativeParams
from eagle3.train import chat, corpus

from . import support


def scrap(path: Path) -> None:
    """A tokenised corpus of a few conversations, with the shipped tokenizer."""
    talk = [text for text, _ in zip(chat.conversations(1), range(60), strict=False)]
    ids = np.asarray(support.tokenizer().encode(corpus.END.join(talk)).ids, dtype=np.uint16)
    streams = dict.fromkeys(("chat", "code", "prose", "held_out_code"), ids)
    np.savez(path, tokenizer=np.asarray(support.tokenizer().to_str()), **streams)  # type: ignore[arg-type]


def test_one_command_makes_a_pair(tmp_path: Path) -> None:
    scrap(tmp_path / "corpus.npz")
    command = [
        sys.executable, "-m", "eagle3.train", str(tmp_path),
        "--corpus", str(tmp_path / "corpus.npz"), "--steps", "3",
        "--rows", "2", "--length", "32", "--draft-rows", "2", "--draft-length", "64",
        "--own-batches", "1", "--own-rows", "2", "--passes", "2",
    ]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "training.json").read_text())
    assert report["target_steps"] == report["draft_steps"] == 3
    params = SpeculativeParams(3, 1, 4)
    engine = Engine.load(EngineConfig(tmp_path / "target", tmp_path / "draft", params, slots=1))
    plain = Engine.load(EngineConfig(tmp_path / "target", slots=1))
    prompts = support.chat_prompts(1)
    assert (
        support.answer(engine, prompts, 8)[0].tokens == support.answer(plain, prompts, 8)[0].tokens
    )
    assert torch.equal(engine.draft.token_of, engine.draft.token_of.sort().values)


def test_held_out_questions_are_never_asked_in_training() -> None:
    held_out = {text.split("\n")[1] for text in chat.questions(99, 300)}
    asked = set()
    for text, _ in zip(chat.conversations(7), range(3000), strict=False):
        asked |= {
            part.split("\n")[1] for part in text.split("<|im_start|>") if part.startswith("user")
        }
    assert not held_out & asked


def test_every_subject_has_an_answer_and_a_way_to_ask() -> None:
    known = chat.subjects()
    assert len(known) > 150
    for subject in known:
        assert subject.kind in chat.ASK, subject
        assert subject.sentences, subject
        assert all(sentence[-1] in ".:" for sentence in subject.sentences), subject
