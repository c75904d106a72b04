"""The Python client against a scripted server on a real loopback socket."""

from __future__ import annotations

import asyncio

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from gateway.client import ConnectFailed, Conversation, ConversationLost, PlayoutClock, Refused, Reply, SimulatedPlayer, connect
from gateway.client.playout import length_ms
from gateway.events import (
    Ack,
    AddItem,
    AppendAudio,
    AudioFrame,
    AudioOut,
    Cancel,
    ClearInput,
    CommitInput,
    ErrorRaised,
    Interrupted,
    ItemAdded,
    Mute,
    Ping,
    PlayoutPaused,
    PlayoutResumed,
    Pong,
    ReplyDone,
    ReportPlayout,
    SendText,
    SpeechEnded,
    SpeechStarted,
    StartSession,
    TextDelta,
    Timeline,
    Transcribed,
    TurnDone,
    TurnStarted,
    UsageInfo,
)
from tests.doubles.scripted_encoding import mp3_frames
from tests.doubles.scripted_server import FRAME_20_MS, Peer, reply_with_two_segments, serving


async def test_a_reply_arrives_segment_by_segment() -> None:
    async with serving(reply_with_two_segments) as server, connect(server.url, start=StartSession(language="en")) as conversation:
        reply = await conversation.text("Tell me about the sea.")
        segments = [segment.text async for segment in reply.segments()]
        audio = [frame.data async for frame in reply.audio()]
        done = await reply.finished()
        assert segments == ["The sea is wide.", " It is deep."]
        assert reply.text == "The sea is wide. It is deep."
        assert audio == [FRAME_20_MS] * 2
        assert (reply.turn, reply.item_id, done.status) == (1, "u1", "completed")
    start, ask, *reports = server.received
    assert isinstance(start, StartSession)
    assert start.language == "en"
    assert isinstance(ask, SendText)
    assert ask.text == "Tell me about the sea."
    assert all(isinstance(report, ReportPlayout) for report in reports)
    last = reports[-1]
    assert isinstance(last, ReportPlayout)
    assert (last.final, last.played_ms) == (True, pytest.approx(40, abs=0.6))


async def test_times_count_from_the_request() -> None:
    async with serving(reply_with_two_segments) as server, connect(server.url) as conversation:
        reply = await conversation.text("Hello.")
        times = [at_ms async for at_ms, _ in reply.timed()]
        assert times == sorted(times)
        assert 0 <= times[0] < 60_000


async def test_an_error_answers_the_message_it_refers_to() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.start()
        ask = await peer.receive()
        await peer.send(ErrorRaised(code="text_empty", message="The text is empty.", retryable=False, ref=ask.id))
        ping = await peer.receive()
        assert isinstance(ping, Ping)
        await peer.send(Pong(t=ping.t, ref=ping.id))
        await peer.socket.wait_closed()

    async with serving(refuse) as server, connect(server.url) as conversation:
        with pytest.raises(Refused, match="The text is empty") as caught:
            await conversation.text(" ")
        assert (caught.value.code, caught.value.retryable) == ("text_empty", False)
        assert await conversation.ping() >= 0


async def test_the_key_travels_as_a_bearer_header_and_unknown_events_are_ignored() -> None:
    async def script(peer: Peer) -> None:
        await peer.start()
        await peer.socket.send(b"\x81\xa4type\xa9brand.new")
        event = await peer.receive()
        await peer.send(ItemAdded(item_id="i1", ref=event.id))
        await peer.socket.wait_closed()

    async with serving(script) as server, connect(server.url, key="secret") as conversation:
        assert await conversation.add_item("user", "Earlier.") == "i1"
        assert server.requests[0].headers["Authorization"] == "Bearer secret"
    assert isinstance(server.received[-1], AddItem)


async def test_each_connection_shows_a_new_ticket_and_a_failed_one_is_asked_for_again() -> None:
    async def first(peer: Peer) -> None:
        await peer.start()
        peer.socket.transport.abort()

    async def second(peer: Peer) -> None:
        await peer.start(resumed=True)
        ping = await peer.receive()
        assert isinstance(ping, Ping)
        await peer.send(Pong(ref=ping.id))
        await peer.socket.wait_closed()

    asked: list[str | Exception] = ["tkt_one", OSError("the app's server is away"), "tkt_two"]

    async def ticket() -> str:
        given = asked.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    async with serving(first, second) as server, connect(server.url, ticket=ticket) as conversation:
        assert await conversation.ping() >= 0
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer tkt_one", "Bearer tkt_two"]


