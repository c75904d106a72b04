"""A connection is lost and comes back: nothing is missed, nothing comes twice, in time or not at all."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import Drained, Overloaded, ResumeDenied, SlowReader, Superseded
from gateway.events import AudioFrame, Ping, Pong, Resume, SendText, StartSession, TurnDone
from tests.session.stage import Stage, stage

REPLY = "One two three four five six seven. Eight nine ten eleven twelve. And so on it goes."


def wish(session_id: str, token: str, last_seq: int) -> StartSession:
    return StartSession(resume=Resume(session_id=session_id, token=token, last_seq=last_seq))


@pytest.mark.parametrize("away_s", [0.0, 0.5, 5.0, 30.0])
@pytest.mark.parametrize("n_frames", [1, 2, 5, 9, 14])
async def test_a_conversation_is_whole_after_a_drop(n_frames: int, away_s: float) -> None:
    async with stage([REPLY]) as scene:
        scene.send(SendText(text="Count."))
        async with asyncio.timeout(30):
            while len(scene.frames) < n_frames:
                await asyncio.sleep(0.005)
        await scene.stop_reading()
        del scene.frames[n_frames:]
        last_seq = scene.frames[-1][1]
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        await asyncio.sleep(away_s)
        await scene.start(wish(scene.session.session_id, scene.ready.resume_token, last_seq))
        assert scene.ready.resumed is True
        await scene.until(TurnDone)
        assert [seq for _, seq, _ in scene.frames] == list(range(1, len(scene.frames) + 1))
        pts = 0.0
        for frame in scene.of(AudioFrame):
            assert frame.pts_ms == pytest.approx(pts, abs=0.01)
            pts += len(frame.data) / 48
        assert scene.of(TurnDone)[0].status == "completed"


async def test_nothing_new_is_sent_ahead_while_nobody_listens() -> None:
    async with stage([REPLY * 3], settings={"session": {"lead_ms": 500}}) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(AudioFrame, n=3)
        await scene.stop_reading()
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        await asyncio.sleep(20)
        waiting_ms = sum(len(e.data) / 48 for e in scene.session.outbox.waiting() if isinstance(e, AudioFrame))
        assert waiting_ms <= 700


async def test_a_wrong_token_is_refused_and_the_session_is_untouched() -> None:
    async with stage([REPLY]) as scene:
        with pytest.raises(ResumeDenied):
            await scene.sessions.open(wish(scene.session.session_id, "guess", 0))
        assert not scene.attachment.ended.done()


async def test_the_token_changes_at_each_resume_once_the_client_has_it() -> None:
    async with stage([REPLY]) as scene:
        old = scene.ready.resume_token
        await scene.sessions.open(wish(scene.session.session_id, old, 0))
        _, _, ready = await scene.sessions.open(wish(scene.session.session_id, old, 0))
        assert ready.resume_token != old, "the first answer was lost: the old token is good once more"
        scene.send(Ping())
        with pytest.raises(ResumeDenied):
            await scene.sessions.open(wish(scene.session.session_id, old, 0))


async def test_the_newest_attachment_wins() -> None:
    async with stage([REPLY]) as scene:
        await scene.sessions.open(wish(scene.session.session_id, scene.ready.resume_token, 0))
        reason = scene.attachment.ended.result()
        assert isinstance(reason, Superseded)
        assert reason.close == 4001


@pytest.mark.parametrize("last_seq", [10_000, -1])
async def test_a_last_seq_that_never_was_gives_a_new_session(last_seq: int) -> None:
    async with stage([REPLY]) as scene:
        session, _, ready = await scene.sessions.open(wish(scene.session.session_id, scene.ready.resume_token, last_seq))
        assert ready.resumed is False
        assert session.session_id != scene.session.session_id


async def test_a_lost_session_ends_after_its_time() -> None:
    async with stage([REPLY], settings={"session": {"resume_s": 10.0}}) as scene:
        await scene.stop_reading()
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        await asyncio.sleep(9)
        assert len(scene.sessions) == 1
        await asyncio.sleep(1.1)
        assert len(scene.sessions) == 0
        _, _, ready = await scene.sessions.open(wish(scene.session.session_id, scene.ready.resume_token, 0))
        assert ready.resumed is False


async def test_a_full_house_has_room_when_its_guests_left_without_a_word() -> None:
    async with stage([REPLY], settings={"session": {"max_sessions": 1}}) as scene:
        await scene.stop_reading()
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        scene.sessions.admission.connected = 1
        session, _, ready = await scene.sessions.open(StartSession())
        assert ready.resumed is False
        await asyncio.sleep(0.1)
        assert scene.sessions.ids() == [session.session_id]
        assert scene.sessions.admission.detached == 0


async def test_a_full_house_still_lets_a_lost_client_back_in() -> None:
    async with stage([REPLY], settings={"session": {"max_sessions": 1}}) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        await scene.stop_reading()
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        scene.sessions.admission.connected = 1
        with pytest.raises(Overloaded):
            await scene.sessions.open(StartSession())
        _, _, ready = await scene.sessions.open(wish(scene.session.session_id, scene.ready.resume_token, scene.frames[-1][1]))
        assert ready.resumed is True


async def test_a_newer_connection_does_not_turn_the_playout_clock_back() -> None:
    async with stage([REPLY * 4]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(AudioFrame, n=40)
        taken_over_s, n_before = scene.time(), len(scene.of(AudioFrame))
        await scene.stop_reading()
        await scene.start(wish(scene.session.session_id, scene.ready.resume_token, scene.frames[-1][1]))
        await scene.until(AudioFrame, n=n_before + 3)
        assert scene.time() - taken_over_s < 0.5


async def test_a_client_whose_frames_are_not_kept_gets_the_place_of_its_old_session() -> None:
    async with stage([REPLY], settings={"session": {"max_sessions": 1}}) as scene:
        await scene.stop_reading()
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        scene.sessions.admission.connected = 1
        session, _, ready = await scene.sessions.open(wish(scene.session.session_id, scene.ready.resume_token, 10_000))
        assert ready.resumed is False
        await asyncio.sleep(0.1)
        assert scene.sessions.ids() == [session.session_id]
        assert scene.sessions.admission.detached == 0


async def test_a_client_that_comes_back_while_its_session_ends_gets_a_new_one() -> None:
    async with stage([REPLY], settings={"session": {"resume_s": 10.0}}) as scene:
        await scene.stop_reading()
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        back: list[asyncio.Task[bool]] = []
        async with asyncio.TaskGroup() as tasks:
            loop = asyncio.get_running_loop()
            loop.call_later(10.0, lambda: back.append(tasks.create_task(comes_back(scene))))
            await asyncio.sleep(10.1)
        assert back[0].result() is False
        assert len(scene.sessions) == 1


async def comes_back(scene: Stage) -> bool:
    _, _, ready = await scene.sessions.open(wish(scene.session.session_id, scene.ready.resume_token, 0))
    return ready.resumed


async def test_a_handshake_cancelled_in_the_middle_leaves_no_session() -> None:
    async with stage([REPLY]) as scene:
        async with asyncio.TaskGroup() as tasks:
            opening = tasks.create_task(scene.sessions.open(StartSession()), name="opening")
            await asyncio.sleep(0)
            assert len(scene.sessions) == 2
            opening.cancel()
        await asyncio.sleep(0.1)
        assert scene.sessions.ids() == [scene.session.session_id]


async def test_a_draining_server_opens_no_session_for_those_that_are_in_already() -> None:
    async with stage([REPLY]) as scene:
        scene.sessions.admission.is_draining = True
        with pytest.raises(Drained) as caught:
            await scene.sessions.open(StartSession())
        assert caught.value.close == 4004
        assert len(scene.sessions) == 1


async def test_a_frame_that_waited_too_long_is_there_for_the_client_that_comes_back() -> None:
    async with stage([REPLY], settings={"session": {"slow_reader_s": 2.0}}) as scene:
        await scene.stop_reading()
        scene.send(Ping(id="p", t=1.0))
        await asyncio.sleep(3)
        with pytest.raises(SlowReader):
            await scene.session.outbox.next()
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        await scene.start(wish(scene.session.session_id, scene.ready.resume_token, 0))
        assert (await scene.until(Pong, timeout_s=5)).ref == "p"
