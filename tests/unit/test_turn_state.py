"""Every cell of the floor's table."""

from __future__ import annotations

import pytest

from gateway.turn_state import TABLE, Action, Event, State, decide

ON_THE_FLOOR = [state for state in State if state not in (State.LISTENING, State.DRAFTING)]


def test_every_cell_is_decided() -> None:
    assert set(TABLE) == {(state, event) for state in State for event in Event}


@pytest.mark.parametrize("state", ON_THE_FLOOR)
def test_text_always_takes_the_floor(state: State) -> None:
    assert decide(state, Event.TEXT) == (State.THINKING, Action.REPLACE)


@pytest.mark.parametrize("state", ON_THE_FLOOR)
def test_cancel_always_silences(state: State) -> None:
    assert decide(state, Event.CANCELLED) == (State.LISTENING, Action.INTERRUPT)


@pytest.mark.parametrize("state", ON_THE_FLOOR)
def test_a_failure_always_gives_the_floor_back(state: State) -> None:
    assert decide(state, Event.FAILED) == (State.LISTENING, Action.FINISH)


@pytest.mark.parametrize("state", [s for s in State if s not in (State.LISTENING, State.PLAYING_OUT)])
def test_nobody_speaks_over_a_reply_on_its_way(state: State) -> None:
    assert decide(state, Event.REPLY_REQUESTED) == (state, Action.REFUSE)


@pytest.mark.parametrize(
    ("state", "event", "after", "action"),
    [
        (State.LISTENING, Event.TEXT, State.THINKING, Action.START),
        (State.LISTENING, Event.REPLY_REQUESTED, State.THINKING, Action.START),
        (State.LISTENING, Event.CANCELLED, State.LISTENING, Action.NO_TURN),
        (State.LISTENING, Event.DRAFT_STARTED, State.DRAFTING, Action.PROCEED),
        (State.DRAFTING, Event.COMMITTED, State.THINKING, Action.PROCEED),
        (State.DRAFTING, Event.SPEECH_STARTED, State.LISTENING, Action.DROP),
        (State.DRAFTING, Event.TOOL_CALLED, State.DRAFTING, Action.IGNORE),
        (State.THINKING, Event.FIRST_SENT, State.SPEAKING, Action.PROCEED),
        (State.THINKING, Event.SPEECH_STARTED, State.HELD, Action.HOLD),
        (State.THINKING, Event.SPEECH_CONFIRMED, State.LISTENING, Action.INTERRUPT),
        (State.SPEAKING, Event.SPEECH_STARTED, State.HELD, Action.HOLD),
        (State.HELD, Event.SPEECH_DISMISSED, State.SPEAKING, Action.RELEASE),
        (State.HELD, Event.SPEECH_CONFIRMED, State.LISTENING, Action.INTERRUPT),
        (State.SPEAKING, Event.TOOL_CALLED, State.AWAITING_TOOL, Action.PROCEED),
        (State.AWAITING_TOOL, Event.TOOL_RETURNED, State.THINKING, Action.PROCEED),
        (State.SPEAKING, Event.REPLY_SENT, State.PLAYING_OUT, Action.PROCEED),
        (State.PLAYING_OUT, Event.PLAYED_OUT, State.LISTENING, Action.FINISH),
        (State.PLAYING_OUT, Event.REPLY_REQUESTED, State.THINKING, Action.START),
        (State.SPEAKING, Event.PLAYED_OUT, State.SPEAKING, Action.BUG),
    ],
)
def test_the_cells_that_differ(state: State, event: Event, after: State, action: Action) -> None:
    assert decide(state, event) == (after, action)
