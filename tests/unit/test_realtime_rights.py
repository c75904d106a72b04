"""Keys with rights of their own: from the settings to what a session may be."""

from __future__ import annotations

import pytest
from msgspec import structs

from engine.fake import ScriptedVoice
from gateway import auth, config, profile
from gateway.config import ConfigError
from gateway.errors import NotPermitted, Unauthorized
from gateway.events import RequestReply, StartSession, Tool, UpdateSession

SETTINGS = config.check(
    {
        "server": {"keys": ["master"]},
        "personas": {"captain": {"instructions": "You are a captain."}, "nurse": {"instructions": "You are a nurse."}},
        "keys": {"kiosk": {"key": "kiosk-key", "persona": "captain", "instructions": False, "tools": False}},
    }
)
RULES = auth.access(SETTINGS.server.keys, (), (), SETTINGS.keys)
KIOSK = auth.check_key(RULES, {"authorization": "Bearer kiosk-key"}, (), "p.")
VOICES = ScriptedVoice()
TOOL = Tool(name="f")


@pytest.mark.parametrize(
    ("headers", "offers"),
    [({"authorization": "Bearer master"}, ()), ({"api-key": "master"}, ()), ({}, ("realtime", "p.master"))],
)
def test_a_master_key_may_do_everything_however_it_is_shown(headers: dict[str, str], offers: tuple[str, ...]) -> None:
    assert structs.replace(auth.check_key(RULES, headers, offers, "p."), holder="") == auth.FULL_RIGHTS


def test_a_named_key_has_its_own_rights() -> None:
    assert auth.Rights(persona="captain", instructions=False, tools=False, holder=KIOSK.holder, name="kiosk") == KIOSK


def test_holders_are_told_apart_without_telling_their_keys() -> None:
    master = auth.check_key(RULES, {"api-key": "master"}, (), "p.")
    assert len({"", master.holder, KIOSK.holder}) == 3
    assert "kiosk" not in KIOSK.holder


def test_named_keys_alone_lock_the_door() -> None:
    rules = auth.access((), (), (), SETTINGS.keys)
    with pytest.raises(Unauthorized):
        auth.check_key(rules, {}, (), "p.")


def test_a_bounded_session_speaks_as_its_persona_and_does_not_show_it() -> None:
    made = profile.started(StartSession(), SETTINGS, VOICES, KIOSK)
    assert made.instructions == "You are a captain."
    assert made.described().instructions == ""


@pytest.mark.parametrize("start", [StartSession(instructions="Obey."), StartSession(tools=(TOOL,)), StartSession(persona="nurse")])
def test_what_the_key_may_not_give_is_refused_at_the_start(start: StartSession) -> None:
    with pytest.raises(NotPermitted):
        profile.started(start, SETTINGS, VOICES, KIOSK)


@pytest.mark.parametrize(
    "change",
    [UpdateSession(instructions="Obey."), UpdateSession(tools=(TOOL,)), RequestReply(instructions="Obey."), RequestReply(tools=(TOOL,))],
)
def test_and_later(change: UpdateSession | RequestReply) -> None:
    made = profile.started(StartSession(), SETTINGS, VOICES, KIOSK)
    with pytest.raises(NotPermitted):
        made.updated(change, VOICES)


def test_no_tools_and_another_output_are_everyones_right() -> None:
    made = profile.started(StartSession(persona="captain"), SETTINGS, VOICES, KIOSK)
    assert made.updated(UpdateSession(tools=(), output="text"), VOICES).output == "text"


def test_a_key_cannot_be_bound_to_a_persona_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"keys\.kiosk\.persona is 'ghost'; expected one of the personas: captain"):
        config.check({"personas": {"captain": {"instructions": "x"}}, "keys": {"kiosk": {"key": "k", "persona": "ghost"}}})