async def test_refused_start_raises_before_the_block() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.send(ErrorRaised(code="unknown_voice", message="No voice 'x'.", retryable=False), numbered=False)
        await peer.socket.wait_closed()

    async with serving(script) as server:
        with pytest.raises(Refused, match="unknown_voice"):
            async with connect(server.url, start=StartSession(voice="x")):
                pytest.fail("the block must not run")


async def test_nobody_listens() -> None:
    with pytest.raises(ConnectFailed, match="nothing listens") as caught:
        async with connect("ws://127.0.0.1:9/v1/voice", timeout_s=5):
            pytest.fail("the block must not run")
    assert (caught.value.status, caught.value.retryable) == (None, True)


@pytest.mark.parametrize("url", ["http//nonsense", "ws://", "127.0.0.1:8080"])
async def test_a_wrong_address_is_explained(url: str) -> None:
    with pytest.raises(ConnectFailed, match="expected one like ws://"):
        async with connect(url):
            pytest.fail("the block must not run")


@pytest.mark.parametrize(("status", "retryable", "words"), [(401, False, "a key or ticket is needed"), (503, True, "full or stopping")])
async def test_refused_handshakes_are_explained(status: int, retryable: bool, words: str) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        response = connection.respond(status, "no\n")
        response.headers["Retry-After"] = "7"
        return response

    async with serve(lambda _: asyncio.sleep(0), "127.0.0.1", 0, process_request=refuse) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        with pytest.raises(ConnectFailed, match=words) as caught:
            async with connect(f"ws://127.0.0.1:{port}/v1/voice"):
                pytest.fail("the block must not run")
    assert (caught.value.status, caught.value.retryable, caught.value.retry_after_s) == (status, retryable, 7.0)


async def test_interruption_is_reported_at_once_with_what_was_played() -> None:
    async def script(peer: Peer) -> None:
        await peer.start()
        ask = await peer.receive()
        await peer.send(TurnStarted(turn=1, ref=ask.id))
        await peer.send(AudioFrame(turn=1, index=0, pts_ms=0, data=bytes(48_000)))
        cancel = await peer.receive_until(lambda e: isinstance(e, Cancel))
        await peer.send(Ack(ref=cancel.id))
        await peer.send(Interrupted(turn=1, reason="cancel"))
        await peer.receive_until(lambda e: isinstance(e, ReportPlayout) and e.final)
        await peer.send(TurnDone(turn=1, status="interrupted", timeline=Timeline()))
        await peer.socket.wait_closed()

    async with serving(script) as server, connect(server.url) as conversation:
        reply = await conversation.text("Talk.")
        await anext(reply.audio())
        await conversation.cancel()
        assert (await reply.finished()).status == "interrupted"
    reports = [e for e in server.received if isinstance(e, ReportPlayout)]
    assert [r.final for r in reports] == [False] * (len(reports) - 1) + [True]
    assert reports[-1].played_ms < 1000


async def test_a_dropped_connection_is_resumed_and_nothing_comes_twice() -> None:
    async def first(peer: Peer) -> None:
        await peer.start()
        ask = await peer.receive()
        await peer.send(TurnStarted(turn=1, ref=ask.id))
        await peer.send(TextDelta(turn=1, text="One ", tokens=1))
        await peer.receive_until(lambda e: isinstance(e, Ping))
        peer.socket.transport.abort()

    async def second(peer: Peer) -> None:
        start = await peer.start(resumed=True)
        assert start.resume is not None
        assert (start.resume.session_id, start.resume.token, start.resume.last_seq) == ("s1", "t1", 2)
        assert peer.socket.request is not None
        assert peer.socket.request.path.endswith("?tenant=a&resume=s1"), "a full house lets it in"
        peer.seq = 1
        await peer.send(TextDelta(turn=1, text="One ", tokens=1))  # seq 2 again: the client has it
        await peer.send(TextDelta(turn=1, text="two.", tokens=1))
        ping = await peer.receive()
        assert isinstance(ping, Ping)
        await peer.send(Pong(ref=ping.id))
        await peer.send(TurnDone(turn=1, status="completed", timeline=Timeline()))
        await peer.socket.wait_closed()

    async with serving(first, second) as server, connect(f"{server.url}?tenant=a") as conversation:
        reply = await conversation.text("Count.")
        await conversation.ping()  # asked on the first connection, answered on the second
        await reply.finished()
        assert reply.text == "One two."
        assert conversation.n_resumes == 1
    pings = [e.id for e in server.received if isinstance(e, Ping)]
    assert len(pings) == 2
    assert pings[0] == pings[1]


