"""A session goes on with the rights that its key has at the resume: what they allow no more is gone, and the client is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.api import Generation
from engine.fake import ScriptedModel
from gateway.auth import FULL_RIGHTS, Rights
from gateway.config import KeySettings
from gateway.errors import NotPermitted, UnknownPersona
from gateway.events import (
    AddItem,
    ErrorRaised,
    HistoryItem,
    ItemDeleted,
    Resume,
    SendText,
    ServerEvent,
    SessionUpdated,
    StartSession,
    Tool,
    TurnDone,
    UpdateSession,
)
from gateway.history import Item
from gateway.outbox import MAX_WAITING
from gateway.session import Session, saving
from gateway.sessions import Opened
from tests.session.stage import Stage, stage

REPLY = "One two three four five six seven."
PERSONAS: dict[str, Any] = {  # Any: a settings tree
    "instructions": "You are an assistant.",
    "personas": {"nurse": {"instructions": "You are a nurse."}, "captain": {"instructions": "You are a captain."}},
}
TOOL = Tool(name="look", description="Look.", parameters={"type": "object"})
OWN = StartSession(instructions="Be a pirate.", tools=(TOOL,), history=(HistoryItem(role="system", text="Obey the user."),))
MUTE_KEY = Rights(instructions=False)


async def resumed(scene: Stage, rights: Rights) -> Session:
    """Its client is lost and comes back; frames before are read."""
    await scene.stop_reading()
    scene.sessions.lose(scene.session, scene.attachment, is_over=False)
    last_seq = scene.session.outbox.last_seq
    resume = Resume(session_id=scene.session.session_id, token=scene.ready.resume_token, last_seq=last_seq)
    opened: Opened = await scene.sessions.open(StartSession(resume=resume), rights)
    session, scene.attachment, scene.ready = opened
    assert scene.ready.resumed
    assert session is scene.session
    return session


def told(session: Session) -> list[ServerEvent]:
    return list(session.outbox.waiting())


async def test_instructions_that_the_key_may_give_no_more_are_gone() -> None:
    model = Listened([REPLY, REPLY])
    async with stage(model=model, settings=PERSONAS, start=OWN) as scene:
        (item,) = scene.session.history
        session = await resumed(scene, MUTE_KEY)
        assert session.profile.instructions == "You are an assistant."
        assert session.profile.tools == (TOOL,), "these it may still give"
        deleted, updated = told(session)
        assert deleted == ItemDeleted(item_id=item.item_id)
        assert isinstance(updated, SessionUpdated)
        assert updated.instructions == "", "the server's own are not shown to such a key"
        scene._reader = asyncio.create_task(scene._read(), name="client")
        for event in (UpdateSession(instructions="Be a parrot."), AddItem(role="system", text="Obey me.")):
            session.receive(event)
        session.receive(SendText(text="Hello."))
        await scene.until(TurnDone)
        assert [error.code for error in scene.of(ErrorRaised)] == [NotPermitted.code] * 2
        text = str(model.heard[-1].prompt)
        assert "You are an assistant." in text
        assert "pirate" not in text
        assert "Obey" not in text


async def test_tools_that_the_key_may_give_no_more_are_gone() -> None:
    async with stage([REPLY], settings=PERSONAS, start=OWN) as scene:
        scene.send(UpdateSession(tool_choice="function:look"))
        session = await resumed(scene, Rights(tools=False))
        assert (session.profile.tools, session.profile.tool_choice) == ((), "auto")
        assert session.profile.instructions == "Be a pirate."
        (item,) = session.history
        assert item.text == "Obey the user."
        updated = told(session)[-1]
        assert isinstance(updated, SessionUpdated)
        assert (updated.tools, updated.tool_choice) == ((), "auto")


@pytest.mark.parametrize(
    ("before", "start", "after", "instructions"),
    [
        (FULL_RIGHTS, StartSession(persona="nurse"), Rights(persona="captain"), "You are a captain."),
        (FULL_RIGHTS, StartSession(persona="nurse", instructions="Be kind."), MUTE_KEY, "You are a nurse."),
        (FULL_RIGHTS, StartSession(instructions="Be kind."), Rights(persona="captain"), "You are a captain."),
        (FULL_RIGHTS, StartSession(persona="nurse"), Rights(persona="nurse", instructions=False), "You are a nurse."),
        (Rights(persona="captain"), StartSession(instructions="Be kind."), MUTE_KEY, "You are a captain."),
        (Rights(persona="captain"), StartSession(instructions="Be kind."), Rights(persona="captain"), "Be kind."),
        (Rights(persona="captain"), StartSession(), FULL_RIGHTS, "You are a captain."),
    ],
)
async def test_a_session_speaks_as_its_key_may(before: Rights, start: StartSession, after: Rights, instructions: str) -> None:
    async with stage([REPLY], settings=PERSONAS) as scene:
        await scene.stop_reading()
        scene.sessions.lose(scene.session, scene.attachment, is_over=True)
        scene.session, scene.attachment, scene.ready = await scene.sessions.open(start, before)
        session = await resumed(scene, after)
        assert session.profile.instructions == instructions
        assert session.profile.rights == after


@pytest.mark.parametrize("rights", [FULL_RIGHTS, Rights(name="same"), Rights(cache_salt="other")])
async def test_rights_that_take_nothing_away_are_not_spoken_of(rights: Rights) -> None:
    async with stage([REPLY], settings=PERSONAS, start=OWN) as scene:
        session = await resumed(scene, rights)
        assert told(session) == []
        assert session.profile.instructions == "Be a pirate."
        assert session.profile.rights == rights


async def test_a_key_that_may_more_now_may_so_at_once() -> None:
    async with stage([REPLY], settings=PERSONAS) as scene:
        await resumed(scene, MUTE_KEY)
        session = await resumed(scene, FULL_RIGHTS)
        session.receive(UpdateSession(instructions="Be a parrot."))
        session.receive(AddItem(role="system", text="Speak up."))
        assert session.profile.instructions == "Be a parrot."
        assert [item.text for item in session.history] == ["Speak up."]


async def test_a_conversation_counts_for_the_account_that_its_key_has_now() -> None:
    async with stage([REPLY], limits=KeySettings(key="k")) as scene:
        quota = scene.parts.quota
        await resumed(scene, Rights(name="bounded"))
        assert (quota.of("").n_sessions, quota.of("bounded").n_sessions) == (0, 1)
        scene.sessions.lose(scene.session, scene.attachment, is_over=True)
        await asyncio.sleep(0.1)
        assert (quota.of("").n_sessions, quota.of("bounded").n_sessions) == (0, 0)


async def test_a_conversation_of_another_process_goes_on_with_the_present_rights() -> None:
    async with stage([REPLY], settings=PERSONAS, start=OWN) as scene:
        copy = saving.decode(saving.encode(scene.session))
        again = saving.restored(copy, scene.parts, last_seq=0, rights=Rights(persona="captain", instructions=False, tools=False))
        assert (again.profile.instructions, again.profile.tools, len(again.history)) == ("You are a captain.", (), 0)
        assert again.profile.rights == Rights(persona="captain", instructions=False, tools=False)
        with pytest.raises(UnknownPersona, match="pirate"):
            saving.restored(copy, scene.parts, last_seq=0, rights=Rights(persona="pirate"))


class Listened(ScriptedModel):
    """One that keeps what it was asked."""

    def __init__(self, replies: list[str]) -> None:
        super().__init__(replies)
        self.heard: list[Generation] = []

    def generate(self, generation: Generation) -> Any:  # Any: an async generator
        self.heard.append(generation)
        return super().generate(generation)


async def test_who_cannot_be_told_of_all_that_is_gone_begins_anew() -> None:
    """More instructions than frames may wait for a client: on a session that is over, it would wait for an answer until it is idle."""
    async with stage() as scene:
        for number in range(MAX_WAITING):
            scene.session.conversation.history.add(Item(item_id=f"item_{number}", role="system", text="Obey."))
        await scene.stop_reading()
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        resume = Resume(session_id=scene.session.session_id, token=scene.ready.resume_token, last_seq=scene.session.outbox.last_seq)
        session, _, ready = await scene.sessions.open(StartSession(resume=resume), MUTE_KEY)
        assert not ready.resumed
        assert session is not scene.session
        assert scene.sessions.ids() == [session.session_id]
