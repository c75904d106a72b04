"""What the benched conversations say and when: data and pure rules, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

QUESTIONS: dict[str, tuple[str, ...]] = {
    "en": (
        "Tell me something about the sea.",
        "Why is the sky blue?",
        "What should I cook tonight?",
        "How do birds find their way?",
        "Explain to me how a piano works.",
        "What was the best part of your day?",
        "How far away is the moon?",
        "Give me one good reason to get up early.",
    ),
    "zh": (
        "给我讲讲大海吧。",
        "天空为什么是蓝色的？",
        "今天晚上吃什么好呢？",
        "鸟儿怎么认路？",
        "钢琴是怎么发声的？",
        "月亮离我们有多远？",
    ),
}
# Every caller says who they are. Otherwise callers who ask the same questions would hold the same conversation, and a prefix cache
# would answer all but the first of them.
CALLER = {"en": "{question} I am caller number {number}.", "zh": "{question}我是第{number}位来电的人。"}
_GOLDEN = 0.6180339887498949  # multiples of it modulo 1 fill the unit interval evenly: chance without a generator


class Plan(Struct, frozen=True, kw_only=True):
    """A bench's bounds. It ends with the first of `seconds` and `turns` per conversation; a turn under way may finish."""

    n_talkers: int = 1
    seconds: float = 30.0
    turns: int = 20
    think_s: float = 1.0
    ramp_s: float = 5.0
    language: str = "en"
    output: str = "audio"
    seed: int = 0


class Line(Struct, frozen=True, kw_only=True):
    """One thing a talker says, after thinking for `think_s`."""

    think_s: float
    text: str


def start_s(plan: Plan, talker: int) -> float:
    """When a talker begins: spread over the ramp, so that turns do not march in step."""
    return plan.ramp_s * talker / plan.n_talkers


def lines(plan: Plan, talker: int) -> Iterator[Line]:
    """A talker's lines; thinking takes half to one and a half times `plan.think_s`."""
    questions = QUESTIONS[plan.language]
    for turn in range(plan.turns):
        share = (plan.seed + talker * 7 + turn * 3 + 1) * _GOLDEN % 1.0
        question = questions[(talker + turn + plan.seed) % len(questions)]
        text = question if turn else CALLER[plan.language].format(question=question, number=talker + 1)
        yield Line(think_s=plan.think_s * (0.5 + share), text=text)