async def test_a_session_that_cannot_be_resumed_is_lost() -> None:
    async def first(peer: Peer) -> None:
        await peer.start()
        ask = await peer.receive()
        await peer.send(TurnStarted(turn=1, ref=ask.id))
        peer.socket.transport.abort()

    async def second(peer: Peer) -> None:
        await peer.start(resumed=False)
        await peer.socket.wait_closed()

    async with serving(first, second) as server, connect(server.url) as conversation:
        reply = await conversation.text("Hello.")
        with pytest.raises(ConversationLost, match="the connection broke"):
            await reply.finished()
        with pytest.raises(ConversationLost):
            await conversation.text("Still there?")


async def test_a_turn_that_the_next_server_does_not_know_ends_by_itself() -> None:
    async def first(peer: Peer) -> None:
        await peer.start()
        ask = await peer.receive()
        await peer.send(TurnStarted(turn=1, ref=ask.id))
        peer.socket.transport.abort()

    async def second(peer: Peer) -> None:
        await peer.start(resumed=True, gap=True, turns=0)
        peer.seq = 1  # numbers go on where the client stands
        ask = await peer.receive()
        await peer.send(TurnStarted(turn=1, ref=ask.id))
        await peer.send(TurnDone(turn=1, status="completed", timeline=Timeline()))
        await peer.socket.wait_closed()

    async with serving(first, second) as server, connect(server.url) as conversation:
        lost = await conversation.text("Hello?")
        assert (await lost.finished()).status == "failed"
        again = await conversation.text("Hello again?")
        assert (await again.finished()).status == "completed", "under the same number"


async def test_a_server_that_stops_is_left_for_another_one_that_has_the_conversation() -> None:
    async def first(peer: Peer) -> None:
        await peer.start()
        await peer.receive()
        await peer.socket.close(4004)

    async def second(peer: Peer) -> None:
        await peer.start(resumed=True)
        ping = await peer.receive()
        await peer.send(Pong(ref=ping.id))
        await peer.socket.wait_closed()

    async with serving(first, second) as server, connect(server.url) as conversation:
        await conversation.ping()
        assert conversation.n_resumes == 1


async def test_a_server_that_stops_and_leaves_nobody_is_told() -> None:
    async def first(peer: Peer) -> None:
        await peer.start()
        await peer.receive()
        await peer.socket.close(4004)

    async def second(peer: Peer) -> None:
        await peer.start(resumed=False)
        await peer.socket.wait_closed()

    async with serving(first, second) as server, connect(server.url) as conversation:
        with pytest.raises(ConversationLost, match="the server is stopping") as caught:
            await conversation.ping()
        assert caught.value.close_code == 4004


