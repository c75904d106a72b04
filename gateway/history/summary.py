"""What the model is asked for when the oldest part of a conversation is summed up, and how its answer stands in later prompts.

Pure. The summary is told as the user's words, in front of the first item that stayed: it is made of what users said, so it must not speak
with the system's voice, and templates refuse a second system message.
"""

from __future__ import annotations

import re

from engine.api import FinishReason, Message

_ASK = {
    "en": (
        "Before we go on: sum up what we have said so far for yourself, in at most {} words. Keep names, facts, numbers, wishes and "
        "promises. Answer with the summary alone, in plain sentences."
    ),
    "zh": (
        "在继续之前，请你为自己总结一下我们到目前为止说过的内容，不超过{}个字。保留姓名、事实、数字、愿望和承诺。只回答总结，用普通的句子。"
    ),
}
_TOLD = {"en": "(What we said before, in short: {})", "zh": "（我们之前说过的，简单来说：{}）"}
_WORDS_PER_TOKEN = 0.6
_STOP = re.compile(r"[.!?\u3002\uff01\uff1f\u2026]+[\"'\u201d\u2019)\u300d\u300f\uff09]*(?=\s|$)|[\u3002\uff01\uff1f]|\n")


def asking(messages: tuple[Message, ...], language: str, max_tokens: int) -> tuple[Message, ...]:
    """The prompt of the summary: what is to be summed up as it was told before, so that the engine has read it, and the request for it."""
    text = _ASK.get(language.partition("-")[0].lower(), _ASK["en"]).format(round(max_tokens * _WORDS_PER_TOKEN))
    return (*messages, Message(role="user", text=text))


def told(summary: str, language: str) -> str:
    """The summary as later prompts hold it."""
    return _TOLD.get(language.partition("-")[0].lower(), _TOLD["en"]).format(summary)


def read(text: str, finish: FinishReason) -> str | None:
    """The summary in the model's answer, up to its last whole sentence; None where there is none."""
    text = text.strip()
    if finish == "length":
        ends = [found.end() for found in _STOP.finditer(text)]
        text = text[: ends[-1]].strip() if ends else ""
    return text if finish in ("stop", "length") and text else None
