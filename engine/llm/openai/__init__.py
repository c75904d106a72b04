"""Any OpenAI-compatible chat server as a `LanguageModel`, over HTTP or a Unix socket; several of them as one."""

from engine.llm.openai.endpoints import Endpoint
from engine.llm.openai.model import OpenAiModel
from engine.llm.openai.settings import ChatServers

__all__ = ["ChatServers", "Endpoint", "OpenAiModel"]
