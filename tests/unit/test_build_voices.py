"""Which voices are built, what an operator is told, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import build_voices
from engine.api import EngineSetupError
from engine.settings import EngineSettings, HttpVoice, SpeechServer, TtsSettings
from engine.tts.chain import VoiceChain
from engine.tts.phrases import KeptPhrases
from engine.weights import KOKORO, PIPER_JOE

AMY = (HttpVoice(name="amy"), HttpVoice(name="mei", languages=("zh", "en")))
STUDIO = SpeechServer(url="http://127.0.0.1:9/v1", voices=AMY)


def everything_is_there(module: str, extra: str) -> None:
    pass


def settings(tts: TtsSettings, cache: Path = Path("/nowhere")) -> EngineSettings:
    return EngineSettings(cache_path=cache, tts=tts)


def test_voices_stand_in_the_order_of_preference() -> None:
    chain, notes = build_voices.build_voices(
        settings(TtsSettings(engines=("http", "edge", "fake", "http"), servers={"studio": STUDIO})), everything_is_there
    )
    ids = [voice.id for voice in chain.voices()]
    assert ids[:3] == ["studio/amy", "studio/mei", "edge/en-US-EmmaMultilingualNeural"]
    assert notes[0].startswith("voices: studio, edge, fake, default studio/amy")
    assert any("PRIVACY" in note and "Microsoft" in note for note in notes)
    assert any("PRIVACY" in note and "studio at http://127.0.0.1:9/v1" in note for note in notes)


def test_phrases_are_kept_only_where_some_are_configured(tmp_path: Path) -> None:
    plain, _ = build_voices.build_voices(settings(TtsSettings(engines=("fake",)), tmp_path), everything_is_there)
    assert isinstance(plain, VoiceChain)
    kept, _ = build_voices.build_voices(settings(TtsSettings(engines=("fake",), phrases=("Hello.",)), tmp_path), everything_is_there)
    assert isinstance(kept, KeptPhrases)
    assert kept.voices() == plain.voices()


def test_nothing_is_sent_to_anyone_unless_asked_for() -> None:
    assert not {"edge", "http"} & set(TtsSettings().engines)
    _, notes = build_voices.build_voices(settings(TtsSettings(engines=("fake",))), everything_is_there)
    assert not any("PRIVACY" in note for note in notes)


@pytest.mark.parametrize(
    ("tts", "told"),
    [
        (TtsSettings(engines=()), "tts.engines names no voice"),
        (TtsSettings(engines=("http",)), r"tts\.servers is empty"),
        (TtsSettings(engines=("http",), servers={"edge": STUDIO}), r"tts\.servers\.edge: expected a name"),
        (TtsSettings(engines=("http",), servers={"a": SpeechServer(url="http://x", voices=())}), r"a\.voices is empty"),
        (TtsSettings(engines=("http",), servers={"a": SpeechServer(url="x", voices=AMY)}), r"a\.url is 'x'"),
        (TtsSettings(engines=("http",), servers={"a": SpeechServer(url="http://x", voices=AMY, key_variable="NO_SUCH")}), "NO_SUCH"),
        (TtsSettings(engines=("fake",), voice_table="/nowhere/v.toml"), "/nowhere/v.toml"),
        (TtsSettings(engines=("kokoro",)), "kokoro-v1.0.int8.onnx is missing"),
    ],
)
def test_what_cannot_be_built_is_told(tts: TtsSettings, told: str) -> None:
    with pytest.raises(EngineSetupError, match=told):
        build_voices.build_voices(settings(tts), everything_is_there)


@pytest.mark.parametrize(
    ("tts", "module", "extra"),
    [
        (TtsSettings(engines=("edge",)), "edge_tts", "edge"),
        (TtsSettings(engines=("http",), servers={"a": STUDIO}), "miniaudio", "http"),
        (TtsSettings(engines=("kokoro",)), "piper", "local-hq"),
        (TtsSettings(engines=("kokoro",), kokoro_voices=("zf_xiaobei",)), "misaki", "local-zh"),
        (TtsSettings(engines=("piper",)), "onnxruntime", "local-tts"),
        (TtsSettings(engines=("espeak",)), "espeakng_loader", "local-tts"),
    ],
)
def test_a_missing_package_is_told_with_its_extra(tts: TtsSettings, module: str, extra: str) -> None:
    def need(wanted: str, brought_by: str) -> None:
        if wanted == module:
            raise EngineSetupError(f"{wanted} from {brought_by}")

    with pytest.raises(EngineSetupError, match=f"^{module} from {extra}$"):
        build_voices.build_voices(settings(tts), need)


def test_weights_are_those_of_the_voices() -> None:
    assert build_voices.needed_by_voices(settings(TtsSettings(engines=("edge", "kokoro", "piper", "espeak")))) == (KOKORO, PIPER_JOE)
    assert build_voices.needed_by_voices(settings(TtsSettings(engines=("edge",)))) == ()


def test_the_servers_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEECH_KEY", "secret")
    server = SpeechServer(url="http://x/v1", voices=AMY, key_variable="SPEECH_KEY")
    chain, notes = build_voices.build_voices(settings(TtsSettings(engines=("http",), servers={"a": server})), everything_is_there)
    assert "secret" not in " ".join(notes)
    assert [voice.languages for voice in chain.voices()] == [("en",), ("zh", "en")]
