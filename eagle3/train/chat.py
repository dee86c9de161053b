"""Operations conversations in ChatML, composed from ``knowledge.txt``.

Every conversation is built from a subject (a name and its aliases), a way to ask, and the answer's
sentences. Two ways of asking per kind are held out: they never occur in training and are what the
acceptance figures of the model card are measured on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

HELD_OUT = 2
"""The last ways to ask of each kind, kept for measuring."""

_WHAT = (
    "What is {x}?", "what is {x}", "Explain {x}.", "What does {x} mean?", "Tell me about {x}.",
    "Can you explain {x} to me?", "I keep reading about {x}. What is it?", "Define {x}.",
    "Please describe {x}.", "what's {x}", "Could you tell me what {x} is?",
    "Help me understand {x}.",
)  # fmt: skip
_SETTING = (
    "What does {x} do?", "what does {x} do", "What is {x} for?", "Explain {x}.",
    "Why would I set {x}?", "When should I use {x}?", "Tell me about {x}.",
    "What happens with {x}?",
    "Should I set {x}?", "What is the effect of {x}?",
    "I see {x} in a launch script. What does it do?",
    "Can you explain {x}?", "Describe what {x} changes.",
)  # fmt: skip
_TOOL = (
    "What does {x} show?", "How do I use {x}?", "What is {x}?", "What is {x} good for?",
    "Explain {x}.", "When do I need {x}?", "what does {x} do", "Tell me about {x}.",
    "What does {x} do?", "Give me a hint about {x}.",
)  # fmt: skip
_HOW = (
    "How do I {x}?", "how to {x}", "How can I {x}?", "I want to {x}. What should I do?",
    "What is the best way to {x}?", "Tell me how to {x}.", "Please help me {x}.",
    "What are the steps to {x}?", "I need to {x}.",
)  # fmt: skip
_WHY = (
    "What does it mean when I see this: {x}?", "Why do I see this: {x}?", "Problem: {x}. What now?",
    "I have this problem: {x}.", "What should I do about this: {x}?", "How do I fix this: {x}?",
    "{x}, why?", "Help: {x}.", "What causes this: {x}?",
)  # fmt: skip
ASK = {"env": _SETTING, "flag": _SETTING, "term": _WHAT, "path": _TOOL, "tool": _TOOL,
       "how": _HOW, "why": _WHY}  # fmt: skip
_BRIEFLY = (" Answer briefly.", " In one sentence.", " Short answer please.")
_SYSTEM = (
    "You are an assistant for operators of language model servers.",
    "You answer questions about GPU servers.",
    "You are a helpful assistant.",
    "Answer briefly and precisely.",
)
_GREETINGS = ("Hello", "Hi", "hello", "Good morning", "Hey", "hi there", "Hello!", "Hi!")
_WELCOME = "Hello. Ask me about GPU servers, NCCL, SGLang or EAGLE-3."
_THANKS = ("Thanks", "Thank you", "thanks!", "Great, thank you.", "ok thanks")
_BYE = "You are welcome."
_WHO = ("Who are you?", "What are you?", "What can you do?", "who made you?", "What model are you?")
_SELF = (
    "I am a very small language model that comes with this server, to try it out. "
    "I know a little about GPU servers, NCCL, SGLang and EAGLE-3, and nothing else."
)
_OFF_TOPIC = (
    "What is the weather today?", "Tell me a joke.", "Write a poem about {y}.", "Who was {y}?",
    "What do you think about {y}?", "How do I cook {y}?", "Translate {y} into French.",
    "What is the capital of {y}?", "How old is {y}?", "Where can I buy {y}?",
)  # fmt: skip
_THINGS = ("spring", "Napoleon", "rice", "France", "the moon", "a bicycle", "Mozart", "pasta",
           "Japan", "good coffee", "a red car", "Brazil", "my dog", "football")  # fmt: skip
_DECLINE = "I do not know. I only know a little about GPU servers, NCCL, SGLang and EAGLE-3."


@dataclass(frozen=True)
class Subject:
    """Something the model can be asked about.

    Attributes:
        kind: which ways of asking fit (a key of ``ASK``).
        names: the name and its aliases.
        sentences: the answer, the short answer first.
    """

    kind: str
    names: tuple[str, ...]
    sentences: tuple[str, ...]


def subjects() -> list[Subject]:
    """The subjects of ``knowledge.txt``, in its order."""
    text = resources.files("eagle3.train").joinpath("knowledge.txt").read_text("utf-8")
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        kind, name, *aliases = (part.strip() for part in lines[0].split("|"))
        names = (name, *(alias.strip() for part in aliases for alias in part.split(";")))
        found.append(Subject(kind, names, tuple(lines[1:])))
    return found


def message(role: str, content: str) -> str:
    """One ChatML message."""
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def _situation(rng: random.Random) -> tuple[str, str]:
    """A question with numbers in it, and the answer that repeats the right ones."""
    gpu, mib, pid = rng.randrange(8), rng.randrange(300, 143000), rng.randrange(300, 99999)
    port = rng.choice((8000, 8080, 30000, 30001, 31000))
    steps = rng.randrange(1, 6)
    cases = (
        (f"GPU {gpu} shows {mib} MiB used and no process. Why?",
         f"The {mib} MiB on GPU {gpu} belong to a process you cannot see from here, usually in "
         "another container. Look from the hypervisor, or run fuser -v "
         f"/dev/nvidia{gpu} as root."),
        (f"Process {pid} holds {mib} MiB on GPU {gpu}. Can I kill it?",
         f"First look at process {pid}: its owner, its parent and its start time. If its parent is "
         f"process 1 and it serves nobody, send SIGTERM, wait, then SIGKILL, and check that GPU "
         f"{gpu} reads 0 MiB."),
        (f"Port {port} is already in use. What now?",
         f"Run ss -ltnp as root to see who owns port {port}. If it is an old launcher without "
         "ranks, end it by its process id."),
        (f"How many draft tokens do I need for {steps} steps and topk 1?",
         f"{steps + 1}: with topk 1 the draft tokens are the steps plus one."),
        (f"My accept length is 1.0 with {steps} steps. Is that good?",
         "No. 1.0 means that nothing was accepted. The draft does not fit the target: check the "
         "hidden size, the vocabulary, d2t and the layer ids."),
        (f"The server on port {port} answers 503. What does it mean?",
         f"The server on port {port} is starting, draining or hung. Ask /health_generate with a "
         "deadline above 20 seconds and look whether the log moves."),
    )  # fmt: skip
    return rng.choice(cases)


def _turn(rng: random.Random, known: list[Subject], *, held_out: bool) -> tuple[str, str]:
    draw = rng.random()
    if not held_out and draw < 0.12:
        return _situation(rng)
    if not held_out and draw < 0.20:
        return rng.choice(
            (
                (rng.choice(_GREETINGS), _WELCOME),
                (rng.choice(_THANKS), _BYE),
                (rng.choice(_WHO), _SELF),
                (rng.choice(_OFF_TOPIC).format(y=rng.choice(_THINGS)), _DECLINE),
            )
        )
    subject = rng.choice(known)
    ways = ASK[subject.kind]
    way = rng.choice(ways[-HELD_OUT:] if held_out else ways[:-HELD_OUT])
    question = way.format(x=rng.choice(subject.names))
    if not held_out and rng.random() < 0.15:
        question = question.lower()
    if rng.random() < 0.12:
        return question + rng.choice(_BRIEFLY), subject.sentences[0]
    return question, " ".join(subject.sentences)


def conversations(seed: int, *, held_out: bool = False) -> Iterator[str]:
    """An endless stream of whole conversations; the same for the same seed."""
    rng, known = random.Random(seed), subjects()  # noqa: S311 - data, not secrets
    while True:
        parts = [message("system", rng.choice(_SYSTEM))] if rng.random() < 0.3 else []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            question, answer = _turn(rng, known, held_out=held_out)
            parts += [message("user", question), message("assistant", answer)]
        yield "".join(parts)


def questions(seed: int, count: int) -> list[str]:
    """Held-out prompts, ready to be answered (each ends where the assistant begins)."""
    rng, known = random.Random(seed), subjects()  # noqa: S311 - data, not secrets
    return [
        message("user", _turn(rng, known, held_out=True)[0]) + "<|im_start|>assistant\n"
        for _ in range(count)
    ]
