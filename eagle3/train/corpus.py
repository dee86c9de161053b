"""The training corpus: conversations, the standard library's source and the language reference.

Everything comes from this package and from the Python that runs it (licence of the latter two:
PSF-2.0), so nothing is downloaded. The text varies a little with the Python version, which is why
weights are trained once and shipped.
"""

from __future__ import annotations

import itertools
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from eagle3.train import chat

END, PAD, START_MESSAGE, END_MESSAGE = SPECIALS = (
    "<|endoftext|>", "<|pad|>", "<|im_start|>", "<|im_end|>",
)  # fmt: skip
SKIP = {"encodings", "lib2to3", "site-packages", "__pycache__", "idlelib", "turtledemo", "data"}
HELD_OUT_EVERY = 20
"""One source file in so many is kept out of training."""


@dataclass(frozen=True)
class Documents:
    """Whole documents by domain, and those kept out of training."""

    chat: list[str]
    code: list[str]
    prose: list[str]
    held_out_code: list[str]


def source_files() -> list[Path]:
    """The standard library's Python source, sorted; its own tests included, tables left out."""
    root = Path(sysconfig.get_path("stdlib"))
    return sorted(
        path
        for path in root.rglob("*.py")
        if not SKIP.intersection(path.relative_to(root).parts[:-1]) and path.name != "topics.py"
    )


def held_out_files() -> list[Path]:
    """Modules kept out of training; tests are never among them (they repeat themselves)."""
    modules = [path for path in source_files() if "test" not in path.parts]
    return modules[::HELD_OUT_EVERY]


def read(conversations: int = 60_000, seed: int = 7) -> Documents:
    """Collect the corpus on this machine."""
    from pydoc_data.topics import topics  # noqa: PLC0415 - 750 kB, and some systems split it off

    held_out = set(held_out_files())
    code: list[str] = []
    kept: list[str] = []
    for path in source_files():
        text = path.read_text("utf-8", errors="replace")
        if 200 < len(text) < 400_000:
            (kept if path in held_out else code).append(text)
    talk = list(itertools.islice(chat.conversations(seed), conversations))
    return Documents(talk, code, sorted(topics.values()), kept)


def train_tokenizer(documents: Documents, vocab_size: int) -> Tokenizer:
    """A byte-level BPE over a sample of all three domains."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True) for token in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sample = documents.chat[:12_000] + documents.code[::4] + documents.prose
    tokenizer.train_from_iterator(sample, trainer)
    return tokenizer


class Stream:
    """One domain as a flat array of token ids, with the places where documents begin."""

    def __init__(self, ids: np.ndarray, end: int) -> None:
        self.ids = ids
        self.starts = np.concatenate([[0], np.flatnonzero(ids == end)[:-1] + 1])

    def windows(self, rng: np.random.Generator, count: int, length: int) -> np.ndarray:
        """Random windows; half of them begin where a document begins."""
        last = len(self.ids) - length
        anywhere = rng.integers(0, last, count)
        begins = np.minimum(rng.choice(self.starts, count), last - 1)
        first = np.where(rng.random(count) < 0.5, begins, anywhere)
        return self.ids[first[:, None] + np.arange(length)].astype(np.int64)


@dataclass(frozen=True)
class Corpus:
    """The tokenised corpus."""

    tokenizer: Tokenizer
    chat: Stream
    code: Stream
    prose: Stream
    held_out_code: Stream


def _flat(tokenizer: Tokenizer, documents: list[str]) -> np.ndarray:
    encoded = tokenizer.encode_batch([text + END for text in documents])
    ids = list(itertools.chain.from_iterable(item.ids for item in encoded))
    return np.asarray(ids, dtype=np.uint16)


def load(path: Path | None, vocab_size: int) -> Corpus:
    """The corpus in ``path``; made from this machine's Python (and kept there) if there is none."""
    names = ("chat", "code", "prose", "held_out_code")
    if path is not None and path.exists():
        with np.load(path) as file:
            tokenizer = Tokenizer.from_str(str(file["tokenizer"]))
            arrays = [file[name] for name in names]
    else:
        documents = read()
        tokenizer = train_tokenizer(documents, vocab_size)
        arrays = [_flat(tokenizer, getattr(documents, name)) for name in names]
        if path is not None:
            np.savez_compressed(
                path,
                tokenizer=np.asarray(tokenizer.to_str()),
                **dict(zip(names, arrays, strict=True)),
            )
    end = int(tokenizer.token_to_id(END) or 0)
    return Corpus(tokenizer, *(Stream(ids, end) for ids in arrays))


class Mix:
    """Windows drawn from several streams in fixed shares."""

    def __init__(self, streams: list[Stream], shares: list[float], seed: int) -> None:
        self.streams, self.shares = streams, shares
        self.rng = np.random.default_rng(seed)

    def batch(self, count: int, length: int) -> np.ndarray:
        """``count`` windows of ``length`` token ids, in random order."""
        counts = self.rng.multinomial(count, self.shares)
        parts = [
            stream.windows(self.rng, int(n), length)
            for stream, n in zip(self.streams, counts, strict=True)
        ]
        return self.rng.permutation(np.concatenate(parts))
