"""All settings: one frozen tree, read once at start from TOML, then from the environment, checked whole.

`tree` has the keys, `loading` reads them, `environment` knows their variables, `pairs` refuses what is impossible together,
`lines` knows where each stands in a file.
"""

from __future__ import annotations

from gateway.config.environment import OTHERS, is_setting, unread, variable
from gateway.config.lines import line_of, lines_of
from gateway.config.loading import check, load
from gateway.config.pairs import LOOPBACK, ConfigError
from gateway.config.tree import (
    BackendSettings,
    BargeInSettings,
    EndpointingSettings,
    HearingSettings,
    KeySettings,
    LogSettings,
    MetricsSettings,
    Persona,
    RealtimeSettings,
    ServerSettings,
    SessionSettings,
    Settings,
    SheddingSettings,
    SpeculationSettings,
    SpeechSettings,
    TurnSettings,
)
from gateway.config.watching import CaptureSettings, LabelSettings, ModerationSettings, TracingSettings, UsageSettings

__all__ = [
    "LOOPBACK",
    "OTHERS",
    "BackendSettings",
    "BargeInSettings",
    "CaptureSettings",
    "ConfigError",
    "EndpointingSettings",
    "HearingSettings",
    "KeySettings",
    "LabelSettings",
    "LogSettings",
    "MetricsSettings",
    "ModerationSettings",
    "Persona",
    "RealtimeSettings",
    "ServerSettings",
    "SessionSettings",
    "Settings",
    "SheddingSettings",
    "SpeculationSettings",
    "SpeechSettings",
    "TracingSettings",
    "TurnSettings",
    "UsageSettings",
    "check",
    "is_setting",
    "line_of",
    "lines_of",
    "load",
    "unread",
    "variable",
]
