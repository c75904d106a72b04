"""The promises that every engine keeps: language models, voices, ears, and what crosses between them and the conversation.

Assumes one event loop per process. Time is in seconds of `loop.time()` where it is a moment, in milliseconds where it is a length of audio.
"""

from __future__ import annotations

from engine.api.errors import (
    ContextTooLong,
    EngineBusy,
    EngineError,
    EngineNotReady,
    EngineSetupError,
    EngineStalled,
    SpeechCut,
    VoiceUnavailable,
)
from engine.api.health import Health
from engine.api.language import (
    Delta,
    Facts,
    FinishReason,
    Generation,
    Kept,
    LanguageModel,
    Message,
    Prompt,
    Role,
    Sampling,
    ToolCall,
    Usage,
)
from engine.api.listening import Ear, Ears, EndOfTurn, HeardWord, Recognizer, Transcript, Transcription, VoiceDetector, VoiceFrame
from engine.api.voice import Expectant, SpeechChunk, Style, Synthesis, Synthesizer, Voice, WordTiming

__all__ = [
    "ContextTooLong",
    "Delta",
    "Ear",
    "Ears",
    "EndOfTurn",
    "EngineBusy",
    "EngineError",
    "EngineNotReady",
    "EngineSetupError",
    "EngineStalled",
    "Expectant",
    "Facts",
    "FinishReason",
    "Generation",
    "Health",
    "HeardWord",
    "Kept",
    "LanguageModel",
    "Message",
    "Prompt",
    "Recognizer",
    "Role",
    "Sampling",
    "SpeechChunk",
    "SpeechCut",
    "Style",
    "Synthesis",
    "Synthesizer",
    "ToolCall",
    "Transcript",
    "Transcription",
    "Usage",
    "Voice",
    "VoiceDetector",
    "VoiceFrame",
    "VoiceUnavailable",
    "WordTiming",
]
