"""Feelings and wishes add up inside bounds, and the shipped table is sound."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from engine.api import EngineSetupError, Style
from engine.tts import voice_table
from engine.tts.style import PITCH_BOUNDS_ST, RATE_BOUNDS, VOLUME_BOUNDS, EmotionChange, VoiceManner, resolve

EMOTIONS = {"happy": EmotionChange(rate=1.1, pitch_st=2.0, volume=1.2), "sad": EmotionChange(rate=0.9, pitch_st=-1.0)}
SHIPPED = Path(__file__).parents[2] / "configs" / "voices.toml"


def test_feeling_comes_on_top_of_the_wish() -> None:
    style = resolve(Style(emotion="happy", rate=1.2, pitch_st=1.0, volume=0.5), VoiceManner(), EMOTIONS)
    assert (round(style.rate, 3), style.pitch_st, style.volume) == (1.32, 3.0, 0.6)


@pytest.mark.parametrize("emotion", [None, "neutral", "unheard of"])
def test_no_or_an_unknown_feeling_changes_nothing(emotion: str | None) -> None:
    style = resolve(Style(emotion=emotion), VoiceManner(), EMOTIONS)
    assert (style.rate, style.pitch_st, style.volume) == (1.0, 0.0, 1.0)


def test_strength_scales_a_feeling_and_an_own_style_replaces_it() -> None:
    half = resolve(Style(emotion="sad"), VoiceManner(strength=0.5), EMOTIONS)
    assert (round(half.rate, 4), half.pitch_st) == (round(0.9**0.5, 4), -0.5)
    own = resolve(Style(emotion="sad"), VoiceManner(styles={"sad": "gloomy"}), EMOTIONS)
    assert (own.rate, own.pitch_st) == (1.0, 0.0)


def test_gain_is_the_voices_own() -> None:
    assert math.isclose(resolve(Style(), VoiceManner(gain_db=-6.0), {}).volume, 10**-0.3)


@pytest.mark.parametrize("wish", [0.0, -5.0, 1e9, math.inf, -math.inf, math.nan])
def test_no_wish_leaves_the_bounds(wish: float) -> None:
    style = resolve(Style(emotion="happy", rate=wish, pitch_st=wish, volume=wish), VoiceManner(), EMOTIONS)
    assert RATE_BOUNDS[0] <= style.rate <= RATE_BOUNDS[1]
    assert PITCH_BOUNDS_ST[0] <= style.pitch_st <= PITCH_BOUNDS_ST[1]
    assert VOLUME_BOUNDS[0] <= style.volume <= VOLUME_BOUNDS[1]


def test_the_shipped_table_knows_every_feeling() -> None:
    from gateway.speech.emotion import Emotion

    table = voice_table.load(SHIPPED)
    assert set(table.emotions) == {emotion.value for emotion in Emotion}
    neutral = table.emotions["neutral"]
    assert (neutral.rate, neutral.pitch_st, neutral.volume) == (1.0, 0.0, 1.0)
    assert all(change.instructions for name, change in table.emotions.items() if name != "neutral")


def test_the_shipped_table_lists_the_edge_voices() -> None:
    voices = voice_table.load(SHIPPED).listed("edge")
    languages = {voice.languages[0] for voice in voices}
    assert {"en", "zh", "ja", "ko", "de", "fr", "es", "ru", "ar", "hi"} <= languages
    assert voices[0].languages[0] == "en"
    assert {"edge/zh-CN-XiaoxiaoNeural", "edge/en-US-AriaNeural"} <= {voice.id for voice in voices}
    from engine.tts.edge.prosody import EdgeProsody
    from engine.tts.edge.protocol import ssml_message

    for voice in voices:
        ssml_message("x", voice.id.removeprefix("edge/"), EdgeProsody())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[emotions.happy]\nrate = 9", "emotions"),
        ("[voices.a]\ncolour = 1", "colour"),
        ("[voices.a]\ngain_db = 99", "voices"),
        ("not toml", "wrong"),
        ("[voices.a]\nbase_hz = 'high'", "float"),
    ],
)
def test_a_wrong_table_says_where(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "voices.toml"
    path.write_text(text)
    with pytest.raises(EngineSetupError, match=fault):
        voice_table.load(path)
    with pytest.raises(EngineSetupError, match="cannot read"):
        voice_table.load(tmp_path / "none.toml")
