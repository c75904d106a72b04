"""The closed vocabulary of emotions, and the words and faces a model may mark them with.

Decides what a mark means; knows nothing of where marks stand in text (markup does) or how a voice sounds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Emotion(StrEnum):
    """What a voice can be asked to sound like."""

    NEUTRAL = "neutral"
    HAPPY = "happy"
    SAD = "sad"
    ANGRY = "angry"
    FEARFUL = "fearful"
    SURPRISED = "surprised"
    DISGUSTED = "disgusted"
    AFFECTIONATE = "affectionate"
    PLAYFUL = "playful"
    CALM = "calm"
    SERIOUS = "serious"


# The first word of each row is the one that the prompt asks for.
_CHINESE: dict[Emotion, str] = {
    Emotion.NEUTRAL: "平静 中性 平常",
    Emotion.HAPPY: "开心 高兴 快乐 喜悦 兴奋 愉快",
    Emotion.SAD: "难过 伤心 悲伤 失落 委屈 沮丧",
    Emotion.ANGRY: "生气 愤怒 恼火",
    Emotion.FEARFUL: "害怕 恐惧 担心 紧张",
    Emotion.SURPRISED: "惊讶 吃惊 惊喜 震惊",
    Emotion.DISGUSTED: "厌恶 嫌弃 反感",
    Emotion.AFFECTIONATE: "温柔 关爱 深情 亲切 宠溺 温柔地",
    Emotion.PLAYFUL: "调皮 俏皮 撒娇 得意 害羞",
    Emotion.CALM: "安抚 淡定 沉静 安静",
    Emotion.SERIOUS: "严肃 认真 郑重",
}
_ENGLISH: dict[Emotion, str] = {
    Emotion.NEUTRAL: "neutral",
    Emotion.HAPPY: "happy happiness joy joyful cheerful excited",
    Emotion.SAD: "sad sadness sorrowful",
    Emotion.ANGRY: "angry anger annoyed",
    Emotion.FEARFUL: "fearful fear scared afraid anxious",
    Emotion.SURPRISED: "surprised surprise amazed",
    Emotion.DISGUSTED: "disgusted disgust",
    Emotion.AFFECTIONATE: "affectionate loving love tender",
    Emotion.PLAYFUL: "playful teasing smirk mischievous",
    Emotion.CALM: "calm soothing relaxed",
    Emotion.SERIOUS: "serious stern",
}
_FACES: dict[Emotion, str] = {
    Emotion.NEUTRAL: "😐😶",
    Emotion.HAPPY: "😀😃😄😁😆😅😂🤣😊🙂😇🥳🤗☺😋😎🤩😺",
    Emotion.SAD: "😢😭😔😞😟🙁☹😥😿🥺😣",
    Emotion.ANGRY: "😠😡🤬😤👿",
    Emotion.FEARFUL: "😨😰😱😧😬",
    Emotion.SURPRISED: "😮😯😲😳🤯",
    Emotion.DISGUSTED: "🤢🤮😖🙄😒",
    Emotion.AFFECTIONATE: "😍🥰😘😚😙😻",
    Emotion.PLAYFUL: "😉😜😝😛🤪😏🙃🤭",
    Emotion.CALM: "😌😴",
    Emotion.SERIOUS: "🧐😑🤔",
}


def _by_word(*tables: dict[Emotion, str]) -> Mapping[str, Emotion]:
    return MappingProxyType({word: emotion for table in tables for emotion, words in table.items() for word in words.split()})


WORDS: Mapping[str, Emotion] = _by_word(_ENGLISH, _CHINESE)
FACES: Mapping[str, Emotion] = MappingProxyType({face: emotion for emotion, faces in _FACES.items() for face in faces})


def word_for(emotion: Emotion, language: str) -> str:
    """The word that marks `emotion` in a prompt in `language` (Chinese, else English)."""
    table = _CHINESE if language.split("-")[0].lower() == "zh" else _ENGLISH
    return table[emotion].split()[0]
