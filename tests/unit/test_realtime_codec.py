"""The Realtime codec alone: what it reads, what it refuses and how it says so, what it shows of a session."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.codecs.native import NativeCodec
from gateway.codecs.realtime import RealtimeCodec
from gateway.errors import ClientError, Drained, Idle, SlowReader, StrettoError, TurnActive, UnknownTurn, UnknownVoice
from gateway.events import (
    Ack,
    AddItem,
    AudioFrame,
    AudioOut,
    Cancel,
    ClientEvent,
    ErrorRaised,
    GoingAway,
    Heard,
    Interrupted,
    ItemAdded,
    Limits,
    ReplyDone,
    RequestReply,
    SegmentAudio,
    SegmentDecided,
    SessionReady,
    SessionUpdated,
    Timeline,
    Tool,
    TurnDone,
    TurnStarted,
    UpdateSession,
    UsageInfo,
    VoiceInfo,
)
from gateway.session import error_frame

SETTINGS = SessionUpdated(instructions="Be kind.", language="en", voice="amy", output="audio", allow_barge_in=True)
USAGE = UsageInfo(prompt_tokens=9, cached_tokens=4, output_tokens=3)


def codec(voices: tuple[str, ...] = ("amy", "joe")) -> RealtimeCodec:
    made = RealtimeCodec("u", "gpt-realtime", 1 << 20, 3600)
    limits = Limits(lead_ms=1000, idle_s=1, message_bytes=1, text_bytes=1)
    known = tuple(VoiceInfo(id=voice, languages=("en",)) for voice in voices)
    ready = SessionReady(session_id="sess_1", resume_token="t", resumed=False, limits=limits, audio_out=AudioOut(), voices=known)
    made.welcome(ready, SETTINGS)
    return made


def decode(made: RealtimeCodec, kind: str, **fields: Any) -> ClientEvent:  # Any: right or wrong values
    (event,) = made.decode(json.dumps({"type": kind, **fields}))
    return event


def refused(made: RealtimeCodec, frame: str | bytes) -> dict[str, Any]:  # Any: JSON
    """The `error` object that a frame is answered with."""
    with pytest.raises(ClientError) as caught:
        made.decode(frame)
    (answer,) = made.encode(error_frame(caught.value), 1)
    return dict(json.loads(answer)["error"])


def fault(kind: str, **fields: Any) -> tuple[str, str | None]:  # Any: wrong values
    error = refused(codec(), json.dumps({"type": kind, **fields}))
    return error["code"], error["param"]


def encoded(made: RealtimeCodec, *events: Any) -> list[dict[str, Any]]:  # Any: server events, JSON
    return [json.loads(frame) for event in events for frame in made.encode(event, 1)]


def update(**session: Any) -> UpdateSession:  # Any: right or wrong values
    event = decode(codec(), "session.update", session=session)
    assert isinstance(event, UpdateSession)
    return event


def test_the_session_object_is_whole() -> None:
    made = codec()
    decoded = decode(made, "session.update", session={})
    tool = Tool(name="f", description="F.", parameters={"type": "object"})
    settings = SessionUpdated(
        ref=decoded.id, instructions="New.", language="en", voice="joe", output="text", allow_barge_in=True, tools=(tool,), max_tokens=7
    )
    (updated,) = encoded(made, settings)
    assert updated["session"] == {
        "type": "realtime",
        "object": "realtime.session",
        "id": "sess_1",
        "model": "gpt-realtime",
        "output_modalities": ["text"],
        "instructions": "New.",
        "tools": [{"type": "function", "name": "f", "description": "F.", "parameters": {"type": "object"}}],
        "tool_choice": "auto",
        "max_output_tokens": 7,
        "tracing": None,
        "truncation": "auto",
        "prompt": None,
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": None,
                "noise_reduction": None,
                "turn_detection": None,
            },
            "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "joe", "speed": 1.0},
        },
    }


def test_only_given_settings_change() -> None:
    event = update(type="realtime", instructions="", tools=[])
    assert (event.instructions, event.tools, event.voice, event.output, event.tool_choice) == ("", (), None, None, None)


@pytest.mark.parametrize(
    ("session", "field", "value"),
    [
        ({"output_modalities": ["text"]}, "output", "text"),
        ({"output_modalities": ["text", "audio"]}, "output", "audio"),
        ({"modalities": ["text"]}, "output", "text"),
        ({"audio": {"output": {"voice": "joe"}}}, "voice", "joe"),
        ({"audio": {"output": {"voice": {"id": "joe"}}}}, "voice", "joe"),
        ({"voice": "joe"}, "voice", "joe"),
        ({"voice": "alloy"}, "voice", "amy"),
        ({"max_output_tokens": 5}, "max_tokens", 5),
        ({"max_response_output_tokens": "inf"}, "max_tokens", "inf"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "function:f"),
        ({"tool_choice": "none"}, "tool_choice", "none"),
        ({"temperature": 0.8}, "temperature", 0.8),
        ({"audio": {"output": {"speed": 1.25}}}, "speed", 1.25),
        ({"speed": 0.25}, "speed", 0.5),
        ({"audio": {"output": {"format": {"type": "audio/pcm"}}}}, "audio_out", AudioOut()),
        ({"audio": {"output": {"format": {"type": "audio/pcmu"}}}}, "audio_out", AudioOut(codec="g711u", rate_hz=8000)),
        ({"audio": {"output": {"format": {"type": "audio/pcma", "rate": 8000}}}}, "audio_out", AudioOut(codec="g711a", rate_hz=8000)),
        ({"output_audio_format": "g711_ulaw"}, "audio_out", AudioOut(codec="g711u", rate_hz=8000)),
    ],
)
def test_names_of_ga_and_beta_are_read(session: dict[str, Any], field: str, value: object) -> None:
    assert getattr(update(**session), field) == value


@pytest.mark.parametrize(
    "session",
    [
        {"tracing": "auto", "include": ["x"], "prompt": {"id": "p"}, "truncation": "disabled", "reasoning": {"effort": "low"}},
        {"audio": {"input": {"turn_detection": {"type": "semantic_vad"}, "transcription": {"model": "w"}, "noise_reduction": None}}},
        {"turn_detection": None, "input_audio_format": "pcm16", "input_audio_transcription": {"model": "w"}},
        {"include": ["item.input_audio_transcription.logprobs"], "audio": {"output": {}}},
        {"model": "another", "parallel_tool_calls": True, "made_up_tomorrow": 1},
        {"instructions": None, "tools": None, "voice": None, "audio": None, "output_modalities": None},
    ],
)
def test_what_we_have_no_use_for_is_taken_and_does_nothing(session: dict[str, Any]) -> None:
    assert update(**session) == UpdateSession(id="m1")


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"instructions": 1}, "invalid_type", "session.instructions"),
        ({"output_modalities": "text"}, "invalid_type", "session.output_modalities"),
        ({"output_modalities": ["video"]}, "invalid_value", "session.output_modalities"),
        ({"output_modalities": []}, "invalid_value", "session.output_modalities"),
        ({"max_output_tokens": 0}, "invalid_value", "session.max_output_tokens"),
        ({"max_output_tokens": True}, "invalid_type", "session.max_output_tokens"),
        ({"tools": [{"type": "mcp", "name": "m"}]}, "invalid_value", "session.tools[0].type"),
        ({"tools": [{"type": "function"}]}, "missing_required_parameter", "session.tools[0].name"),
        ({"tools": ["f"]}, "invalid_type", "session.tools[0]"),
        ({"tool_choice": "maybe"}, "invalid_value", "session.tool_choice"),
        ({"audio": {"output": {"format": {"type": "audio/pcm", "rate": 16000}}}}, "invalid_value", "session.audio.output.format.rate"),
        ({"audio": {"output": {"format": {"type": "audio/pcmu", "rate": 24000}}}}, "invalid_value", "session.audio.output.format.rate"),
        ({"audio": {"output": {"format": {"type": "audio/flac"}}}}, "invalid_value", "session.audio.output.format"),
        ({"output_audio_format": "mp3"}, "invalid_value", "session.output_audio_format"),
        ({"output_audio_format": 8}, "invalid_type", "session.output_audio_format"),
        ({"audio": {"output": {"speed": 1.6}}}, "invalid_value", "session.audio.output.speed"),
        ({"audio": {"output": {"speed": 0.2}}}, "invalid_value", "session.audio.output.speed"),
        ({"audio": {"output": {"speed": "fast"}}}, "invalid_type", "session.audio.output.speed"),
        ({"temperature": "hot"}, "invalid_type", "session.temperature"),
        ({"type": "transcription"}, "invalid_value", "session.type"),
    ],
)
def test_wrong_settings_name_their_place(session: dict[str, Any], code: str, param: str) -> None:
    assert fault("session.update", session=session) == (code, param)


def test_a_tool_schema_nested_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(30):
        schema = {"properties": schema}
    tools = [{"type": "function", "name": "f", "parameters": schema}]
    assert fault("session.update", session={"tools": tools}) == ("invalid_value", "session.tools[0].parameters")


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        (b"\x00", "invalid_frame", None),
        ("{", "invalid_json", None),
        ("", "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        ('"text"', "invalid_type", None),
        ("{}", "missing_required_parameter", "type"),
        ('{"type": 1}', "invalid_type", "type"),
        ('{"type": "conversation.item.crate"}', "invalid_value", "type"),
        ('{"type": "conversation.item.create"}', "missing_required_parameter", "item"),
        ('{"type": "conversation.item.delete"}', "missing_required_parameter", "item_id"),
        ('{"type": "conversation.item.truncate", "item_id": "i", "content_index": 0}', "missing_required_parameter", "audio_end_ms"),
        ('{"type": "conversation.item.truncate", "item_id": "i", "content_index": 1, "audio_end_ms": 1}', "invalid_value", "content_index"),
        ('{"type": "conversation.item.create", "item": {"type": "mcp_call"}}', "invalid_value", "item.type"),
        ('{"type": "conversation.item.create", "item": {"type": "message", "role": "boss"}}', "invalid_value", "item.role"),
        ('{"type": "response.create", "response": {"metadata": {"a": 1}}}', "invalid_type", "response.metadata.a"),
        ('{"type": "response.create", "response": {"conversation": "other"}}', "invalid_value", "response.conversation"),
        (
            '{"type": "response.create", "response": {"input": [{"type": "item_reference"}]}}',
            "missing_required_parameter",
            "response.input[0].id",
        ),
    ],
)  # fmt: skip
def test_bad_messages_are_told_what_was_wrong(frame: str | bytes, code: str, param: str | None) -> None:
    error = refused(codec(), frame)
    assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")


@pytest.mark.parametrize("kind", ["input_audio", "input_image"])
def test_sound_and_images_among_content_are_refused(kind: str) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": kind, "audio": "AAAA", "image_url": "data:"}]}
    assert fault("conversation.item.create", item=item) == ("unsupported_content_type", "item.content[0].type")


def test_a_replayed_transcript_is_taken_as_its_words() -> None:
    item = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_audio", "transcript": "Hi."}, {"type": "input_text", "text": "You."}],
    }
    event = decode(codec(), "conversation.item.create", item=item)
    assert isinstance(event, AddItem)
    assert event.text == "Hi.\nYou."


def test_the_clients_event_id_comes_back_with_the_error() -> None:
    made = codec()
    assert refused(made, '{"type": "nonsense", "event_id": "mine"}')["event_id"] == "mine"
    event = decode(made, "session.update", event_id="yours", session={"voice": "ghost"})
    (error,) = encoded(made, error_frame(UnknownVoice("No such voice."), event.id))
    assert (error["error"]["event_id"], error["error"]["code"]) == ("yours", "invalid_value")


def test_an_error_of_ours_is_a_server_error() -> None:
    (error,) = encoded(codec(), ErrorRaised(code="internal", message="We failed.", retryable=False))
    assert error["error"] == {"type": "server_error", "code": "internal", "message": "We failed.", "param": None, "event_id": None}


def test_a_refused_response_names_the_active_one() -> None:
    made = codec()
    encoded(made, TurnStarted(turn=1, reply_id="item_r"))
    event = decode(made, "response.create", event_id="again")
    (error,) = encoded(made, error_frame(TurnActive("busy"), event.id))
    assert error["error"]["code"] == "conversation_already_has_active_response"
    assert "resp_u_1" in error["error"]["message"]


def test_a_response_id_finds_its_turn() -> None:
    made = codec()
    event = decode(made, "response.cancel", response_id="resp_u_7")
    assert isinstance(event, Cancel)
    assert event.turn == 7
    for wrong in ("resp_v_7", "resp_u_", "resp_u_x", "resp_u_99999999999999", "7"):
        assert refused(made, json.dumps({"type": "response.cancel", "response_id": wrong}))["code"] == "response_cancel_not_active"
    plain = decode(made, "response.cancel", event_id="c")
    (error,) = encoded(made, error_frame(UnknownTurn("none"), plain.id))
    assert error["error"]["code"] == "response_cancel_not_active"


def test_a_response_is_overridden_and_echoes_its_metadata() -> None:
    made = codec()
    wish = {
        "output_modalities": ["text"],
        "metadata": {"client_event_id": "x"},
        "voice": "joe",
        "max_output_tokens": 9,
        "instructions": "I.",
    }
    event = decode(made, "response.create", response=wish)
    assert isinstance(event, RequestReply)
    assert (event.output, event.voice, event.max_tokens, event.instructions, event.conversation) == ("text", "joe", 9, "I.", "default")
    (created,) = encoded(made, TurnStarted(ref=event.id, turn=1, reply_id="item_r", output="text", metadata=event.metadata))
    shown = created["response"]
    assert (shown["metadata"], shown["max_output_tokens"]) == ({"client_event_id": "x"}, 9)
    assert shown["audio"]["output"]["voice"] == "joe"


def test_what_belongs_to_the_next_response_waits_for_the_end_of_the_one_before() -> None:
    made = codec()
    first = [TurnStarted(turn=1, reply_id="r1"), SegmentDecided(turn=1, index=0, text="One.", cut="end")]
    early = [
        TurnStarted(turn=2, reply_id="r2"),
        SegmentDecided(turn=2, index=0, text="Two.", cut="end"),
        Interrupted(turn=2, reason="cancel"),
    ]
    sound = [SegmentAudio(turn=1, index=0, voice="amy", spoken="One."), AudioFrame(turn=1, index=0, pts_ms=0, data=b"\0\0")]
    kinds = [event["type"] for event in encoded(made, *first, *early, *sound)]
    assert kinds.count("response.created") == 1
    rest = encoded(made, ReplyDone(turn=1, usage=USAGE))
    assert [event["type"] for event in rest][-3:] == ["response.done", "response.created", "response.done"]
    assert [event["response"]["status"] for event in rest if event["type"] == "response.done"] == ["completed", "cancelled"]


def test_nothing_of_a_response_follows_its_end() -> None:
    made = codec()
    encoded(made, TurnStarted(turn=1, reply_id="r1"), Interrupted(turn=1, reason="cancel"))
    late = [
        AudioFrame(turn=1, index=0, pts_ms=0, data=b"\0\0"),
        Heard(turn=1, heard_ms=0, heard_text=""),
        TurnDone(turn=1, status="interrupted", timeline=Timeline()),
    ]
    assert encoded(made, *late) == []


def test_speech_that_interrupts_is_told_as_turn_detected() -> None:
    made = codec()
    ends = [Interrupted(turn=1, reason="speech"), TurnDone(turn=1, status="superseded", timeline=Timeline())]
    for end in ends:
        *_, done = encoded(made, TurnStarted(turn=1, reply_id="r1"), end)
        assert done["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}


def test_an_item_behind_a_reply_that_was_never_shown_names_the_one_before_it() -> None:
    made = codec()
    event = decode(
        made, "conversation.item.create", item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "A"}]}
    )
    encoded(made, ItemAdded(ref=event.id, item_id="a"))
    encoded(made, TurnStarted(turn=1, reply_id="hidden", after="a"), Interrupted(turn=1, reason="cancel"))
    event = decode(
        made, "conversation.item.create", item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "B"}]}
    )
    added, _ = encoded(made, ItemAdded(ref=event.id, item_id="b", after="hidden"))
    assert added["previous_item_id"] == "a"


def test_what_this_protocol_has_no_word_for_is_not_told() -> None:
    assert encoded(codec(), GoingAway(deadline_ms=1), Ack(ref="m9")) == []


def test_usage_is_the_models_own_count() -> None:
    *_, done = encoded(codec(), TurnStarted(turn=1, reply_id="r"), ReplyDone(turn=1, usage=USAGE))
    usage = done["response"]["usage"]
    assert (usage["total_tokens"], usage["input_tokens"], usage["output_tokens"]) == (12, 9, 3)
    assert usage["input_token_details"]["cached_tokens"] == 4
    assert usage["output_token_details"]["audio_tokens"] == 0


def test_answers_are_not_kept_for_ever() -> None:
    made = codec()
    for _ in range(1000):
        event = decode(made, "session.update", session={})
        encoded(made, SessionUpdated(ref=event.id, instructions="", language="en", voice="amy", output="audio", allow_barge_in=True))
        refused(made, "{")
    made.decode('{"type": "input_audio_buffer.clear"}')
    assert len(made._asked) == 1


@pytest.mark.parametrize(
    ("error", "code"), [(Idle("idle"), 1001), (Drained("stop"), 1001), (SlowReader("slow"), 1008), (StrettoError("bug"), 1011)]
)
def test_connections_end_with_standard_codes(error: StrettoError, code: int) -> None:
    assert codec().close_code(error) == code
    assert NativeCodec(1, 1).close_code(error) == (error.close or 1011)
