"""Raw text of a model -> pieces: text, atoms, hidden, emotion marks."""

from gateway.speech.emotion import Emotion
from gateway.speech.markup.pieces import Piece, PieceKind
from gateway.speech.markup.prompt import emotion_instructions
from gateway.speech.markup.reader import MarkupReader
from gateway.speech.markup.rules import DEFAULT, MarkupRules, behind_reasoning
from gateway.speech.markup.settings import rules_from

__all__ = [
    "DEFAULT",
    "Emotion",
    "MarkupReader",
    "MarkupRules",
    "Piece",
    "PieceKind",
    "behind_reasoning",
    "emotion_instructions",
    "rules_from",
]