@pytest.mark.parametrize(("code", "words"), [(1008, "broke a rule"), (1000, "closed normally")])
async def test_final_close_codes_are_explained_and_not_resumed(code: int, words: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.start()
        await peer.receive()
        await peer.socket.close(code)

    async with serving(script) as server, connect(server.url) as conversation:
        with pytest.raises(ConversationLost, match=words) as caught:
            await conversation.ping()
        assert caught.value.close_code == code


async def test_an_exception_in_the_block_comes_out_as_it_is() -> None:
    async def fail(conversation: Conversation) -> None:
        raise KeyError(conversation.ready.session_id)

    async with serving(reply_with_two_segments) as server:
        with pytest.raises(KeyError, match="s1"):
            async with connect(server.url) as conversation:
                await fail(conversation)


def test_playout_clock_waits_while_it_has_nothing() -> None:
    clock = PlayoutClock()
    clock.add(100, now_s=10.0)
    assert clock.played_ms(10.0) == 0
    assert clock.played_ms(10.05) == pytest.approx(50)
    assert clock.played_ms(11.0) == 100  # ran dry
    clock.add(100, now_s=12.0)
    assert clock.played_ms(12.03) == pytest.approx(130)


def test_a_paused_player_goes_on_where_it_was() -> None:
    now = [0.0]
    player = SimulatedPlayer(lambda: now[0])
    player.play(AudioFrame(turn=1, index=0, pts_ms=0, data=b""), 1000)
    now[0] = 0.3
    player.pause(1)
    now[0] = 5.0
    player.play(AudioFrame(turn=1, index=0, pts_ms=1000, data=b""), 1000)
    assert player.played_ms(1) == pytest.approx(300)
    player.resume(1)
    now[0] = 5.1
    assert player.played_ms(1) == pytest.approx(400)
    player.pause(2)  # a turn of which nothing has come
    assert player.played_ms(2) == 0


async def test_what_is_heard_comes_as_one_stream_with_the_replies_to_it() -> None:
    async def script(peer: Peer) -> None:
        await peer.start()
        audio = await peer.receive()
        assert isinstance(audio, AppendAudio)
        assert (audio.data, audio.pts_ms) == (FRAME_20_MS, 20)
        await peer.send(SpeechStarted(utterance=1, at_ms=20))
        await peer.send(Transcribed(utterance=1, text="Hel", final=False))
        await peer.send(SpeechEnded(utterance=1, at_ms=900))
        await peer.send(Transcribed(utterance=1, text="Hello.", final=True, turn=1))
        await peer.send(TurnStarted(turn=1, item_id="u1"))
        await peer.send(TextDelta(turn=1, text="Hi.", tokens=1))
        await peer.send(TurnDone(turn=1, status="completed", timeline=Timeline()))
        await peer.socket.close(1008, "enough")

    async with serving(script) as server, connect(server.url) as conversation:
        await conversation.append_audio(FRAME_20_MS, 20)
        heard = [await anext(conversation.hearing) for _ in range(5)]
        assert [type(one) for one in heard] == [SpeechStarted, Transcribed, SpeechEnded, Transcribed, Reply]
        reply = heard[-1]
        assert isinstance(reply, Reply)
        assert (await reply.finished()).status == "completed"
        assert reply.text == "Hi."
        with pytest.raises(ConversationLost, match="enough"):
            await anext(conversation.hearing)


async def test_a_paused_turn_is_reported_where_it_stands_and_goes_on() -> None:
    now, is_paused = [0.0], asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.start()
        await peer.send(TurnStarted(turn=1))
        for index in range(10):
            await peer.send(AudioFrame(turn=1, index=0, pts_ms=100 * index, data=FRAME_20_MS * 5))
        await peer.receive_until(lambda event: isinstance(event, ReportPlayout))
        now[0] = 0.3
        await peer.receive_until(lambda event: isinstance(event, ReportPlayout) and event.played_ms > 299)
        await peer.send(PlayoutPaused(turn=1))
        await is_paused.wait()
        now[0] = 100.0
        await peer.receive_until(lambda event: isinstance(event, ReportPlayout))  # of the pause itself, or one that was on its way
        for _ in range(2):
            held = await peer.receive_until(lambda event: isinstance(event, ReportPlayout))
            assert isinstance(held, ReportPlayout)
            assert held.played_ms == pytest.approx(300)
        await peer.send(PlayoutResumed(turn=1))
        await peer.send(ReplyDone(turn=1, usage=UsageInfo(prompt_tokens=1, cached_tokens=0, output_tokens=1)))
        await peer.receive_until(lambda event: isinstance(event, ReportPlayout) and event.final)
        await peer.send(TurnDone(turn=1, status="completed", timeline=Timeline()))
        await peer.socket.wait_closed()

    async with serving(script) as server, connect(server.url, player=SimulatedPlayer(lambda: now[0])) as conversation:
        reply = await anext(conversation.hearing)
        assert isinstance(reply, Reply)
        assert isinstance(await anext(conversation.hearing), PlayoutPaused)
        is_paused.set()
        assert isinstance(await anext(conversation.hearing), PlayoutResumed)
        now[0] = 200.0
        assert (await reply.finished()).status == "completed"


async def test_push_to_talk_and_mute_are_requests() -> None:
    async def script(peer: Peer) -> None:
        await peer.start()
        for _ in range(4):
            event = await peer.receive()
            answer = ErrorRaised(code="input_empty", message="Nothing.", retryable=False, ref=event.id)
            await peer.send(answer if isinstance(event, CommitInput) else Ack(ref=event.id))
        await peer.socket.wait_closed()

    async with serving(script) as server, connect(server.url) as conversation:
        await conversation.clear()
        await conversation.mute(on=True)
        await conversation.mute(on=False)
        with pytest.raises(Refused, match="input_empty"):
            await conversation.commit()
    assert [type(event) for event in server.received[1:]] == [ClearInput, Mute, Mute, CommitInput]


def test_a_stopped_player_stays_where_it_was() -> None:
    now = [0.0]
    player = SimulatedPlayer(lambda: now[0])
    player.play(AudioFrame(turn=1, index=0, pts_ms=0, data=b""), 1000)
    now[0] = 0.3
    player.stop(1)
    player.play(AudioFrame(turn=1, index=0, pts_ms=1000, data=b""), 1000)  # late
    now[0] = 5.0
    assert player.played_ms(1) == pytest.approx(300)
    player.play(AudioFrame(turn=2, index=0, pts_ms=0, data=b""), 100)
    now[0] = 5.05
    assert player.played_ms(2) == pytest.approx(50)


def test_frame_lengths() -> None:
    assert length_ms(FRAME_20_MS, AudioOut()) == 20
    assert length_ms(bytes(320), AudioOut(rate_hz=8000)) == 20
    assert length_ms(b"opus", AudioOut(codec="opus")) == 20
    assert length_ms(mp3_frames(4, b"x"), AudioOut(codec="mp3")) == 96
